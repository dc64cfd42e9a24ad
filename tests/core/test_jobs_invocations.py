"""What becomes of a body that was not answered: the whole table."""

from __future__ import annotations

import pytest

from penstock.core.blame.poison_requests import Past
from penstock.core.jobs.asynchronous_actions import bodies_at_once
from penstock.core.jobs.invocations import InvocationStep, Tries, when_failed, when_returned_to_job
from penstock.errors import CallerError, ModelError, NotNowError, PenstockError

FRESH = Tries()


@pytest.mark.parametrize("reason", ["copy-failed", "copy-closed", "unknown-copy", "draining"])
def test_a_copy_that_is_gone_takes_no_body_any_more(reason: str) -> None:
    assert when_returned_to_job(FRESH, reason, wait_s_max=600) == InvocationStep(
        "give-up", reason, FRESH
    )


def test_a_copy_that_starts_anew_is_waited_for_until_the_time_is_up() -> None:
    step = when_returned_to_job(FRESH, "copy-lost", wait_s_max=0.1)
    assert step == InvocationStep("wait", "copy-lost", Tries(waited_s=0.05))
    step = when_returned_to_job(step.tries, "worker-lost", wait_s_max=0.1)
    assert step.do == "wait"
    assert when_returned_to_job(step.tries, "copy-lost", wait_s_max=0.1).do == "give-up"


def test_a_body_whose_worker_died_is_computed_alone_and_refused_at_the_second_death() -> None:
    step = when_returned_to_job(FRESH, "worker-died", wait_s_max=600)
    assert step == InvocationStep("again", "worker-died", Tries(Past(deaths=1)))
    assert step.tries.alone
    assert when_returned_to_job(step.tries, "worker-died", wait_s_max=600).do == "refuse"


def test_a_part_of_a_body_that_died_is_blamed_for_the_next_death() -> None:
    suspect = Tries(Past(company_deaths=1))
    assert when_returned_to_job(suspect, "worker-died", wait_s_max=600).do == "refuse"


FOREIGN_500 = ModelError("model-answered-error", "the model answered 500", original_status=500)
TIMED_OUT = ModelError("invocation-timeout", "not within 600 s")


@pytest.mark.parametrize("error", [FOREIGN_500, TIMED_OUT])
def test_a_containers_own_failures_are_tried_again_as_often_as_the_job_says(
    error: PenstockError,
) -> None:
    step = when_failed(FRESH, error, retries_max=2, wait_s_max=600, batched=False)
    assert step == InvocationStep("again", error.code, Tries(failures=1))
    step = when_failed(step.tries, error, retries_max=2, wait_s_max=600, batched=False)
    assert step.do == "again"
    assert (
        when_failed(step.tries, error, retries_max=2, wait_s_max=600, batched=False).do == "refuse"
    )
    assert when_failed(FRESH, error, retries_max=0, wait_s_max=600, batched=False).do == "refuse"


@pytest.mark.parametrize("code", ["invocation-timeout", "model-timeout"])
def test_a_body_that_was_late_in_company_is_computed_alone_before_its_failures_count(
    code: str,
) -> None:
    late = ModelError(code, "not in time")
    step = when_failed(FRESH, late, retries_max=0, wait_s_max=600, batched=True)
    assert step == InvocationStep("again", "late-in-company", Tries(apart=True))
    assert step.tries.alone
    # what befalls it from then on is its own
    waited = when_returned_to_job(step.tries, "copy-lost", wait_s_max=600)
    died = when_returned_to_job(waited.tries, "worker-died", wait_s_max=600)
    assert died.tries == Tries(Past(deaths=1), apart=True)
    step = when_failed(step.tries, late, retries_max=1, wait_s_max=600, batched=True)
    assert step == InvocationStep("again", code, Tries(failures=1, apart=True))
    assert when_failed(step.tries, late, retries_max=1, wait_s_max=600, batched=True).do == "refuse"


@pytest.mark.parametrize(
    "error",
    [
        ModelError("model-answered-error", "the model answered 422", original_status=422),
        ModelError("model-answered-error", "the model answered 499", original_status=499),
        ModelError("model-failed", "ValueError: no such luck"),  # our worker: it would fail again
        CallerError("too-large", "413"),
    ],
)
def test_what_the_model_says_of_the_body_is_final(error: PenstockError) -> None:
    step = when_failed(FRESH, error, retries_max=3, wait_s_max=600, batched=True)
    assert step == InvocationStep("refuse", error.code, FRESH)


def test_want_of_room_is_waited_for() -> None:
    full = NotNowError("queue-full", "the model's queue is full")
    step = when_failed(FRESH, full, retries_max=3, wait_s_max=0.05, batched=True)
    assert step == InvocationStep("wait", "queue-full", Tries(waited_s=0.05))
    assert (
        when_failed(step.tries, full, retries_max=3, wait_s_max=0.05, batched=True).do == "give-up"
    )


@pytest.mark.parametrize(
    ("asked", "foreign", "lanes", "rows_max", "expected"),
    [
        (0, True, 1, 1, 1),  # a container that says nothing: AWS's rule
        (3, True, 1, 1, 3),
        (0, False, 1, 1, 2),  # our worker: one runs, one waits
        (0, False, 2, 8, 32),  # full batches on both lanes, and as many again
        (0, False, 2, 0, 4),  # no batches
        (5000, False, 1, 1, 1024),  # more would only wait
    ],
)
def test_how_many_bodies_are_asked_for_at_once(
    asked: int, foreign: bool, lanes: int, rows_max: int, expected: int
) -> None:
    found = bodies_at_once(
        asked, foreign=foreign, lanes=lanes, rows_max=rows_max, queue_rows_max=2048
    )
    assert found == expected


def test_a_copy_is_asked_no_more_than_its_queue_holds() -> None:
    found = bodies_at_once(50, foreign=False, lanes=1, rows_max=1, queue_rows_max=16)
    assert found == 16
