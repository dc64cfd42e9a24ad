"""The environment that compiles models on a server whose own has no PyTorch: what is in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.distribution import install_command
from penstock.errors import ModelError
from penstock.runtimes.environments import interpreters
from penstock.runtimes.environments.own_copies import with_needed
from penstock.runtimes.environments.provide import Provider
from penstock.runtimes.environments.settings import EnvironmentSettings
from penstock.runtimes.environments.spec import EnvironmentSpec
from penstock.runtimes.environments.store import EnvironmentLease

#: What the extra `compile` asks for. PyTorch in the version that the compiler is tested with: a
#: newer one is several hundred MB, and may be one whose programs can't be converted yet.
REQUIREMENTS: Final = (
    "torch==2.13.0",
    "transformers>=5,<6",
    "nncf>=3,<4",
    "safetensors>=0.5",
    "sentencepiece>=0.2",
)
#: What the compiler imports besides. OpenVINO, which proves the model here, is the one that serves.
_COPIED: Final = ("msgspec", "numpy", "openvino", "orjson", "pyyaml", "tokenizers")
#: BertModel brings what all models of transformers import.
_IMPORTS: Final = (
    "import nncf",
    "import openvino",
    "import safetensors.torch",
    "import torch",
    "from transformers import BertModel",
)


def environment_spec() -> EnvironmentSpec:
    """The same for every model, so that one machine has it once."""
    return EnvironmentSpec(
        python=interpreters.own(),
        framework=REQUIREMENTS,
        copied=with_needed(_COPIED),
        imports=_IMPORTS,
        what="the environment that compiles models",
    )


def obtain_environment(
    root: Path,
    settings: EnvironmentSettings,
    cancelled: threading.Event,
    *,
    seconds: float,
    log: Callable[[str], None],
) -> EnvironmentLease:
    """The environment, from the store below `root`. Blocks, for a minute or more when it is built.

    Raises ModelError (`environment-failed`, `environment-timeout`, `environment-too-large`), which
    ends with the installer's last lines, and NotNowError (`environment-cancelled`).
    """
    provider = Provider(root, settings)
    try:
        return provider.obtain(environment_spec(), cancelled, seconds=seconds, log=log)
    except ModelError as error:
        raise ModelError(
            error.code,
            error.message,
            hint="Give the server's pip an index that has these packages, or deploy what 'penstock "
            "compile' makes of the model elsewhere. To install them into the server's own Python: "
            + install_command("compile"),
        ) from None
