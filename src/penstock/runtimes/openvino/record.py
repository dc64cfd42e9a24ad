"""The record of the runtime "openvino"."""

from __future__ import annotations

from typing import Final

from penstock.artifacts.files.model_files import graph_facts, is_graph
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

_FIXED_BYTES = 96 * 2**20

RECORD: Final = RuntimeRecord(
    name="openvino",
    title="ONNX, TensorFlow SavedModel, TFLite and OpenVINO IR, on the CPU by OpenVINO",
    loaders={Interface.TENSORS: "penstock.runtimes.openvino.runtime:OpenVinoRuntime"},
    memory=MemoryRule(fixed_bytes=_FIXED_BYTES, factor=2.1, least=0.5),
    memory_of={".xml": MemoryRule(fixed_bytes=_FIXED_BYTES, factor=1.1, least=0.5)},
    library="openvino",
    first_import="penstock.runtimes.openvino.runtime:shared_core",
    trial="penstock.runtimes.openvino.runtime:read_once",
    understood="OpenVINO IR (*.xml with *.bin); a TensorFlow SavedModel (saved_model.pb with "
    "variables/); *.tflite",
    suffixes=(".xml", ".onnx", ".tflite", ".pb"),
    recognises=is_graph,
    check=graph_facts,
    beside_tokenizers=True,
    triton={"openvino": "model.xml"},
    options=frozenset({"precision"}),
    takes_strings=False,  # OpenVINO's string tensors have been seen to corrupt the heap
    lane_per_core=True,
    compiled_for_cpus=True,
)
