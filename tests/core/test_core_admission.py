"""Admission: who is refused at once, why, and when he may come again.

What it is told are whole microseconds: a run's time, and what of it one request kept a lane busy.
"""

from __future__ import annotations

import pytest

from penstock.core.deployment.deployment import EndpointRoutes, VariantRoutes
from penstock.core.request.admission import (
    Admission,
    AdmissionSpec,
    Refusal,
    admission_spec,
    rows_together,
)
from penstock.errors import CallerError

SECOND = 1_000_000


def learned(spec: AdmissionSpec, *, run_s: float, rows: int) -> Admission:
    """An admission that has seen one answer, of a run with as many requests of a row each."""
    admission = Admission(spec)
    run_us = int(run_s * SECOND)
    admission.observe(run_us, rows, run_us // rows, 0.0)
    return admission


def wait_s(admission: Admission, *, outstanding: int, lanes: int) -> float:
    """Forecast for one more: what a bound of no wait at all is exceeded by."""
    admission.revise(AdmissionSpec(100_000, 0.0, shares_runs=False))
    refusal = admission.admit(outstanding=outstanding, lanes=lanes, deadline=None, now=0.0)
    assert refusal is not None
    assert refusal.reason == "queue-wait-limit"
    assert refusal.retry_after_s is not None
    return refusal.retry_after_s


def test_within_its_limit_everything_comes_in() -> None:
    admission = Admission(AdmissionSpec(in_flight_max=2))
    assert admission.admit(outstanding=0, lanes=1, deadline=None, now=0.0) is None
    assert admission.admit(outstanding=1, lanes=1, deadline=None, now=0.0) is None


def test_beyond_its_limit_nothing_comes_in() -> None:
    admission = Admission(AdmissionSpec(in_flight_max=2))
    assert admission.admit(outstanding=2, lanes=1, deadline=None, now=0.0) == Refusal(
        "in-flight-limit", 1.0
    )


def test_a_learned_service_time_says_when_to_come_again() -> None:
    """100 requests of 0.5 s on 5 lanes are 10 s of work; half of it is done in 5 s."""
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=0.5, rows=1)
    assert admission.admit(outstanding=100, lanes=5, deadline=None, now=0.0) == Refusal(
        "in-flight-limit", 5.0
    )
    quick = learned(AdmissionSpec(in_flight_max=2), run_s=0.001, rows=1)
    assert quick.admit(outstanding=2, lanes=2, deadline=None, now=0.0) == Refusal(
        "in-flight-limit", 0.05
    )
    assert quick.admit(outstanding=2, lanes=1, deadline=None, now=0.0) == Refusal(
        "in-flight-limit", 0.05
    )
    assert quick.admit(outstanding=2, lanes=0, deadline=None, now=0.0) == Refusal(
        "in-flight-limit", 1.0
    )


def test_what_is_dead_on_arrival_is_refused_for_good() -> None:
    admission = Admission(AdmissionSpec(in_flight_max=2))
    assert admission.admit(outstanding=0, lanes=1, deadline=5.0, now=5.0) == Refusal(
        "deadline-passed", None
    )


def test_a_deadline_that_the_queue_cannot_meet_is_refused_at_once() -> None:
    """Runs of 1.0 s for 4 rows: 9 outstanding on 1 lane are 9 * 0.25 s before the run of 1.0 s."""
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=1.0, rows=4)
    assert admission.admit(outstanding=9, lanes=1, deadline=13.25, now=10.0) is None
    assert admission.admit(outstanding=9, lanes=1, deadline=13.0, now=10.0) == Refusal(
        "deadline-cannot-be-met", 0.25
    )
    assert admission.admit(outstanding=9, lanes=3, deadline=13.0, now=10.0) is None


def test_a_bound_on_waiting_holds_without_a_deadline() -> None:
    spec = AdmissionSpec(in_flight_max=100, queue_wait_s_max=2.0)
    admission = learned(spec, run_s=0.5, rows=1)
    assert admission.admit(outstanding=4, lanes=1, deadline=None, now=0.0) is None
    assert admission.admit(outstanding=6, lanes=1, deadline=None, now=0.0) == Refusal(
        "queue-wait-limit", 1.0
    )


