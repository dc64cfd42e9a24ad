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


def desired(component: ComponentSpec, *copies: CopyObserved, now: float = 0.0) -> dict[str, int]:
    return {one.name: one.copies for one in roll_out(component, copies, now=now).specs}


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
