"""What may be said of an artifact: where it was proved, where it runs, what its samples told."""

from __future__ import annotations

import pytest

from penstock.core.models.instruction_sets import proof


@pytest.mark.parametrize(
    ("proved_on", "failures", "state"),
    [
        ("AVX2", None, "proved-here"),
        ("AVX512_CORE_VNNI", (), "checked-here"),
        ("AVX512_CORE_VNNI", None, "proved-elsewhere"),
        ("", None, "proved-elsewhere"),  # a report of earlier versions does not say
        ("AVX512_CORE_VNNI", ("mean difference 0.079 (0.03 allowed)",), "not-proved"),
    ],
)
def test_what_is_proved_elsewhere_is_proved_here_only_by_its_samples(
    proved_on: str, failures: tuple[str, ...] | None, state: str
) -> None:
    assert proof(proved_on, "AVX2", failures).state == state


def test_a_failed_check_says_what_failed() -> None:
    found = proof("AVX512_CORE_VNNI", "AVX2", ("largest 0.3", "mean 0.1"))
    assert found.to_dict() == {
        "state": "not-proved",
        "proved_on": "AVX512_CORE_VNNI",
        "instruction_set": "AVX2",
        "detail": "largest 0.3; mean 0.1",
    }


def test_what_could_not_be_asked_says_why() -> None:
    found = proof("AVX512_CORE_VNNI", "AVX2", None, unasked="no samples")
    assert (found.state, found.detail) == ("proved-elsewhere", "no samples")
