"""`core/endpoint/adapters.py`: which copies of a base have which adapters, as timelines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.kit.core_components import chat, copy, failed, revision

from penstock.core.deployment.capacity_spec import ComponentSpec
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    DRAINED,
    DRAINING,
    ENDING,
    FAILED,
    IN_SERVICE,
    LOADING,
    LOST,
    READY,
    UNLOADING,
    UPDATING,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    LoadCopy,
    SetComponent,
    SlotFailure,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint import adapters
from penstock.core.endpoint import component_life as life
from penstock.core.endpoint.component_life import RolloutDecision
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec

SPEC = ReconcileSpec()


def lora(status: str = IN_SERVICE, *, target: bool = False, name: str = "lora") -> ComponentSpec:
    first, second = (replace(revision(number), base="chat") for number in (1, 2))
    return replace(chat(0, status, name=name), active=first, target=second if target else None)


def on(base: int, number: int, *, phase: str = READY, of: str = "lora/1") -> CopyObserved:
    """A copy of the adapter, on a copy of its base."""
    return replace(copy(number, base, of=of, phase=phase), base_copy=base)


def decide(
    adapter: ComponentSpec,
    bases: tuple[CopyObserved, ...],
    copies: tuple[CopyObserved, ...] = (),
    failures: tuple[SlotFailure, ...] = (),
    *,
    now: float = 0.0,
    agreement: AgreementCounts | None = None,
) -> adapters.AdapterDecision:
    return adapters.decide(
        adapter, bases, copies, failures, generation=1, now=now, spec=SPEC, agreement=agreement
    )


def load(
    base: int, where: str = "a", *, of: str = "lora/1", reason: str = "base-ready"
) -> LoadCopy:
    return LoadCopy(where, of, 1, base, reason, base)


def test_an_adapter_is_loaded_onto_each_copy_of_its_base_that_serves() -> None:
    bases = (
        copy(1), copy(2, 1, where="b"), copy(3, 2, phase=LOADING), copy(4, 3, phase=LOST),
    )  # fmt: skip
    decision = decide(lora(CREATING), bases)
    assert decision.loads == (load(1), load(2, "b"))
    assert (decision.kept, decision.retires) == ((), ())
    assert not decision.rollout.complete
    # What is on its way is not asked for twice.
    coming = (on(1, 11, phase=LOADING), on(2, 12))
    assert decide(lora(CREATING), bases, coming).loads == ()


def test_it_is_in_service_once_it_is_wherever_its_base_serves() -> None:
    bases = (copy(1), copy(2, 1), copy(3, 2, phase=LOADING))
    assert not decide(lora(CREATING), bases, (on(1, 11),)).rollout.complete
    assert not decide(lora(CREATING), bases, (on(1, 11), on(2, 12, phase=LOST))).rollout.complete
    both = decide(lora(CREATING), bases, (on(1, 11), on(2, 12)))
    assert both.rollout.complete, "a copy of the base that is still to come is not waited for"
    assert both.kept == (on(1, 11), on(2, 12))
    assert decide(lora(CREATING), ()).rollout.complete, "a base of no copies has it on all of them"
    coming = decide(lora(CREATING), (copy(3, phase=LOADING),))
    assert not coming.rollout.complete, "what its first copy says of it is waited for"


def test_a_copy_that_failed_is_tried_again_after_a_pause() -> None:
    late = failed(1, of="lora/1", count=2, at=5.0)  # 1 s after its second failure
    paused = decide(lora(), (copy(1), copy(2, 1)), failures=(late,), now=5.9)
    assert paused.loads == (load(2),)
    assert paused.rollout.next_deadline == 6.0
    due = decide(lora(), (copy(1),), failures=(late,), now=6.0)
    assert due.loads == (load(1, reason="replace-failed"),)
    assert due.rollout.next_deadline is None


def test_one_that_does_not_fit_is_not_loaded_into_the_same_copy_again() -> None:
    """Each try may cost an engine's start; a copy of another make may well take it."""
    unfit = failed(1, of="lora/1", permanent=True)
    assert decide(lora(), (copy(1), copy(2, 1)), failures=(unfit,), now=1e6).loads == (load(2),)
    elsewhere = replace(unfit, generation=2)
    assert decide(lora(), (copy(1),), failures=(elsewhere,)).loads == (load(1),)


