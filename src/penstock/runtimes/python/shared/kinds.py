"""Which Python models may share a process, and what each still has for itself there."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.runtimes.base import LoadContext
from penstock.runtimes.workers.environment import worker_environment

#: "false": the model has a process of its own.
SHARED_WORKER = "PENSTOCK_SHARED_WORKER"

#: Variables about a model, which the worker sets before its code runs. Any other may act on the
#: process: a library reads it once, when the first model imports it.
_OF_MODELS = ("SAGEMAKER_", "SM_")

#: Stands for a worker's scratch folder, which differs and does not matter.
_SCRATCH = Path("/scratch")


def may_share(context: LoadContext) -> bool:
    """A Python model that does not ask for a process of its own, nor calls other models: of those
    whose answers it waits for, some may have to run in that very process."""
    given = {**context.description.environment, **context.environment}
    return (
        context.description.runtime == "python"
        and context.models is None
        and given.get(SHARED_WORKER, "").strip().lower() != "false"
    )


def kind_of(context: LoadContext) -> str:
    """What models have in common that share a process, as one key.

    The interpreter; the walls around it; accelerators; what its requirements.txt asks for, as two
    models that ask for different libraries are not meant to import the same; and every variable of
    its environment but SageMaker's own (SAGEMAKER_*, SM_*), the number of threads among them. Two
    models whose environments differ in anything else are of two kinds.
    """
    description = context.description
    requirements = context.model_dir / Path(description.file).parent / "requirements.txt"
    try:
        wanted = requirements.read_bytes()
    except OSError:
        wanted = b""
    facts = (
        sys.executable,
        context.isolated and not description.trusted,
        context.network_isolated,
        sorted(map(str, context.private_dirs)),
        context.accelerators,
        b"\n".join(sorted(line.strip() for line in wanted.splitlines() if line.strip())),
        sorted(of_process(worker_environment(context, _SCRATCH)).items()),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def of_process(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that all models of a process have in common."""
    return {key: value for key, value in environment.items() if not key.startswith(_OF_MODELS)}


def of_model(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set while one model's code runs."""
    return {key: value for key, value in environment.items() if key.startswith(_OF_MODELS)}
