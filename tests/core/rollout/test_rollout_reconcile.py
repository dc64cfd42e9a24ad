"""A generation that takes over with a policy, as reconciliation decides it: literal timelines."""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_reconcile import deployment, observed, routes, seen

from penstock.core.alarms.spec import ALARM
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.core.deployment.endpoint_state import (
    IN_SERVICE,
    LOADING,
    READY,
    UPDATING,
    Action,
    DrainCopy,
    EndpointObserved,
    EndpointSpec,
    PublishRoutes,
    SetRollout,
    SetStatus,
    StartInstance,
)
from penstock.core.endpoint.reconcile import LOOK_S, ReconcileDecision, decide
from penstock.core.rollout.policy import (
    BAKING,
    CANARY,
    CAPACITY_PERCENT,
    CREATING,
    TERMINATING,
    RolloutPolicy,
    RolloutProgress,
    RolloutSize,
)

POLICY = RolloutPolicy(
    kind=CANARY, size=RolloutSize(kind=CAPACITY_PERCENT, value=25), wait_s=60.0,
    termination_wait_s=30.0, alarms=("errors",),
)  # fmt: skip
OLD, NEW = deployment(1), replace(deployment(2), rollout=POLICY)
WALL = 5000.0  #: the wall clock when the monotonic one says 0


def rolling(progress: RolloutProgress | None) -> EndpointSpec:
    return EndpointSpec(endpoint="shop", status=UPDATING, active=OLD, target=NEW, progress=progress)


def at(now: float, stage: str, step: int = 0, share: float = 0.0) -> RolloutProgress:
    return RolloutProgress(stage=stage, began=WALL, since=WALL + now, step=step, share=share)


def decided(
    desired: EndpointSpec, seen_now: EndpointObserved, now: float
) -> tuple[tuple[Action, ...], float | None]:
    decision: ReconcileDecision = decide(desired, seen_now, now=now, wall=WALL + now)
    return decision.actions, decision.next_deadline


def both(published: EndpointRoutes, alarms: dict[str, str] | None = None) -> EndpointObserved:
    there = observed(
        seen("a", READY, copy=1), seen("b", READY, copy=2, generation=2), published=published
    )
    return replace(there, alarms=alarms or {})


def shared() -> EndpointRoutes:
    (old,) = routes((1, "a")).variants
    (new,) = routes((2, "b")).variants
    return EndpointRoutes(
        endpoint="shop",
        variants=(replace(old, weight=0.75), replace(new, weight=0.25, incoming=True)),
    )


def test_a_canary_from_its_start_to_its_end() -> None:
    alone = observed(seen("a", READY, copy=1), published=routes((1, "a")))
    assert decided(rolling(None), alone, 0.0) == (
        (
            StartInstance("blue", 2, 0, "new-generation"),
            SetRollout(2, at(0.0, CREATING), "rollout-begins"),
        ),
        None,
    )
    created = rolling(at(0.0, CREATING))
    assert decided(created, both(routes((1, "a"))), 10.0) == (
        (
            PublishRoutes(shared(), "generation-ready"),
            SetRollout(2, at(10.0, BAKING, 1, 0.25), "generation-ready"),
        ),
        10.0 + LOOK_S,
    )
    canary = rolling(at(10.0, BAKING, 1, 0.25))
    assert decided(canary, both(shared()), 11.0) == ((), 11.0 + LOOK_S)
    assert decided(canary, both(shared()), 70.0) == (
        (
            PublishRoutes(routes((2, "b")), "share-raised"),
            SetRollout(2, at(70.0, BAKING, 2, 1.0), "share-raised"),
        ),
        70.0 + LOOK_S,
    )
    whole = rolling(at(70.0, BAKING, 2, 1.0))
    assert decided(whole, both(routes((2, "b"))), 130.0) == (
        (SetRollout(2, at(130.0, TERMINATING, 2, 1.0), "baked"),), 160.0,
    )  # fmt: skip
    over = rolling(at(130.0, TERMINATING, 2, 1.0))
    assert decided(over, both(routes((2, "b"))), 159.0) == ((), 160.0)
    assert decided(over, both(routes((2, "b"))), 160.0) == (
        (SetStatus(IN_SERVICE, "terminated", "", active_generation=2),), None,
    )  # fmt: skip
    done = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=NEW)
    assert decided(done, both(routes((2, "b"))), 160.0)[0] == (DrainCopy("a", 1, "old-generation"),)


def test_an_alarm_gives_all_traffic_back_before_the_new_copies_drain() -> None:
    canary = rolling(at(10.0, BAKING, 1, 0.25))
    rings = both(shared(), alarms={"errors": ALARM})
    ((back,), _) = decided(canary, rings, 20.0)
    assert isinstance(back, SetStatus)
    assert (back.status, back.reason, back.active_generation) == (IN_SERVICE, "alarm", 1)
    assert "in ALARM: errors" in back.failure_reason
    held = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=OLD)
    assert decided(held, both(shared()), 20.0)[0] == (
        PublishRoutes(routes((1, "a")), "copies-changed"),
        DrainCopy("b", 2, "old-generation"),
    )


def test_an_old_copy_that_dies_meanwhile_is_replaced() -> None:
    """What goes back must be whole."""
    canary = rolling(at(10.0, BAKING, 1, 0.25))
    alone = observed(seen("b", READY, copy=2, generation=2), published=shared())
    actions, _ = decided(canary, alone, 20.0)
    assert StartInstance("blue", 1, 0, "variant-count") in actions


def test_after_a_restart_both_generations_start_and_the_bake_goes_on() -> None:
    canary = rolling(at(10.0, BAKING, 1, 0.25))
    actions, _ = decided(canary, observed(), 100.0)
    assert actions[:2] == (
        StartInstance("blue", 2, 0, "new-generation"),
        StartInstance("blue", 1, 0, "variant-count"),
    )
    loading = observed(seen("a", READY, copy=1), seen("b", LOADING, generation=2))
    actions, _ = decided(canary, loading, 101.0)
    assert not [one for one in actions if isinstance(one, SetRollout)], "its time went on"
    raised, _ = decided(canary, both(shared()), 102.0)
    assert SetRollout(2, at(102.0, BAKING, 2, 1.0), "share-raised") in raised
