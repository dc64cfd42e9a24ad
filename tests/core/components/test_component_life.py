"""`core/endpoint/component_life.py`: which status follows from what is seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_components import chat, copy, failed, revision

from penstock.core.alarms.spec import ALARM, OK
from penstock.core.deployment.capacity_spec import ComponentSpec
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    DRAINING,
    FAILED,
    IN_SERVICE,
    LOADING,
    UNLOADING,
    UPDATING,
    CopyObserved,
    EndpointObserved,
    ForgetComponent,
    SetComponent,
    SlotFailure,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint import component_life as life
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.core.rollout.policy import ABORT, PROMOTE


def decided(
    component: ComponentSpec,
    *copies: CopyObserved,
    failures: tuple[SlotFailure, ...] = (),
    alarms: dict[str, str] | None = None,
    wall: float = 0.0,
    agreement: AgreementCounts | None = None,
) -> tuple[SetComponent | ForgetComponent, ...]:
    observed = EndpointObserved(copies=copies, failures=failures, alarms=alarms or {})
    done = life.roll_out(component, copies, now=0.0, agreement=agreement)
    return life.decide(component, done, observed, generation=1, spec=ReconcileSpec(), wall=wall)


def test_a_new_one_is_in_service_once_all_its_copies_are_ready() -> None:
    new = chat(2, CREATING)
    assert decided(new) == ()
    assert decided(new, copy(1), copy(2, 1, phase=LOADING)) == ()
    ready = SetComponent("chat", IN_SERVICE, 2, "copies-ready", "", 1)
    assert decided(new, copy(1), copy(2, 1)) == (ready,)


def test_one_of_no_copies_is_in_service_at_once() -> None:
    assert decided(chat(0, CREATING)) == (
        SetComponent("chat", IN_SERVICE, 0, "copies-ready", "", 1),
    )
    assert decided(chat(0, UPDATING)) == (
        SetComponent("chat", IN_SERVICE, 0, "counts-reached", "", 1),
    )


def test_a_new_one_fails_by_a_final_failure_of_one_of_its_copies_and_by_no_others() -> None:
    new = chat(2, CREATING)
    tries = (failed(count=2), failed(of="other/1"), replace(failed(), generation=2))
    assert decided(new, failures=tries) == ()
    later = replace(failed(1), message="the later one")
    assert decided(new, failures=(later, failed(0, at=4.0))) == (
        SetComponent("chat", FAILED, 2, "component-failed", "chat/1 can't be had.", 1),
    )
    assert decided(new, copy(1), failures=(failed(1, count=1, permanent=True),)) == (
        SetComponent("chat", FAILED, 2, "component-failed", "chat/1 can't be had.", 1),
    )
    # A slot that is served again has no failure that counts.
    assert decided(new, copy(1), failures=(failed(0),)) == ()


def test_an_instance_that_can_not_be_had_is_the_failure_of_a_copy_that_has_no_place() -> None:
    """Its own failures come first; one that is being loaded needs no other instance."""
    short = (failed(of=""),)
    assert decided(chat(2, CREATING), copy(1), failures=short) == (
        SetComponent("chat", FAILED, 2, "component-failed", "an instance can't be had.", 1),
    )
    assert decided(chat(2, CREATING), copy(1), copy(2, 1, phase=LOADING), failures=short) == ()
    leaves = copy(2, 1, phase=DRAINING)
    assert decided(chat(2, CREATING), copy(1), leaves, failures=short) != ()
    both = (failed(of="", at=1.0), failed(1, at=9.0))
    (action,) = decided(chat(2, CREATING), copy(1), failures=both)
    assert isinstance(action, SetComponent)
    assert action.failure_reason == "chat/1 can't be had."


def test_a_new_count_is_reached_or_out_of_reach_and_in_service_either_way() -> None:
    more = chat(2, UPDATING)
    assert decided(more, copy(1), copy(2, 1)) == (
        SetComponent("chat", IN_SERVICE, 2, "counts-reached", "", 1),
    )
    assert decided(more, copy(1), failures=(failed(1, permanent=True),)) == (
        SetComponent("chat", IN_SERVICE, 2, "counts-out-of-reach", "chat/1 can't be had.", 1),
    )
    fewer = chat(1, UPDATING)
    assert decided(fewer, copy(1), copy(2, 1, phase=DRAINING)) == (
        SetComponent("chat", IN_SERVICE, 1, "counts-reached", "", 1),
    )


def test_a_new_revision_serves_once_its_copies_are_ready() -> None:
    update = chat(1, UPDATING, target=revision(2))
    assert decided(update, copy(1)) == ()
    assert decided(update, copy(1), copy(2, of="chat/2")) == (
        SetComponent("chat", IN_SERVICE, 1, "revision-ready", "", 2),
    )


def test_a_new_revision_that_fails_leaves_the_former_one_and_its_story() -> None:
    update = chat(1, UPDATING, target=revision(2))
    assert decided(update, copy(1), failures=(failed(of="chat/2"),)) == (
        SetComponent(
            "chat", IN_SERVICE, 1, "revision-failed",
            "the update failed, the former specification serves on: chat/2 can't be had.", 1,
        ),
    )  # fmt: skip
    no_room = replace(failed(of="chat/2"), message="CapacityError: no room.")
    (action,) = decided(update, copy(1), failures=(no_room,))
    assert isinstance(action, SetComponent)
    assert action.failure_reason == "CapacityError: no room."
    # What the former one met before does not end the update.
    assert decided(update, failures=(failed(),)) == ()


def test_a_reason_is_cut_to_what_describe_may_say() -> None:
    long = replace(failed(), message="x" * 5000)
    (action,) = decided(chat(1, CREATING), failures=(long,))
    assert isinstance(action, SetComponent)
    assert len(action.failure_reason) == 1024


@pytest.mark.parametrize("status", [IN_SERVICE, FAILED])
def test_in_service_and_failed_stay_whatever_is_seen(status: str) -> None:
    assert decided(chat(2, status), copy(1), failures=(failed(1),)) == ()
    assert decided(chat(1, status), copy(1)) == ()


def test_one_that_goes_is_forgotten_once_no_copy_of_any_revision_is_left() -> None:
    going = chat(1, DELETING)
    for left in (copy(1), copy(1, of="chat/7", phase=UNLOADING)):
        assert decided(going, left) == ()
    assert decided(going, copy(1, of="other/1")) == (ForgetComponent("chat", "nothing-left"),)


NEW = replace(revision(2, batch=1), alarms=("errors", "slow"), expires=600.0)
GUARDED = replace(NEW, rang=())  #: it has had copies since, and no alarm rang before


def test_an_alarm_or_the_end_of_its_time_makes_both_revisions_change_places() -> None:
    component, copies = chat(2, UPDATING, target=GUARDED), (copy(1), copy(9, of="chat/2"))
    assert decided(component, *copies, alarms={"errors": OK}, wall=599.0) == ()
    rang = "the update went back: in ALARM: slow"
    assert decided(component, *copies, alarms={"slow": ALARM}) == (
        SetComponent("chat", UPDATING, 2, "goes-back", rang, goes_back=rang),
    )
    late = "the update went back: it was not done within MaximumExecutionTimeoutInSeconds"
    assert decided(component, *copies, wall=600.0) == (
        SetComponent("chat", UPDATING, 2, "goes-back", late, goes_back=late),
    )


def test_an_alarm_that_rang_before_its_first_copy_counts_once_it_has_been_quiet() -> None:
    """It is of the former revision, which the update may be to mend."""
    new, loading = chat(2, UPDATING, target=NEW), (copy(1), copy(9, of="chat/2", phase=LOADING))
    assert decided(new, *loading, alarms={"slow": ALARM}) == ()
    copies = (copy(1), copy(9, of="chat/2"))
    assert decided(new, *copies, alarms={"slow": ALARM}) == (
        SetComponent(
            "chat", UPDATING, 2, "alarms-watched", why="in ALARM since before it: slow",
            rang=("slow",),
        ),
    )  # fmt: skip
    rang = chat(2, UPDATING, target=replace(NEW, rang=("slow",)))
    assert decided(rang, *copies, alarms={"slow": ALARM}) == ()
    # Also where all its copies are gone and start again.
    assert decided(rang, *loading, alarms={"slow": ALARM}) == ()
    other = "the update went back: in ALARM: errors"
    assert decided(rang, *copies, alarms={"slow": ALARM, "errors": ALARM}) == (
        SetComponent("chat", UPDATING, 2, "goes-back", other, goes_back=other),
    )
    assert decided(rang, *copies, alarms={"slow": OK}) == (
        SetComponent("chat", UPDATING, 2, "alarms-quiet", rang=()),
    )
    again = "the update went back: in ALARM: slow"
    assert decided(chat(2, UPDATING, target=GUARDED), *loading, alarms={"slow": ALARM}) == (
        SetComponent("chat", UPDATING, 2, "goes-back", again, goes_back=again),
    )


def test_whether_an_alarm_rang_is_recorded_with_the_first_copy() -> None:
    copies = (copy(1), copy(9, of="chat/2"))
    assert decided(chat(2, UPDATING, target=NEW), *copies) == (
        SetComponent("chat", UPDATING, 2, "alarms-watched", rang=()),
    )
    assert decided(chat(2, UPDATING, target=replace(NEW, alarms=())), *copies) == ()


def test_the_way_back_is_over_when_all_former_copies_are_ready_and_is_not_turned_again() -> None:
    former = replace(revision(1), goes_back="it rang", alarms=("errors",))
    component = replace(chat(2, UPDATING, target=former), active=GUARDED)
    ringing = {"errors": ALARM}
    assert decided(component, copy(1), copy(9, of="chat/2"), alarms=ringing, wall=900.0) == ()
    assert decided(component, copy(1), copy(2, 1), alarms=ringing) == (
        SetComponent("chat", IN_SERVICE, 2, "back", "it rang", 1),
    )
    dead = failed(1, of="chat/1", permanent=True)
    (told,) = decided(component, copy(1), copy(9, of="chat/2"), failures=(dead,))
    assert isinstance(told, SetComponent)
    assert told.active_revision == 2
    assert "the new one serves on" in told.failure_reason


def test_without_batches_the_former_one_never_gave_anything_away() -> None:
    component = chat(2, UPDATING, target=replace(GUARDED, batch=0))
    assert decided(component, copy(1), copy(2, 1), wall=600.0) == (
        SetComponent(
            "chat", IN_SERVICE, 2, "back",
            "the update went back: it was not done within MaximumExecutionTimeoutInSeconds", 1,
        ),
    )  # fmt: skip


def test_a_new_count_of_one_that_came_back_says_nothing_of_the_way_back() -> None:
    back = replace(revision(1), goes_back="it rang")
    assert decided(chat(2, UPDATING, active=back), copy(1), copy(2, 1)) == (
        SetComponent("chat", IN_SERVICE, 2, "counts-reached", "", 1),
    )


HELD = replace(GUARDED, agreement=AgreementSpec(slower_max=0.0), rollout=7)


def test_answers_that_are_surely_worse_send_it_back_as_an_alarm_does() -> None:
    component, copies = chat(2, UPDATING, target=HELD), (copy(1), copy(9, of="chat/2"))
    assert decided(component, *copies, agreement=AgreementCounts(agree=10)) == ()
    worse = (
        "the update went back: 20 of 20 answers disagree (sure to 99.99% that it is above 1.00%)"
    )
    assert decided(component, *copies, agreement=AgreementCounts(differ=20)) == (
        SetComponent("chat", UPDATING, 2, "goes-back", worse, goes_back=worse),
    )
    promoted = chat(2, UPDATING, target=replace(HELD, order=PROMOTE))
    assert decided(promoted, *copies, agreement=AgreementCounts(differ=20)) == (
        SetComponent("chat", UPDATING, 2, "goes-back", worse, goes_back=worse),
    )


def test_answers_that_are_surely_as_good_let_it_take_over_and_say_so() -> None:
    component = chat(2, UPDATING, target=HELD)
    copies = (copy(1), copy(9, of="chat/2"), copy(10, 1, of="chat/2"))
    assert decided(component, *copies, agreement=AgreementCounts(agree=10)) == ()
    good = (
        "0 of 2000 answers disagree (sure to 99.99% that it is below 1.00%);"
        " the new model alone failed 0 of 2000 requests (sure to 99.99% that it is below 1.00%)"
    )
    assert decided(component, *copies, agreement=AgreementCounts(agree=2000)) == (
        SetComponent("chat", IN_SERVICE, 2, "agreed", "", 2, why=good),
    )


def test_what_is_never_sure_ends_with_its_time_or_by_an_operator() -> None:
    copies = (copy(1), copy(9, of="chat/2"))
    late = "the update went back: it was not done within MaximumExecutionTimeoutInSeconds"
    assert decided(chat(1, UPDATING, target=HELD), *copies, wall=600.0) == (
        SetComponent("chat", UPDATING, 1, "goes-back", late, goes_back=late),
    )
    ordered = "the update went back: an operator ordered it"
    assert decided(chat(1, UPDATING, target=replace(HELD, order=ABORT)), *copies) == (
        SetComponent("chat", UPDATING, 1, "goes-back", ordered, goes_back=ordered),
    )
    (done,) = decided(chat(1, UPDATING, target=replace(HELD, order=PROMOTE)), *copies)
    assert isinstance(done, SetComponent)
    assert (done.status, done.reason, done.active_revision) == (IN_SERVICE, "promoted", 2)
    assert done.why.startswith("not sure yet: 0 of 0 answers disagree")
