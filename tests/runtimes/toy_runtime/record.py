"""The record of the runtime "polynomial"."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.artifacts.files.model_files import FileFacts
from penstock.core.models.memory_need import MemoryRule
from penstock.errors import CallerError
from penstock.runtimes.record import Interface, RuntimeRecord

_BEGIN: Final = b"polynomial "


def _recognises(path: Path) -> bool:
    """Other files end in .txt as well."""
    with open(path, "rb") as file:
        return file.read(len(_BEGIN)) == _BEGIN


def _check(root: Path, file: str, trusted: bool) -> FileFacts:
    if not (root / file).read_bytes().endswith(b"\n"):
        raise CallerError("model-file-invalid", f"{file}: its last line is cut short")
    return FileFacts(rows_max=8)


RECORD: Final = RuntimeRecord(
    name="polynomial",
    title="Polynomials in text files",
    loaders={Interface.TENSORS: f"{__package__}.runtime:PolynomialRuntime"},
    memory=MemoryRule(factor=4.0),
    understood="*.txt of a polynomial",
    suffixes=(".txt",),
    recognises=_recognises,
    check=_check,
    triton={"polynomial": "model.txt"},
    platform="toy_polynomial",
)
