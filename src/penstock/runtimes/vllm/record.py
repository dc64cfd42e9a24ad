"""The record of the runtime "vllm"."""

from __future__ import annotations

from typing import Final

from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import EngineRules, Interface, RuntimeRecord

RECORD: Final = RuntimeRecord(
    name="vllm",
    title="Language models as Hugging Face has them, by vLLM, which is installed beside Penstock",
    loaders={Interface.ENGINE: "penstock.runtimes.vllm.engine:load"},
    memory=MemoryRule(fixed_bytes=2048 * 2**20, factor=1.1, least=0.5),
    weight_files=("*.safetensors", "*.bin"),
    on_accelerators=True,
    library="vllm",
    engine=EngineRules(
        weights="*.safetensors",
        asked_as="vllm",
        passes_options=True,
        cache_at_start=True,
        without_adapters="LoRA is off; set the option enable_lora in model.yaml "
        "(OPTION_ENABLE_LORA=true)",
    ),
)
