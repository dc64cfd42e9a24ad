"""Environments of a model that is being loaded: built off the event loop, held while it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.runtimes.base import EnvironmentPython, LoadContext
from penstock.runtimes.environments.provide import Provider, contexts_of
from penstock.runtimes.environments.store import EnvironmentLease


@dataclass(slots=True)
class Environments:
    """Of a model ("") and of the models inside it, by name; those that have one of their own."""

    leases: dict[str, EnvironmentLease] = field(default_factory=dict)
    missing: str = ""  #: what the model does without, and why

    def explained(self, error: PenstockError) -> PenstockError:
        """An error of loading, which names what may be the cause of it: what the model does
        without, and where its environment is not what it asked for."""
        causes = [self.missing, *(note for one in self.leases.values() for note in one.made.notes)]
        told = "".join(f"{each[:1].upper()}{each[1:]}. " for each in filter(None, causes))
        error.hint = f"{told}{error.hint}".strip()
        return error

    def told(self, context: LoadContext) -> LoadContext:
        """`context` with the Pythons of its processes."""
        pythons = {name: _python_of(lease) for name, lease in self.leases.items()}
        own = pythons.pop("", EnvironmentPython())
        return replace(
            context,
            interpreter=own.interpreter,
            interpreter_dirs=own.interpreter_dirs,
            inner_pythons=pythons,
        )

    def to_dict(self) -> Mapping[str, Any]:
        """Name of a model -> what its environment is, for reports."""
        return {name: lease.made.to_dict() for name, lease in self.leases.items()}

    def close(self) -> None:
        """They may be evicted from now on. Idempotent."""
        for lease in self.leases.values():
            lease.close()


def _python_of(lease: EnvironmentLease) -> EnvironmentPython:
    dirs = tuple(Path(each) for each in lease.made.dirs)
    return EnvironmentPython(interpreter=lease.made.interpreter, interpreter_dirs=dirs)


async def provided(provider: Provider, context: LoadContext, until: float) -> Environments:
    """Raises PenstockError for an environment that can't be had. `until`: loop time, s."""
    found = Environments()
    cancelled = threading.Event()
    try:
        for name, each in contexts_of(context).items():
            seconds = until - asyncio.get_running_loop().time()
            lease = await asyncio.to_thread(provider.provide, each, cancelled, seconds=seconds)
            if lease is not None:
                found.leases[name] = lease
    except BaseException:
        cancelled.set()  # the thread ends what it has started
        found.close()
        raise
    found.missing = provider.missing
    return found