def test_a_forecast_never_refuses_while_a_lane_is_idle() -> None:
    """One slow start must not shut the door for good: only new runs can correct the forecast."""
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=30.0, rows=1)
    assert admission.admit(outstanding=1, lanes=2, deadline=11.0, now=10.0) is None
    assert admission.admit(outstanding=2, lanes=2, deadline=11.0, now=10.0) == Refusal(
        "deadline-cannot-be-met", 44.0
    )


def test_without_observations_or_lanes_nothing_is_forecast() -> None:
    admission = Admission(AdmissionSpec(in_flight_max=100))
    assert admission.admit(outstanding=50, lanes=1, deadline=10.5, now=10.0) is None
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=30.0, rows=1)
    assert admission.admit(outstanding=50, lanes=0, deadline=10.5, now=10.0) is None


def test_before_an_answer_came_no_run_time_is_shown() -> None:
    assert Admission(AdmissionSpec(in_flight_max=100, queue_wait_s_max=2.0)).snapshot() == {
        "in_flight_max": 100,
        "queue_wait_s_max": 2.0,
        "run_s": 0.0,
        "lane_s": 0.0,
    }


def test_run_times_are_gathered_for_a_tenth_of_a_second_and_then_averaged() -> None:
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=1.0, rows=4)
    admission.observe(2 * SECOND, 8, 250_000, 0.03125)
    admission.observe(4 * SECOND, 8, 500_000, 0.0625)
    assert admission.snapshot()["run_s"] == 1.0
    admission.observe(6 * SECOND, 8, 750_000, 0.125)
    # The three took 4 s, and of a lane half a second each: a quarter of the way from 1 s to 4 s for
    # a run, and one part in 64 of the way from 0.25 s to 0.5 s for a request.
    assert admission.snapshot() == {
        "in_flight_max": 100,
        "queue_wait_s_max": None,
        "run_s": 1.75,
        "lane_s": 0.25390625,
    }
    admission.check_invariants()


def test_a_better_rate_is_believed_at_once() -> None:
    """Batches grow with the queue: the best rate seen lately is what a longer queue would get."""
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=1.0, rows=1)
    admission.observe(2 * SECOND, 8, 250_000, 1.0)
    assert admission.snapshot()["run_s"] == 1.25
    assert admission.snapshot()["lane_s"] == admission.lane_s == 0.25


# What the forecast says of models of each kind, and what is true of them.


def test_requests_of_many_rows_wait_for_all_rows_of_those_before_them() -> None:
    """A lane runs 8 rows a second; a request has 8. The tenth waits nine seconds, not nine eighths.

    The forecast is about requests: what a row took says nothing where a request has many.
    """
    admission = Admission(AdmissionSpec(100))
    admission.observe(SECOND, 8, SECOND, 0.0)
    assert wait_s(admission, outstanding=9, lanes=1) == 9.0


def test_of_mixed_requests_each_answer_tells_its_own_share_of_the_run() -> None:
    """Batches of one request of 6 rows and two of 1 row take a second: three requests a second."""
    admission = Admission(AdmissionSpec(100))
    for batch in range(4):
        for lane_us in (750_000, 125_000, 125_000):
            admission.observe(SECOND, 8, lane_us, 0.025 * batch)
    admission.observe(SECOND, 8, 333_333, 0.125)
    assert admission.lane_s == pytest.approx(1 / 3)


def test_a_few_small_requests_do_not_make_large_ones_fast() -> None:
    """A row takes a tenth of a second; requests of one row and of nine come in turn. That a small
    one was the last to be answered says nothing of those that wait: their mean is five rows."""
    admission = Admission(AdmissionSpec(100))
    for at in range(16):
        admission.observe(900_000, 9, 900_000, 2.0 * at)
        admission.observe(100_000, 1, 100_000, 2.0 * at + 1.0)
    assert admission.lane_s == pytest.approx(0.5)


