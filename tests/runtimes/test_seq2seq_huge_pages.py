"""Which memory goes into huge pages, and that what is stored there stays."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.runtimes.seq2seq import model

MIB = 1 << 20


def mapping(start: int, stop: int, *, flags: str = "rw-p", inode: int = 0, name: str = "",
            filled: int, huge: int = 0) -> list[str]:  # fmt: skip
    return [
        f"{start:x}-{stop:x} {flags} 00000000 00:00 {inode} {name}\n",
        f"Size: {(stop - start) >> 10} kB\n",
        f"Rss: {filled >> 10} kB\n",
        f"AnonHugePages: {huge >> 10} kB\n",
        "VmFlags: rd wr mr mw me ac\n",
    ]


def test_a_filled_mapping_is_taken_as_far_as_whole_huge_pages_lie_in_it() -> None:
    lines = mapping(MIB, 9 * MIB, filled=8 * MIB)
    assert list(model._worthwhile(lines)) == [(2 * MIB, 8 * MIB)]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(mapping(0, 3 * MIB, filled=3 * MIB), id="small"),
        pytest.param(mapping(0, 8 * MIB, filled=6 * MIB), id="a quarter is empty"),
        pytest.param(mapping(0, 8 * MIB, filled=8 * MIB, huge=8 * MIB), id="done already"),
        pytest.param(mapping(0, 8 * MIB, filled=8 * MIB, flags="r--p"), id="read-only"),
        pytest.param(mapping(0, 8 * MIB, filled=8 * MIB, flags="rw-s"), id="shared"),
        pytest.param(mapping(0, 8 * MIB, filled=8 * MIB, inode=7, name="/file"), id="of a file"),
        pytest.param(mapping(0, 8 * MIB, filled=8 * MIB, name="[stack]"), id="the stack"),
    ],
)
def test_other_mappings_stay_as_they_are(lines: list[str]) -> None:
    assert list(model._worthwhile(lines)) == []


def test_a_mapping_that_stays_does_not_hide_the_next() -> None:
    lines = [
        *mapping(0, 8 * MIB, filled=MIB),
        *mapping(16 * MIB, 24 * MIB, filled=8 * MIB, name="[heap]"),
    ]
    assert list(model._worthwhile(lines)) == [(16 * MIB, 24 * MIB)]


def test_what_is_stored_stays_readable_and_the_same() -> None:
    weights = np.arange(8 * MIB, dtype=np.int32)
    model.use_huge_pages()
    assert (weights == np.arange(8 * MIB, dtype=np.int32)).all()
