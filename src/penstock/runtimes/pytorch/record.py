"""The record of the runtime "torch"."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.artifacts.detection.detect_pt2 import check_pt2
from penstock.artifacts.files.model_files import FileFacts
from penstock.core.models.memory_need import MemoryRule
from penstock.runtimes.record import Interface, RuntimeRecord


def _check(root: Path, file: str, trusted: bool) -> FileFacts:
    """Checks the file. A free first dimension may be a batch or the length of a sequence, so rows
    are not joined."""
    check_pt2(root, file, trusted=trusted)
    return FileFacts()


# Its files are not tried in a process of their own: they are checked part by part before PyTorch
# reads them, and have no format of their own that could crash a native library.
RECORD: Final = RuntimeRecord(
    name="torch",
    title="Programs of torch.export, on CPU or GPU by PyTorch",
    loaders={
        Interface.TENSORS: "penstock.runtimes.pytorch.runtime:TorchRuntime",
        Interface.SEQ2SEQ: "penstock.runtimes.pytorch.seq2seq:TorchSeq2SeqModel",
    },
    memory=MemoryRule(fixed_bytes=512 * 2**20, factor=2.0, least=0.5),
    on_accelerators=True,
    library="torch",
    extra="torch",
    understood="*.pt2 of torch.export",
    suffixes=(".pt2",),
    check=_check,
    platform="pytorch_pt2",
    options=frozenset({"precision"}),
    takes_strings=False,
)
