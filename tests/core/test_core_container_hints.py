"""What to do about words in the log of a container that does not start."""

from __future__ import annotations

import pytest

from penstock.core.machine.container_hints import what_to_do


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("OSError: [Errno 30] Read-only file system: '/etc/x'", "containers.scratch"),
        ("Error: storage option overlay.size only supported for backingFS XFS", "root_gib"),
        ("--storage-opt is supported only for overlay over xfs with 'pquota'", "root_gib"),
        ("Error: unresolvable CDI devices nvidia.com/gpu=7", "nvidia-ctk cdi generate"),
        ('could not select device driver "" with capabilities: [[gpu]]', "runtime configure"),
        ("exec /program: exec format error", "another processor"),
        ("Traceback (most recent call last):", ""),
    ],
)
def test_known_words_have_a_way_out(line: str, word: str) -> None:
    assert word in what_to_do(line)
    assert bool(word) == bool(what_to_do(line))