def test_a_run_of_no_rows_counts_as_one_row() -> None:
    """An instance may say so of an answer without tensors: it must not end the gateway's sums."""
    admission = Admission(AdmissionSpec(in_flight_max=100))
    admission.observe(500_000, 0, 500_000, 0.0)
    assert (admission.snapshot()["run_s"], admission.lane_s) == (0.5, 0.5)
    admission.observe(1_500_000, 0, 1_500_000, 1.0)
    assert (admission.snapshot()["run_s"], admission.lane_s) == (0.75, 0.515625)
    admission.check_invariants()


def test_a_run_that_took_no_time_tells_nothing() -> None:
    admission = Admission(AdmissionSpec(in_flight_max=100))
    admission.observe(0, 1, 0, 0.0)
    assert admission.lane_s == 0.0
    admission.observe(SECOND, 4, 250_000, 1.0)
    assert admission.lane_s == 0.25


def engine(answers: list[tuple[float, float]]) -> Admission:
    """An admission in front of an engine; (when an answer ended, s in its slot)."""
    admission = Admission(AdmissionSpec(100, shares_runs=False))
    for now, slot_s in answers:
        admission.observe(int(slot_s * SECOND), 8, int(slot_s * SECOND), now)
    return admission


def test_an_engine_with_eight_sequences_lets_the_next_begin_when_one_ends() -> None:
    """Eight slots, answers of 4 s: one ends each half second. Of 16 outstanding 8 wait, and one
    more begins when nine have ended: after 4.5 s. That eight ran beside it makes none shorter."""
    assert wait_s(engine([(0.5 * at, 4.0) for at in range(8)]), outstanding=16, lanes=8) == 4.5


def test_one_short_answer_does_not_make_an_engine_fast() -> None:
    """Each answer is as long as was asked for: their mean counts, the best says nothing."""
    answers = [(1.0 * at, 4.0) for at in range(31)]
    assert engine([*answers, (31.0, 0.0)]).lane_s == pytest.approx(4 * 31 / 32)
    assert engine([(1.0, 0.5), (2.0, 3.5)]).lane_s == 2.0


def test_an_engine_that_became_slower_is_followed_within_its_next_answers() -> None:
    """Alone an answer took 1 s, beside seven others 4 s: half of the way after 22 answers."""
    slower = [(100.0 + at, 4.0) for at in range(22)]
    lane_s = engine([(1.0 * at, 1.0) for at in range(32)] + slower).lane_s
    assert lane_s == pytest.approx(4 - 3 * (31 / 32) ** 22)


def test_many_answers_at_once_are_a_mean_of_their_own() -> None:
    admission = engine([(0.0, 1.0)])
    for _ in range(99):
        admission.observe(3 * SECOND, 8, 3 * SECOND, 0.05)
    admission.observe(3 * SECOND, 8, 3 * SECOND, 0.2)
    assert admission.lane_s == 3.0
    admission.check_invariants()


@pytest.mark.parametrize("shares_runs", [True, False])
def test_copies_of_different_speed_answer_together_what_lanes_over_the_mean_say(
    shares_runs: bool,
) -> None:
    """A copy of 10 ms and one of 30 ms answer 133 a second together: in 60 ms 6 and 2."""
    admission = Admission(AdmissionSpec(100, shares_runs=shares_runs))
    for at in range(401):
        now = at * 0.06
        for _ in range(6):
            admission.observe(10_000, 1, 10_000, now)
        for _ in range(2):
            admission.observe(30_000, 1, 30_000, now)
    assert 2 / admission.lane_s == pytest.approx(400 / 3, rel=0.1)


def test_lanes_of_one_copy_are_workers_each_with_a_request() -> None:
    """Four workers, half a second each: of 12 outstanding 8 wait, one more for 9 / 4 halves."""
    admission = engine([(0.5, 0.5)] * 4)
    assert wait_s(admission, outstanding=12, lanes=4) == 1.125


