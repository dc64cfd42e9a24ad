"""What answers for a target model, on record: one rollout at a time; an order outlives a step."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.control.test_control_store import create, in_service

from penstock.control.store.records import EndpointBusy, RolloutSettled, TargetRolloutUnderWay
from penstock.control.store.store import Store
from penstock.core.deployment.endpoint_state import SetTarget
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.rollout.policy import BAKING, TERMINATING, RolloutPolicy, RolloutProgress

WANTED = ServedTarget(target="b", serves="b", incoming="b-2", policy=RolloutPolicy())
BEGUN = RolloutProgress(stage=BAKING, began=1.0, since=1.0, step=1, share=0.1)


def recorded(store: Store) -> tuple[ServedTarget, ...]:
    return store.describe_endpoint("shop").targets


def test_a_target_model_has_one_rollout_at_a_time(store: Store) -> None:
    create(store)
    with pytest.raises(EndpointBusy):
        store.begin_target_rollout("shop", WANTED)
    in_service(store, "Other")
    store.begin_target_rollout("other", WANTED)
    with pytest.raises(TargetRolloutUnderWay, match="from artifact 'b-2'"):
        store.begin_target_rollout("other", replace(WANTED, incoming="b-3"))


def test_an_order_stands_though_a_step_is_recorded_after_it(store: Store) -> None:
    in_service(store)
    store.begin_target_rollout("shop", WANTED)
    with pytest.raises(RolloutSettled):
        store.order_target_rollout("shop", "b", "pause")
    begun = replace(WANTED, progress=BEGUN)
    store.set_target("shop", SetTarget(begun, "generation-ready"))
    store.order_target_rollout("shop", "b", "pause")
    store.set_target("shop", SetTarget(begun, "share-raised"))
    assert recorded(store) == (replace(begun, progress=replace(BEGUN, order="pause")),)
    store.order_target_rollout("shop", "b", "resume")
    assert recorded(store) == (begun,)
    ends = replace(BEGUN, stage=TERMINATING)
    store.set_target("shop", SetTarget(replace(begun, progress=ends), "baked"))
    with pytest.raises(RolloutSettled, match="ends at the new artifact already"):
        store.order_target_rollout("shop", "b", "abort")


def test_the_next_rollout_replaces_what_answers_now_whatever_was_seen_before(store: Store) -> None:
    in_service(store)
    store.begin_target_rollout("shop", WANTED)
    store.set_target("shop", SetTarget(ServedTarget(target="b", serves="b-2"), "baked"))
    store.begin_target_rollout("shop", replace(WANTED, incoming="b-3"))
    assert recorded(store) == (replace(WANTED, serves="b-2", incoming="b-3"),)
    late = SetTarget(ServedTarget(target="c", serves="c-2"), "baked")
    assert store.set_target("shop", late) is not None
    assert [one.target for one in recorded(store)] == ["b"], "no rollout of it is under way"


def test_the_own_artifact_again_and_a_deleted_endpoint_leave_nothing(store: Store) -> None:
    in_service(store)
    store.begin_target_rollout("shop", WANTED)
    store.set_target("shop", SetTarget(ServedTarget(target="b", serves="b"), "aborted"))
    assert recorded(store) == ()
    store.begin_target_rollout("shop", WANTED)
    store.begin_delete("shop", now=2.0)
    store.finish_delete("shop")
    assert store.set_target("shop", SetTarget(WANTED, "baked")) is None
    create(store)
    assert recorded(store) == ()
