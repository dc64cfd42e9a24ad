"""Whether a model can be cut off from the network, as its owner asks (`EnableNetworkIsolation`).

Models in threads of the instance run no code of the artifact and open no connection. Code in
processes of its own is cut off by the kernel (`confined`). Where that is impossible, the model is
refused.
"""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Final

from penstock.errors import ModelError
from penstock.runtimes import registry
from penstock.runtimes.base import LoadContext

_PROBE_S_MAX: Final = 60.0


def check(context: LoadContext) -> None:
    """Blocks, the first time. Raises ModelError (`network-isolation`)."""
    if not context.network_isolated:
        return
    models = [context.description, *(inside.description for inside in context.description.models)]
    runtimes = [registry.record(one.runtime) for one in models]
    if any(one.over_network for one in runtimes):
        raise refused("a command of the operator's is spoken to over the network, and may use it")
    if any(one.in_processes for one in runtimes) and (why := _impossible()):
        raise refused(f"this machine lets no process leave its network ({why})")


def refused(why: str) -> ModelError:
    return ModelError(
        "network-isolation",
        f"EnableNetworkIsolation is asked for, and can't be carried out: {why}",
        hint="Create the model without it, or see docs/security.md for what it needs.",
    )


@functools.cache
def _impossible() -> str:
    """Why isolation is impossible; empty: it is possible."""
    argv = [sys.executable, "-I", str(Path(__file__).with_name("confined.py"))]
    try:
        probe = subprocess.run(
            argv, capture_output=True, text=True, timeout=_PROBE_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (probe.stderr.strip() or f"status {probe.returncode}") if probe.returncode else ""
