"""A few inputs with the source's answers, kept in the artifact: `proof.npz`.

They are what another processor's check needs, and no more: at most `BYTES_MAX`, of the compiler's
own inputs (a caller's texts and arrays never leave with an artifact), and only batches that the
artifact answers within its tolerance where it is made, so that a failure speaks of the processor.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.contract import Parity, Tolerance
from penstock.compile.graphs.graph import Arrays
from penstock.compile.proof.parity import compare
from penstock.errors import ModelError

FILE = "proof.npz"
BYTES_MAX = 256 << 10  #: of all arrays together
_BATCHES_MAX = 4  #: of 1, 2, 4 and 8 rows for texts
_FILE_BYTES_MAX = 2 * BYTES_MAX  #: of a file that is read: names and headers come on top

Sample = tuple[Arrays, Arrays]  #: inputs, and the source's answer


def write_samples(
    folder: Path,
    asked: Sequence[Sample],
    ours: Sequence[Arrays],
    description: ModelDescription,
    tolerance: Tolerance,
) -> int:
    """Writes what fits of `asked`, in order. Returns the number of batches; 0 leaves no file."""
    kept: dict[str, np.ndarray] = {}
    count = size = 0
    for (inputs, answer), given in zip(asked, ours, strict=True):
        arrays = _named(count, inputs, answer)
        size += sum(array.nbytes for array in arrays.values())
        if size > BYTES_MAX or count == _BATCHES_MAX:
            break
        if not compare([answer], [given], description, tolerance).failures():
            kept |= arrays
            count += 1
    if count:
        np.savez(folder / FILE, **kept)  # type: ignore[arg-type]
    return count


def read_samples(folder: Path) -> list[Sample]:
    """[] where there are none. Raises ModelError (`proof-unreadable`)."""
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _FILE_BYTES_MAX:
                raise ValueError(f"it holds more than {_FILE_BYTES_MAX} bytes")
        with np.load(path, allow_pickle=False) as file:
            found: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
            for key in file.files:
                number, kind, name = key.split("/", 2)
                pair = found.setdefault(int(number), ({}, {}))
                pair[("in", "out").index(kind)][name] = file[key]
    except (OSError, ValueError, KeyError, MemoryError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError("proof-unreadable", f"{FILE}: {error}") from None
    return [found[number] for number in sorted(found)]


def compare_samples(
    samples: Sequence[Sample],
    ours: Sequence[Arrays],
    description: ModelDescription,
    tolerance: Tolerance,
) -> Parity:
    """By the rule that the compile was held to."""
    return compare([answer for _, answer in samples], ours, description, tolerance)


def _named(number: int, inputs: Arrays, answer: Arrays) -> dict[str, np.ndarray]:
    return {
        **{f"{number}/in/{name}": array for name, array in inputs.items()},
        **{f"{number}/out/{name}": array for name, array in answer.items()},
    }
