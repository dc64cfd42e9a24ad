"""What past calls say of the next one."""

from __future__ import annotations

import pytest

from penstock.core.residency.history import CallHistory, Population


def called(*times: float, gap_s: float = 60.0) -> tuple[CallHistory, Population]:
    population = Population()
    population.gap_s = gap_s
    history = CallHistory()
    for at in times:
        history.called(at, population)
    population.gap_s = gap_s
    return history, population


def test_a_model_that_was_never_called_is_expected_later_than_any_average_one() -> None:
    history, population = called()
    assert history.expected_wait_s(100.0, population) == 120.0
    assert history.next_at() is None


def test_a_model_called_once_is_like_all_others_and_less_so_as_time_passes() -> None:
    history, population = called(100.0)
    assert history.expected_wait_s(100.0, population) == 60.0
    assert history.expected_wait_s(130.0, population) == 120.0


def test_irregular_calls_are_expected_at_their_rate_with_half_an_average_gap() -> None:
    history, population = called(0.0, 5.0, 100.0)
    # 100 s and half of 60 s, over two gaps and a half.
    assert history.expected_wait_s(100.0, population) == pytest.approx(130 / 2.5)
    assert history.next_at() is None


def test_a_rate_falls_by_itself_when_nobody_calls_any_more() -> None:
    history, population = called(0.0, 5.0, 100.0)
    waits = [history.expected_wait_s(at, population) for at in (100.0, 200.0, 400.0)]
    assert waits == sorted(waits)
    assert waits[2] == pytest.approx(430 / 2.5)


def test_only_the_last_eight_calls_count() -> None:
    old, _ = called(*[1000.0 + 2 * at for at in range(100)], 2000.0, 2007.0, 2100.0)
    assert len(old.times) == 8
    assert old.times[0] == 1190.0
    assert old.calls == 103


def test_a_burst_is_one_call() -> None:
    history, _ = called(0.0, 0.5, 1.4, 2.3, 10.0, 10.9)
    assert list(history.times) == [0.0, 10.0]
    assert history.last == 10.9
    assert history.calls == 6


def test_a_burst_ends_after_a_second_without_a_call() -> None:
    population = Population()
    history = CallHistory()
    begins = [history.called(at, population) for at in (0.0, 0.999, 1.999, 2.5)]
    assert begins == [True, False, True, False]


def test_regular_calls_are_expected_a_gap_after_the_last() -> None:
    history, population = called(0.0, 100.0, 200.0, 300.0)
    assert history.period_s == 100.0
    assert history.next_at() == 400.0
    assert history.expected_wait_s(310.0, population) == 90.0
    assert history.expected_wait_s(340.0, population) == 60.0


def test_three_gaps_are_needed_to_call_them_regular() -> None:
    history, _ = called(0.0, 100.0, 200.0)
    assert history.next_at() is None


@pytest.mark.parametrize(("last", "regular"), [(360.0, True), (365.0, False)])
def test_gaps_are_alike_within_a_quarter(last: float, regular: bool) -> None:
    history, _ = called(0.0, 100.0, 200.0, last)
    assert (history.next_at() is not None) is regular


def test_a_call_that_is_due_is_near_but_not_at_hand() -> None:
    history, population = called(0.0, 160.0, 320.0, 480.0)
    assert history.expected_wait_s(639.0, population) == 10.0
    assert history.expected_wait_s(719.0, population) == 10.0, "late by less than half a gap"


def test_a_regular_call_that_did_not_come_is_not_expected_any_more() -> None:
    history, population = called(0.0, 160.0, 320.0, 480.0)
    # 720 s and half of 60 s, over three gaps and a half.
    assert history.expected_wait_s(720.0, population) == pytest.approx(750 / 3.5)


def test_a_wait_is_never_below_a_second_s_share() -> None:
    history, population = called(0.0, gap_s=0.0)
    assert history.expected_wait_s(0.0, population) == 2.0


def test_the_average_gap_is_learned_from_all_models() -> None:
    population = Population()
    one, other = CallHistory(), CallHistory()
    one.called(0.0, population)
    other.called(50.0, population)
    assert population.gap_s == 60.0
    one.called(124.0, population)
    assert population.gap_s == 61.0


def test_a_gap_is_from_the_call_before_to_this_one() -> None:
    population = Population()
    history = CallHistory()
    for at in (0.0, 64.0, 192.0):
        history.called(at, population)
    # 60, then a sixty-fourth of the way to 64, then of the way to 128.
    assert population.gap_s == 60.0625 + (128.0 - 60.0625) / 64


def test_a_call_out_of_turn_ends_what_was_regular() -> None:
    history, _ = called(0.0, 100.0, 200.0, 300.0, 310.0)
    assert history.next_at() is None


def test_a_quarter_s_spread_is_still_alike() -> None:
    history, _ = called(0.0, 75.0, 200.0, 275.0, 400.0)
    assert history.next_at() == 500.0
