"""`core/deployment/slot_retries.py`: when a slot is tried again."""

from __future__ import annotations

from itertools import islice

from tests.kit.core_reconcile import failure

from penstock.core.backoff import Backoff
from penstock.core.deployment.slot_retries import (
    FreeSlot,
    ReconcileSpec,
    earliest,
    failure_count,
    free_slots,
    is_final,
    is_permanent,
)
from penstock.errors import CallerError, InternalError, ModelError, NotNowError

SPEC = ReconcileSpec()


def test_its_times_and_bounds_by_default() -> None:
    assert (
        ReconcileSpec(
            backoff=Backoff(0.5, 30.0),
            attempts_max=3,
            starting_max=16,
            stable_s=60.0,
            start_s_max=60.0,
            margin_s=10.0,
            gone_s_max=2.0,
            drain_s_max=490.0,
            drain_at_end_s_max=30.0,
        )
        == ReconcileSpec()
    )


def test_a_copy_that_was_stable_begins_its_failures_anew() -> None:
    assert failure_count(None, ready_s=0.0, spec=SPEC) == 1
    assert failure_count(failure(4), ready_s=59.9, spec=SPEC) == 5
    assert failure_count(failure(4), ready_s=60.0, spec=SPEC) == 1


def test_a_guest_that_was_ready_at_all_begins_its_count_anew() -> None:
    """What ends it is its work, and that is counted by its job."""
    assert failure_count(failure(4), ready_s=0.1, spec=SPEC, guest=True) == 1
    assert failure_count(failure(4), ready_s=0.0, spec=SPEC, guest=True) == 5


def test_the_third_failure_is_final_and_a_permanent_one_at_once() -> None:
    assert not is_final(failure(2), SPEC)
    assert is_final(failure(3), SPEC)
    assert is_final(failure(1, permanent=True), SPEC)


def test_what_the_caller_or_the_model_did_wrong_is_permanent_and_so_is_time_that_is_up() -> None:
    assert is_permanent(CallerError("model-file-broken", "cut short"))
    assert is_permanent(ModelError("load-failed", "no such layer"))
    assert is_permanent(NotNowError("download-timeout", "not here in time"))
    assert is_permanent(NotNowError("startup-timeout", "not up in time"))
    assert not is_permanent(NotNowError("download-failed", "the store does not answer"))
    assert not is_permanent(InternalError("internal", "a bug"))


def test_a_process_that_ends_while_it_loads_a_model_may_have_been_killed() -> None:
    assert not is_permanent(ModelError("worker-died", "the model's process was ended by SIGKILL"))


def test_the_lowest_free_slots_come_first_and_one_that_failed_says_when_it_is_due() -> None:
    failures = {1: failure(2, at=10.0), 7: failure(1)}
    assert list(free_slots(5, {0, 3}, failures, SPEC, missing=2)) == [
        FreeSlot(1, failed=True, due=11.0),
        FreeSlot(2, failed=False, due=None),
    ]
    assert list(free_slots(5, {0, 3}, {}, SPEC, missing=-1)) == []


def test_a_count_of_any_size_costs_what_is_asked_for() -> None:
    slots = free_slots(2**31 - 1, {0}, {}, SPEC, missing=2**31 - 2)
    assert [slot.ordinal for slot in islice(slots, 3)] == [1, 2, 3]


def test_the_earliest_deadline_counts() -> None:
    assert earliest(3.0, None, 2.0, 4.0) == 2.0
    assert earliest(None) is None