def test_a_new_artifact_comes_up_beside_the_old_one_on_every_copy() -> None:
    bases = (copy(1), copy(2, 1))
    old = (on(1, 11), on(2, 12))
    decision = decide(lora(UPDATING, target=True), bases, old)
    assert decision.loads == (load(1, of="lora/2"), load(2, of="lora/2"))
    assert (decision.kept, decision.rollout.complete) == (old, False)
    new = (on(1, 13, of="lora/2"), on(2, 14, of="lora/2"))
    assert decide(lora(UPDATING, target=True), bases, (*old, new[0])).rollout.complete is False
    assert decide(lora(UPDATING, target=True), bases, (*old, *new)).rollout.complete
    # Then the first is none of its revisions any more.
    replaced = replace(lora(), active=replace(revision(2), base="chat"))
    decision = decide(replaced, bases, (*old, *new))
    assert decision.kept == new
    assert decision.retires == (
        DrainCopy("a", 11, "adapter-leaves"), DrainCopy("a", 12, "adapter-leaves"),
    )  # fmt: skip


def rolling(**changes: object) -> ComponentSpec:
    """A new artifact for one copy of the base after the other, with pauses of 30 s."""
    policy = revision(2, batch=1, batch_wait_s=30.0)
    target = replace(policy, base="chat", **changes)  # type: ignore[arg-type]
    return replace(lora(UPDATING), target=target)


def held(decision: adapters.AdapterDecision) -> list[int]:
    return sorted(one.copy for one in decision.kept)


def test_with_a_rolling_policy_it_comes_to_one_copy_of_its_base_after_the_other() -> None:
    bases = (copy(1), copy(2, 1), copy(3, 2))
    old = on(1, 11), on(2, 12), on(3, 13)
    begun = decide(rolling(), bases, old)
    assert (begun.loads, held(begun)) == ((load(1, of="lora/2"),), [11, 12, 13])
    new = on(1, 14, of="lora/2")
    paused = decide(rolling(), bases, (*old, new), now=29.0)
    assert paused.loads == ()
    assert paused.retires == (DrainCopy("a", 11, "adapter-leaves"),)
    assert (held(paused), paused.rollout.next_deadline) == ([12, 13, 14], 30.0)
    second = decide(rolling(), bases, (*old[1:], new), now=30.0)
    assert second.loads == (load(2, of="lora/2"),)
    # The one on the copy of the base that has no new one yet stays, whichever is ready first.
    ahead = on(3, 15, of="lora/2")
    assert held(decide(rolling(), bases, (*old[1:], new, ahead), now=30.0)) == [12, 14, 15]
    all_new = (new, ahead, on(2, 16, of="lora/2"))
    assert not decide(rolling(), bases, all_new, now=29.0).rollout.complete
    assert decide(rolling(), bases, all_new, now=30.0).rollout.complete


def test_a_new_one_stays_on_the_copies_of_its_base_that_have_it() -> None:
    """They are not the first ones where these have been replaced meanwhile."""
    bases = (copy(4), copy(2, 1), copy(3, 2))
    decision = decide(rolling(), bases, (on(4, 14), on(3, 13, of="lora/2"), on(2, 12)))
    assert (decision.loads, held(decision)) == ((), [12, 13, 14])


def test_it_is_missing_where_no_revision_of_it_answers_or_the_newest_does_not_where_it_should() -> (
    None
):
    """Then no new generation of the endpoint takes over."""
    bases = (copy(1), copy(2, 1))
    new = on(1, 14, of="lora/2")
    assert not decide(rolling(), bases, (new, on(2, 12)), now=1.0).missing
    assert decide(rolling(), bases, (new,), now=1.0).missing
    assert decide(rolling(), bases, (on(1, 11), on(2, 12)), now=1.0).missing
    assert decide(lora(), (copy(1, phase=LOADING),)).missing, "its base comes"
    assert not decide(lora(), ()).missing, "its base has no copies"


def test_on_its_way_back_the_former_one_comes_again_where_it_has_left() -> None:
    bases = (copy(1), copy(2, 1))
    both = on(1, 13, of="lora/2"), on(2, 12)
    back = replace(
        rolling(),
        active=rolling().target or lora().active,
        target=replace(revision(1), base="chat", goes_back="worse"),
    )
    decision = decide(back, bases, both)
    assert (decision.loads, held(decision)) == ((load(1, of="lora/1"),), [12, 13])
    assert decide(back, bases, (*both, on(1, 14))).rollout.complete


def test_until_its_answers_are_sure_both_are_on_the_last_copy_of_its_base() -> None:
    compared = rolling(agreement=AgreementSpec(slower_max=0.0), rollout=7)
    base, both = (copy(1),), (on(1, 11), on(1, 12, of="lora/2"))
    unsure = decide(compared, base, both, now=9000.0, agreement=AgreementCounts(agree=10))
    assert (held(unsure), unsure.rollout.complete) == ([11, 12], False)
    # One that was lost comes again, to be compared with.
    alone = decide(compared, base, both[1:], now=9000.0, agreement=AgreementCounts(agree=10))
    assert alone.loads == (load(1, of="lora/1"),)
    sure = decide(compared, base, both, agreement=AgreementCounts(agree=2000))
    assert sure.rollout.complete


