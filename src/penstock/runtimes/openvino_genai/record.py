"""The record of the runtime "openvino_genai"."""

from __future__ import annotations

from typing import Final

from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import EngineRules, Interface, RuntimeRecord

RECORD: Final = RuntimeRecord(
    name="openvino_genai",
    title="Language models that `penstock compile` made, on the CPU by OpenVINO GenAI",
    loaders={Interface.ENGINE: "penstock.runtimes.openvino_genai.engine:load"},
    memory=MemoryRule(fixed_bytes=64 * 2**20, factor=1.1, least=0.5),
    weight_files=("*.xml", "*.bin"),
    library="openvino",
    options=frozenset({"precision", "engine.repeatable"}),
    engine=EngineRules(graph="openvino_model.xml"),
    compiled_for_cpus=True,
)
