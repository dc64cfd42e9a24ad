"""The record of the runtime "paced"."""

from __future__ import annotations

from typing import Final

from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import EngineRules, Interface, RuntimeRecord

RECORD: Final = RuntimeRecord(
    name="paced",
    title="No model: an engine that computes nothing and keeps the times of a table",
    loaders={Interface.ENGINE: "penstock.runtimes.paced.engine:load"},
    memory=MemoryRule(fixed_bytes=32 * 2**20),  # 19 MiB were measured, and it has no weights
    weight_files=(),
    options=frozenset({"engine.pace"}),
    engine=EngineRules(without_adapters="it has no model"),
)