def test_a_former_one_that_was_lost_comes_again_while_the_new_one_is_on_its_way() -> None:
    """It takes no room, and the new one may not fit."""
    coming = on(1, 12, of="lora/2", phase=LOADING)
    decision = decide(lora(UPDATING, target=True), (copy(1),), (coming,))
    assert decision.loads == (load(1, of="lora/1"),)


@pytest.mark.parametrize("status", [DELETING, FAILED])
def test_one_that_ends_drains_and_leaves_every_copy(status: str) -> None:
    copies = (
        on(1, 11), on(2, 12, phase=LOADING), on(3, 13, phase=DRAINING), on(4, 14, phase=DRAINED),
        on(5, 15, phase=UNLOADING),
    )  # fmt: skip
    bases = tuple(copy(number, number) for number in range(1, 6))
    decision = decide(lora(status), bases, copies)
    assert (decision.kept, decision.loads, decision.rollout.complete) == ((), (), False)
    assert decision.retires == (
        DrainCopy("a", 11, "adapter-leaves"),
        UnloadCopy("a", 12, "adapter-leaves"),
        UnloadCopy("a", 14, "drained"),
    )


def test_adapters_leave_before_the_copy_of_their_base_does() -> None:
    """Their streams end by themselves as its own do."""
    decision = decide(lora(), (copy(1),), (on(1, 11), on(2, 12)))  # copy 2 is to go
    assert decision.kept == (on(1, 11),)
    assert decision.retires == (DrainCopy("a", 12, "base-leaves"),)
    drain, unload = DrainCopy("a", 3, "copy-count"), UnloadCopy("a", 2, "drained")
    riding = (on(2, 12, phase=DRAINING),)
    assert adapters.held_back([drain, unload], riding) == [drain]
    assert adapters.held_back([drain, unload], ()) == [drain, unload]
    own = UnloadCopy("a", 12, "drained")
    assert adapters.held_back([own], riding) == [own]


def test_what_was_on_a_copy_that_is_gone_is_gone_with_it() -> None:
    there = {1: copy(1), 2: copy(2, phase=UNLOADING), 3: copy(3, phase=ENDING)}
    copies = (
        on(1, 11), on(2, 12), on(3, 13, phase=DRAINING), on(4, 14), on(4, 15, phase=UNLOADING),
        on(4, 16, phase=ENDING),
    )  # fmt: skip
    assert adapters.without_base(copies, there) == (
        UnloadCopy("a", 12, "base-gone"),
        UnloadCopy("a", 13, "base-gone"),
        UnloadCopy("a", 14, "base-gone"),
    )


def test_a_new_copy_of_a_base_is_not_ready_before_its_adapters_are_on_it() -> None:
    """So an update of the base never takes an adapter's last copy away."""
    base = chat(1, UPDATING, target=revision(2))
    old, new = copy(1), copy(2, of="chat/2")
    others = (lora(), lora(DELETING, name="leaves"), lora(FAILED, name="failed"))
    waits = [old, replace(new, phase=LOADING)]
    assert adapters.as_ready(base, others, (old, new)) == waits
    for phase in (LOADING, LOST):
        seen = (old, new, on(2, 11, phase=phase))
        assert adapters.as_ready(base, others, seen) == [*waits, seen[2]]
    ready = (old, new, on(2, 11))
    assert adapters.as_ready(base, others, ready) == [*ready]
    assert adapters.as_ready(base, (), (old, new)) == [old, new]
    assert adapters.as_ready(chat(1), others, (old,)) == [old], "it is not being replaced"
    foreign = replace(lora(), active=replace(revision(), base="rank"))
    assert adapters.as_ready(base, (foreign,), (old, new)) == [old, new]


def test_an_adapter_that_does_not_fit_the_new_base_ends_the_update_of_the_base() -> None:
    """The former specification serves on, with all its adapters."""
    base = chat(1, UPDATING, target=revision(2))
    state = EndpointObserved(
        copies=(copy(1), copy(2, of="chat/2")),
        failures=(failed(2, of="lora/1", permanent=True),),
    )
    waits = RolloutDecision((), complete=False, next_deadline=None)

    def decided(others: tuple[ComponentSpec, ...], seen: EndpointObserved = state) -> object:
        return life.decide(base, waits, seen, generation=1, spec=SPEC, others=others)

    told = "the update failed, the former specification serves on: lora/1 can't be had."
    assert decided((base, lora())) == (
        SetComponent("chat", IN_SERVICE, 1, "revision-failed", told, 1),
    )
    assert decided((base, lora(DELETING))) == ()
    on_old = replace(state, failures=(failed(1, of="lora/1", permanent=True),))
    assert decided((base, lora()), on_old) == (), "of the copy that serves it says nothing new"
    again = replace(state, failures=(failed(2, of="lora/1", count=2),))
    assert decided((base, lora()), again) == (), "it is tried again"
