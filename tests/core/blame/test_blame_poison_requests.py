"""When a request is blamed for the workers that died under it, and what it is told."""

from __future__ import annotations

import pytest

from penstock.core.blame.poison_requests import (
    FRESH,
    SUSPECTED,
    Past,
    died_of_it,
    reason_of_death,
)

#: What a request comes back with, return by return, until it is blamed at the last one.
BLAMED: dict[str, list[str]] = {
    "two workers died under it": ["worker-died", "worker-died"],
    "one of a batch, then by itself": ["worker-died-in-company", "worker-died"],
    "by itself, then in company": ["worker-died", "worker-died-in-company"],
    "always in company, never the only suspect: four are enough": ["worker-died-in-company"] * 4,
    "an instance was lost in between": ["worker-died", "connection-lost", "worker-died"],
}

#: Reasons that say nothing of a request, however often.
NOTHING_OF_IT = (
    "connection-lost", "instance-silent", "copy-lost", "copy-failed", "copy-closed", "draining",
    "unknown-copy", "worker-lost", "another-is-tried-alone", "a reason of a later version",
)  # fmt: skip


@pytest.mark.parametrize("story", BLAMED)
def test_a_request_is_blamed_at_the_second_death_or_the_fourth_in_company(story: str) -> None:
    past, blamed = FRESH, []
    for reason in BLAMED[story]:
        past = past.after(reason)
        blamed.append(past.blamed)
    assert blamed == [False] * (len(blamed) - 1) + [True]


@pytest.mark.parametrize("reason", NOTHING_OF_IT)
def test_what_had_not_begun_and_instances_that_are_lost_blame_nobody(reason: str) -> None:
    past = FRESH
    for _ in range(9):
        past = past.after(reason)
    assert (past.blamed, past.alone) == (False, False)


def test_losses_of_instances_are_counted_and_the_rest_is_not() -> None:
    past = FRESH
    for reason in NOTHING_OF_IT:
        past = past.after(reason)
    assert past == Past(losses=2)


def test_a_request_whose_worker_died_is_computed_alone_from_then_on() -> None:
    assert not FRESH.alone
    for reason in ("worker-died", "worker-died-in-company"):
        assert FRESH.after(reason).alone
        assert FRESH.after(reason).after("copy-lost").alone


def test_a_suspect_is_computed_alone_and_blamed_for_the_next_death() -> None:
    assert SUSPECTED.alone
    assert not SUSPECTED.blamed
    assert SUSPECTED.after("worker-died").blamed


def test_a_death_is_that_of_a_request_that_was_there_alone_or_the_only_suspect() -> None:
    assert reason_of_death(0) == "worker-died"
    assert reason_of_death(7) == "worker-died-in-company"
    assert reason_of_death(7, alone=True) == "worker-died"


#: Who is poison, of a batch of eight; the rule must find them and nobody else.
@pytest.mark.parametrize("poison", [{0}, {7}, {2, 3}, set(range(8)), set()])
def test_of_a_poisoned_batch_only_the_poison_is_blamed(poison: set[int]) -> None:
    """Plays a copy of two workers: each takes what is sent as one batch, or alone."""
    deaths = 0
    past = {request: FRESH for request in range(8)}
    waiting = [list(range(8))]
    answered: set[int] = set()
    while waiting:
        batch = waiting.pop(0)
        if not poison & set(batch):
            answered |= set(batch)
            continue
        deaths += 1
        for request in batch:
            past[request] = past[request].after(reason_of_death(len(batch) - 1))
            if not past[request].blamed:
                assert past[request].alone
                waiting.append([request])
    assert {request for request in range(8) if past[request].blamed} == poison
    assert answered == set(range(8)) - poison
    assert deaths == (1 + len(poison) if poison else 0)


def test_the_error_counts_the_deaths_and_says_whose_failure_it_is() -> None:
    error = died_of_it(Past(deaths=1, company_deaths=2, losses=5))
    assert (error.family, error.code) == ("model", "model-worker-died")
    assert error.message == "The model's process ended on this request, 3 times."
    assert error.hint == "Look into the endpoint's log."
    assert error.original_message.startswith("the model's process ended while it had this request")
