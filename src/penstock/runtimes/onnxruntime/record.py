"""The record of the runtime "onnxruntime"."""

from __future__ import annotations

from typing import Final

from penstock.artifacts.files.model_files import graph_facts
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

RECORD: Final = RuntimeRecord(
    name="onnxruntime",
    title="ONNX files, also with string tensors, on CPU or GPU by ONNX Runtime",
    loaders={Interface.TENSORS: "penstock.runtimes.onnxruntime.runtime:OnnxRuntime"},
    memory=MemoryRule(fixed_bytes=64 * 2**20, factor=1.9, least=0.5),
    on_accelerators=True,
    library="onnxruntime",
    trial="penstock.runtimes.onnxruntime.runtime:read_once",
    understood="*.onnx",
    suffixes=(".onnx",),
    check=graph_facts,
    beside_tokenizers=True,
    triton={"onnxruntime": "model.onnx", "onnxruntime_onnx": "model.onnx"},
    platform="onnxruntime_onnx",
    lane_per_core=True,
)
