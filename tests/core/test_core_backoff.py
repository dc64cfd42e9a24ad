"""`core/backoff.py`: pauses between tries."""

from __future__ import annotations

from penstock.core.backoff import Backoff


def test_pauses_double_from_the_first_to_the_longest() -> None:
    backoff = Backoff(0.5, 30.0)
    assert [backoff.pause_s(failures) for failures in range(1, 9)] == [
        0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0,
    ]  # fmt: skip


def test_without_a_failure_there_is_no_pause() -> None:
    assert Backoff(0.5, 30.0).pause_s(0) == 0.0
    assert Backoff(0.5, 30.0).pause_s(-1) == 0.0


def test_the_first_pause_is_within_the_bound_as_well() -> None:
    assert Backoff(60.0, 30.0).pause_s(1) == 30.0


def test_any_count_of_failures_has_a_pause() -> None:
    """2 to the power of a count would soon be no float."""
    assert Backoff(0.5, 30.0).pause_s(100_000) == 30.0
    patient = Backoff(1.0, 1e30)
    assert patient.pause_s(65) == patient.pause_s(66) == patient.pause_s(100_000) == 2.0**64
    assert patient.pause_s(64) == 2.0**63
