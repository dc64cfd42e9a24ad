"""Admission: who is refused at once, why, and when he may come again."""

from __future__ import annotations

import pytest

from penstock.core.admission import Admission, AdmissionSpec, Refusal, admission_spec
from penstock.core.deployment import EndpointRoutes, VariantRoutes
from penstock.errors import CallerError


def learned(spec: AdmissionSpec, *, run_s: float, rows: int) -> Admission:
    """An admission that has seen one batch."""
    admission = Admission(spec)
    admission.observe(run_s, rows, 0.0)
    return admission


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
        "row_s": 0.0,
    }


def test_run_times_are_gathered_for_a_tenth_of_a_second_and_then_averaged() -> None:
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=1.0, rows=4)
    admission.observe(2.0, 8, 0.03125)
    admission.observe(4.0, 8, 0.0625)
    assert admission.snapshot()["run_s"] == 1.0
    admission.observe(6.0, 8, 0.125)
    # The three took 4 s for 8 rows on average: a quarter of the way from 1 s to 4 s for a run, and
    # one part in 64 of the way from 0.25 s to 0.5 s for a row.
    assert admission.snapshot() == {
        "in_flight_max": 100,
        "queue_wait_s_max": None,
        "run_s": 1.75,
        "row_s": 0.25390625,
    }
    admission.check_invariants()


def test_a_run_of_no_rows_counts_as_one_row() -> None:
    """An instance may say so of an answer without tensors: it must not end the gateway's sums."""
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=0.5, rows=0)
    assert (admission.snapshot()["run_s"], admission.snapshot()["row_s"]) == (0.5, 0.5)
    admission.observe(1.5, 0, 1.0)
    assert (admission.snapshot()["run_s"], admission.snapshot()["row_s"]) == (0.75, 0.515625)


def test_a_better_rate_per_row_is_believed_at_once() -> None:
    """Batches grow with the queue: the best rate seen lately is what a longer queue would get."""
    admission = learned(AdmissionSpec(in_flight_max=100), run_s=1.0, rows=1)
    admission.observe(2.0, 8, 1.0)
    assert admission.snapshot()["run_s"] == 1.25
    assert admission.snapshot()["row_s"] == 0.25


def test_wrong_settings_name_their_key() -> None:
    with pytest.raises(CallerError, match="in_flight_max is 0; allowed"):
        AdmissionSpec(in_flight_max=0)
    with pytest.raises(CallerError, match="queue_wait_s_max is -1"):
        AdmissionSpec(in_flight_max=1, queue_wait_s_max=-1)
    assert AdmissionSpec(in_flight_max=1, queue_wait_s_max=0.0).queue_wait_s_max == 0.0


def routes(*bounds: float | None) -> EndpointRoutes:
    return EndpointRoutes(
        endpoint="e",
        variants=tuple(
            VariantRoutes(
                name=f"v{number}",
                weight=1.0,
                strategy="RANDOM",
                copies=(),
                model={"batching": {"queue_wait_s_max": bound}},
            )
            for number, bound in enumerate(bounds)
        ),
    )


def test_the_bound_on_waiting_is_the_loosest_of_all_variants() -> None:
    """A request is admitted before its variant is drawn."""
    assert admission_spec(routes(0.5), in_flight_max=9) == AdmissionSpec(9, 0.5)
    assert admission_spec(routes(0.5, 2), in_flight_max=9) == AdmissionSpec(9, 2.0)
    assert admission_spec(routes(0.5, None), in_flight_max=9) == AdmissionSpec(9, None)
    assert admission_spec(routes(), in_flight_max=9) == AdmissionSpec(9, None)


def test_new_bounds_hold_at_once_and_keep_what_was_learned() -> None:
    admission = Admission(AdmissionSpec(in_flight_max=100))
    admission.observe(1.0, 1, 0.0)
    assert admission.admit(outstanding=3, lanes=1, deadline=None, now=0.0) is None
    admission.revise(AdmissionSpec(in_flight_max=100, queue_wait_s_max=2.0))
    assert admission.admit(outstanding=3, lanes=1, deadline=None, now=0.0) == Refusal(
        "queue-wait-limit", 1.0
    )
    admission.revise(AdmissionSpec(in_flight_max=3))
    assert admission.admit(outstanding=3, lanes=1, deadline=None, now=0.0) == Refusal(
        "in-flight-limit", 1.5
    )
