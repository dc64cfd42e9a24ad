"""`core/endpoint/component_life.py`: how many copies of each revision there should be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_components import chat, copy, revision

from penstock.core.deployment.capacity_spec import ComponentSpec, component_of, copies_name
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    FAILED,
    LOADING,
    UPDATING,
    CopyObserved,
)
from penstock.core.endpoint.component_life import roll_out
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.core.rollout.policy import ABORT, PAUSE, PROMOTE

#: What is surely as good, surely worse, and neither.
GOOD, WORSE = AgreementCounts(agree=2000), AgreementCounts(differ=20)
OPEN = AgreementCounts(agree=10)


def desired(
    component: ComponentSpec,
    *copies: CopyObserved,
    now: float = 0.0,
    agreement: AgreementCounts | None = None,
) -> dict[str, int]:
    decision = roll_out(component, copies, now=now, agreement=agreement)
    return {one.name: one.copies for one in decision.specs}


def olds(count: int) -> list[CopyObserved]:
    return [copy(number, number) for number in range(count)]


def news(count: int, *, since: float = 0.0) -> list[CopyObserved]:
    return [copy(100 + at, at, of="chat/2", since=since) for at in range(count)]


def test_copies_of_a_revision_bear_its_number_and_the_component_is_read_from_it() -> None:
    assert copies_name("chat", 2) == "chat/2"
    assert component_of("chat/2") == "chat"
    assert component_of("blue") == ""


def test_without_an_update_there_is_one_revision_with_the_desired_copies() -> None:
    (desired,) = roll_out(chat(2, CREATING), [], now=0.0).specs
    assert (desired.name, desired.copies, desired.told) == ("chat/1", 2, "chat")
    assert (desired.download_timeout_s, desired.startup_timeout_s) == (100.0, 50.0)
    assert not roll_out(chat(2, CREATING), olds(1), now=0.0).complete
    assert roll_out(chat(2, CREATING), olds(2), now=0.0).complete
    assert roll_out(chat(0), [], now=0.0).complete


def test_copies_of_other_components_and_variants_are_not_its_own() -> None:
    other = copy(9, of="other/1")
    assert not roll_out(chat(1), [other], now=0.0).complete
    elsewhere = replace(copy(9), variant="green")
    assert not roll_out(chat(1), [elsewhere], now=0.0).complete


@pytest.mark.parametrize("status", [FAILED, DELETING])
def test_one_that_failed_or_goes_has_no_copies(status: str) -> None:
    component = chat(2, status, target=revision(2))
    assert desired(component, *olds(2)) == {"chat/1": 0, "chat/2": 0}
    assert not roll_out(component, olds(2), now=0.0).complete


def test_all_at_once_the_old_copies_stay_until_every_new_one_is_ready() -> None:
    component = chat(2, UPDATING, target=revision(2))
    assert desired(component, *olds(2)) == {"chat/1": 2, "chat/2": 2}
    half = [*olds(2), *news(1), copy(9, 1, of="chat/2", phase=LOADING)]
    assert desired(component, *half) == {"chat/1": 2, "chat/2": 2}
    assert not roll_out(component, half, now=0.0).complete
    assert roll_out(component, [*olds(2), *news(2)], now=0.0).complete


def test_an_old_copy_that_ends_during_an_update_is_not_replaced() -> None:
    """A server that was started again goes straight to the new revision."""
    component = chat(3, UPDATING, target=revision(2))
    assert desired(component, *olds(1)) == {"chat/1": 1, "chat/2": 3}
    assert desired(component) == {"chat/1": 0, "chat/2": 3}


def test_batch_by_batch_new_copies_come_old_ones_go_and_then_the_next_begin() -> None:
    component = chat(5, UPDATING, target=revision(2, batch=2))
    assert desired(component, *olds(5)) == {"chat/1": 5, "chat/2": 2}
    assert desired(component, *olds(5), *news(1)) == {"chat/1": 5, "chat/2": 2}
    assert desired(component, *olds(5), *news(2)) == {"chat/1": 3, "chat/2": 4}
    assert desired(component, *olds(3), *news(4)) == {"chat/1": 1, "chat/2": 5}
    last = roll_out(component, [*olds(1), *news(5)], now=0.0)
    assert [one.copies for one in last.specs] == [1, 5]
    assert last.complete


def test_between_two_batches_there_is_a_pause_and_after_the_last_one_as_well() -> None:
    component = chat(2, UPDATING, target=revision(2, batch=1, batch_wait_s=30.0))
    assert roll_out(component, olds(2), now=0.0).next_deadline is None
    first = roll_out(component, [*olds(2), *news(1, since=10.0)], now=39.0)
    assert [one.copies for one in first.specs] == [1, 1]
    assert first.next_deadline == 40.0
    second = roll_out(component, [*olds(1), *news(1, since=10.0)], now=40.0)
    assert [one.copies for one in second.specs] == [1, 2]
    baking = roll_out(component, [*olds(1), *news(2, since=50.0)], now=79.0)
    assert (baking.complete, baking.next_deadline) == (False, 80.0)
    assert roll_out(component, news(2, since=50.0), now=80.0).complete
    # The pause begins with the last of them.
    apart = [*news(1, since=10.0), copy(9, 1, of="chat/2", since=50.0)]
    assert roll_out(component, apart, now=79.0).next_deadline == 80.0


def test_on_the_way_back_former_copies_come_again_and_what_serves_stays_until_then() -> None:
    """Two of five were replaced; all at once, or one by one."""
    for batch, wanted in ((0, {"chat/2": 2, "chat/1": 5}), (1, {"chat/2": 2, "chat/1": 4})):
        former = replace(revision(1, batch=batch), goes_back="it rang")
        component = replace(chat(5, UPDATING, target=former), active=revision(2, batch=2))
        assert desired(component, *olds(3), *news(2)) == wanted
        assert roll_out(component, [*olds(5), *news(2)], now=0.0).complete


def test_copies_of_the_next_batch_that_are_ready_one_by_one_begin_no_pause_of_their_own() -> None:
    """Else the batch would be taken back whenever one of its copies was ready before the others."""
    component = chat(4, UPDATING, target=revision(2, batch=2, batch_wait_s=30.0))
    first = news(2, since=10.0)
    assert desired(component, *olds(2), *first, now=40.0) == {"chat/1": 2, "chat/2": 4}
    third = [copy(200, 2, of="chat/2", since=45.0), copy(201, 3, of="chat/2", phase=LOADING)]
    assert desired(component, *olds(2), *first, *third, now=46.0) == {"chat/1": 2, "chat/2": 4}


def test_a_batch_larger_than_all_is_followed_by_a_pause_as_any_last_one() -> None:
    component = chat(2, UPDATING, target=revision(2, batch=9, batch_wait_s=30.0))
    assert desired(component, *olds(2)) == {"chat/1": 2, "chat/2": 2}
    baking = roll_out(component, [*olds(2), *news(2, since=10.0)], now=39.0)
    assert (baking.complete, baking.next_deadline) == (False, 40.0)
    assert roll_out(component, news(2, since=10.0), now=40.0).complete


def agreeing(copies: int, *, batch: int = 1, order: str = "") -> ComponentSpec:
    """Its update is held to an agreement, with pauses of 30 s."""
    target = revision(2, batch=batch, batch_wait_s=30.0)
    target = replace(target, agreement=AgreementSpec(slower_max=0.0), rollout=7, order=order)
    return chat(copies, UPDATING, target=target)


def test_until_it_is_sure_the_last_batch_waits_whatever_the_pauses() -> None:
    component = agreeing(3)
    assert desired(component, *olds(3), agreement=OPEN) == {"chat/1": 3, "chat/2": 1}
    assert desired(component, *olds(3), *news(1), now=29.0) == {"chat/1": 2, "chat/2": 1}
    assert desired(component, *olds(2), *news(1), now=30.0) == {"chat/1": 2, "chat/2": 2}
    both = [*olds(1), *news(2)]
    last = roll_out(component, both, now=29.0, agreement=OPEN)
    assert ([one.copies for one in last.specs], last.next_deadline) == ([1, 2], 30.0)
    over = roll_out(component, both, now=9000.0, agreement=OPEN)
    assert ([one.copies for one in over.specs], over.next_deadline) == ([1, 2], None)
    assert not over.complete


def test_once_it_is_sure_what_is_left_follows_without_pauses() -> None:
    component = agreeing(3)
    assert desired(component, *olds(2), *news(1), agreement=GOOD) == {"chat/1": 2, "chat/2": 2}
    assert desired(component, *olds(2), *news(2), agreement=GOOD) == {"chat/1": 1, "chat/2": 3}
    done = roll_out(component, [*olds(1), *news(3)], now=0.0, agreement=GOOD)
    assert ([one.copies for one in done.specs], done.next_deadline) == ([0, 3], None)
    assert done.complete


@pytest.mark.parametrize(("copies", "batch"), [(1, 1), (2, 2), (2, 5)])
def test_one_batch_alone_comes_beside_the_former_one_and_both_serve_until_it_is_sure(
    copies: int, batch: int
) -> None:
    component = agreeing(copies, batch=batch)
    wanted = {"chat/1": copies, "chat/2": copies}
    assert desired(component, *olds(copies)) == wanted
    both = [*olds(copies), *news(copies)]
    for now in (1.0, 9000.0):
        decision = roll_out(component, both, now=now, agreement=OPEN)
        assert {one.name: one.copies for one in decision.specs} == wanted
        assert not decision.complete
    assert roll_out(component, both, now=1.0, agreement=GOOD).complete


def test_a_former_copy_that_ends_while_it_is_not_sure_comes_back() -> None:
    """After a kill of the server nothing is there, and there must be something to compare with."""
    component = agreeing(3)
    assert desired(component) == {"chat/1": 3, "chat/2": 1}
    assert desired(component, *news(2), now=30.0) == {"chat/1": 1, "chat/2": 2}
    assert desired(component, *news(2), agreement=GOOD) == {"chat/1": 0, "chat/2": 3}


def test_what_is_surely_worse_takes_no_further_step() -> None:
    component = agreeing(3, order=PROMOTE)
    decision = roll_out(component, [*olds(1), *news(3)], now=9000.0, agreement=WORSE)
    assert [one.copies for one in decision.specs] == [1, 2]
    assert not decision.complete


def test_without_copies_nothing_is_replaced_until_there_are_some_to_compare() -> None:
    none = agreeing(0)
    assert desired(none, *olds(1)) == {"chat/1": 0, "chat/2": 0}
    assert not roll_out(none, [], now=0.0).complete
    assert desired(agreeing(2)) == {"chat/1": 2, "chat/2": 1}


def test_on_the_way_back_and_without_batches_nothing_is_compared() -> None:
    held = agreeing(2).target
    assert held is not None
    back = replace(chat(2, UPDATING, target=replace(held, goes_back="it rang")), active=held)
    assert back.compared is None
    assert roll_out(back, [*olds(2), *news(2)], now=30.0).complete
    at_once = chat(2, UPDATING, target=replace(held, batch=0))
    assert at_once.compared is None
    assert roll_out(at_once, [*olds(2), *news(2)], now=0.0).complete


def test_an_operator_lets_it_stand_or_does_not_wait_for_proof() -> None:
    """What has begun is finished; what was taken away does not come back."""
    standing = chat(3, UPDATING, target=replace(revision(2, batch=1), order=PAUSE))
    assert desired(standing, *olds(3)) == {"chat/1": 3, "chat/2": 0}
    begun = copy(100, 0, of="chat/2", phase=LOADING)
    assert desired(standing, *olds(3), begun) == {"chat/1": 3, "chat/2": 1}
    assert desired(standing, *olds(2), *news(1)) == {"chat/1": 2, "chat/2": 1}
    for order in (PAUSE, ABORT):
        whole = chat(1, UPDATING, target=replace(revision(2, batch=1), order=order))
        decision = roll_out(whole, news(1), now=9.0)
        assert (decision.complete, decision.next_deadline) == (False, None)
    promoted = agreeing(2, order=PROMOTE)
    assert desired(promoted, *olds(2), *news(1), agreement=OPEN) == {"chat/1": 1, "chat/2": 2}
    assert roll_out(promoted, news(2), now=0.0, agreement=OPEN).complete
