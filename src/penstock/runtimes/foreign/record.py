"""The record of the runtime "process"."""

from __future__ import annotations

from typing import Final

from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

RECORD: Final = RuntimeRecord(
    name="process",
    title="A command of the operator's that answers GET /ping and POST /invocations",
    loaders={Interface.PAYLOAD: "penstock.runtimes.foreign.runtime:load"},
    memory=MemoryRule(fixed_bytes=512 * 2**20, factor=2.0),
    weight_files=("**/*",),
    platform="custom",
    options=frozenset({"command", "requirements"}),
    shared="server",
    over_network=True,
)
