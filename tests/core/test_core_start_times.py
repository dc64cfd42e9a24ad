"""How soon a copy can be ready, by the starts that were seen."""

from __future__ import annotations

from penstock.core.start_times import KEPT, StartTimes


def test_nothing_is_known_before_a_start_was_seen() -> None:
    times = StartTimes()
    times.note("other", 3.0)
    assert times.ready_in_s("model", asked_at=[1.0], now=2.0) is None


def test_the_fastest_of_the_last_starts_counts() -> None:
    """The first took a download with it; the next need not."""
    times = StartTimes()
    for took_s in (30.0, 4.0, 5.0):
        times.note("model", took_s)
    assert times.ready_in_s("model", asked_at=(), now=100.0) == 4.0


def test_an_old_start_is_forgotten() -> None:
    times = StartTimes()
    times.note("model", 1.0)
    for _ in range(KEPT):
        assert times.fastest_s("model") == 1.0
        times.note("model", 9.0)
    assert times.fastest_s("model") == 9.0


def test_what_is_on_its_way_has_gone_a_part_of_it() -> None:
    times = StartTimes()
    times.note("model", 10.0)
    assert times.ready_in_s("model", asked_at=[97.0, 95.0], now=100.0) == 5.0
    assert times.ready_in_s("model", asked_at=[80.0], now=100.0) == 0.0, "late: any moment now"


def test_models_that_are_gone_are_forgotten() -> None:
    times = StartTimes()
    times.note("a", 1.0)
    times.note("b", 2.0)
    times.keep(["b"])
    assert (times.fastest_s("a"), times.fastest_s("b")) == (None, 2.0)