def test_a_forecast_is_none_where_a_lane_is_idle_that_the_request_may_go_to() -> None:
    """Others, which it may not go to, have a queue; that the endpoint is full holds for all."""
    admission = Admission(AdmissionSpec(100))
    for reason in ("queue-wait-limit", "deadline-cannot-be-met"):
        assert not admission.stands(Refusal(reason, 1.0), may_begin=True)
        assert admission.stands(Refusal(reason, 1.0), may_begin=False)
    for reason in ("in-flight-limit", "deadline-passed"):
        assert admission.stands(Refusal(reason, None), may_begin=True)


@pytest.mark.parametrize(
    ("model", "rows"),
    [
        ({"lane_rows_max": 1, "rows_max": 16}, 1),  # texts that join a decode batch one by one
        ({"rows_max": 8}, 8),
        ({"rows_max": 0}, 1),
        ({"rows_max": "8"}, 1),
        ({}, 1),
    ],
)
def test_rows_that_run_together_are_as_the_copy_says(model: dict[str, object], rows: int) -> None:
    assert rows_together(model) == rows


def test_wrong_settings_name_their_key() -> None:
    with pytest.raises(CallerError, match="in_flight_max is 0; allowed"):
        AdmissionSpec(in_flight_max=0)
    with pytest.raises(CallerError, match="queue_wait_s_max is -1"):
        AdmissionSpec(in_flight_max=1, queue_wait_s_max=-1)
    assert AdmissionSpec(in_flight_max=1, queue_wait_s_max=0.0).queue_wait_s_max == 0.0


def routes(*bounds: float | None, rows_max: int = 4) -> EndpointRoutes:
    return EndpointRoutes(
        endpoint="e",
        variants=tuple(
            VariantRoutes(
                name=f"v{number}",
                weight=1.0,
                strategy="RANDOM",
                copies=(),
                model={"batching": {"queue_wait_s_max": bound}, "rows_max": rows_max},
            )
            for number, bound in enumerate(bounds)
        ),
    )


def test_a_stall_counts_as_four_times_the_run_time_and_four_folds_of_it_are_believed() -> None:
    """All runs of a tenth of a second were held up: a deadline that can be met is not refused."""
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=1.0, rows=1)
    seen = []
    for fold in range(1, 5):
        admission.observe(100 * SECOND, 1, 100 * SECOND, now=float(fold))
        seen.append(admission.snapshot()["run_s"])
    assert seen == [1.75, 3.0625, 5.359375, 100.0]


def test_how_long_answers_of_an_engine_take_is_no_outlier() -> None:
    """A slot's time is as different as answers are long: the mean needs the long ones whole."""
    spec = AdmissionSpec(in_flight_max=100, shares_runs=False)
    admission = learned(spec, run_s=1.0, rows=1)
    admission.observe(99 * SECOND, 1, 99 * SECOND, now=1.0)
    assert (admission.snapshot()["run_s"], admission.lane_s) == (50.0, 50.0)


def test_the_bound_on_waiting_is_the_loosest_of_all_variants() -> None:
    """A request is admitted before its variant is drawn."""
    assert admission_spec(routes(0.5)) == AdmissionSpec(queue_wait_s_max=0.5)
    assert admission_spec(routes(0.5, 2)) == AdmissionSpec(queue_wait_s_max=2.0)
    assert admission_spec(routes(0.5, None)) == AdmissionSpec()
    assert admission_spec(routes()) == AdmissionSpec(shares_runs=False)


def test_a_model_that_takes_one_row_has_a_lane_for_each_request() -> None:
    spec = admission_spec(routes(0.5, 2, rows_max=1))
    assert spec == AdmissionSpec(queue_wait_s_max=2.0, shares_runs=False)


def test_new_bounds_hold_at_once_and_keep_what_was_learned() -> None:
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=1.0, rows=1)
    assert admission.admit(outstanding=3, lanes=1, deadline=None, now=0.0) is None
    admission.revise(AdmissionSpec(in_flight_max=100, queue_wait_s_max=2.0))
    assert admission.admit(outstanding=3, lanes=1, deadline=None, now=0.0) == Refusal(
        "queue-wait-limit", 1.0
    )
    admission.revise(AdmissionSpec(in_flight_max=3))
    assert admission.admit(outstanding=3, lanes=1, deadline=None, now=0.0) == Refusal(
        "in-flight-limit", 1.5
    )
