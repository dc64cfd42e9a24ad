"""The record of the runtime "seq2seq"."""

from __future__ import annotations

from typing import Final

from penstock.artifacts.files.model_files import graph_facts
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord

RECORD: Final = RuntimeRecord(
    name="seq2seq",
    title="Encoder-decoder models that `penstock compile` made, on the CPU by OpenVINO",
    loaders={Interface.SEQ2SEQ: "penstock.runtimes.seq2seq.model:Seq2SeqModel"},
    memory=MemoryRule(fixed_bytes=112 * 2**20, factor=1.1, least=0.5),
    library="openvino",
    trial="penstock.runtimes.openvino.runtime:read_once",
    check=graph_facts,
    platform="openvino_seq2seq",
    options=frozenset({"precision"}),
    compiled_for_cpus=True,
)
