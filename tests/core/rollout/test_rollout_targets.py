"""Another artifact takes over the name of a target model: literal timelines, as reconciliation
decides them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from tests.kit.core_reconcile import deployment, observed, routes, seen

from penstock.core.alarms.spec import ALARM
from penstock.core.deployment.deployment import ComparedRoutes, EndpointRoutes, TargetRoutes
from penstock.core.deployment.endpoint_state import (
    IN_SERVICE,
    READY,
    UPDATING,
    Action,
    EndpointObserved,
    EndpointSpec,
    PublishRoutes,
    SetTarget,
)
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.endpoint import target_rollouts
from penstock.core.endpoint.reconcile import LOOK_S, decide
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.core.rollout.policy import (
    ABORT,
    ALL_AT_ONCE,
    BAKING,
    CANARY,
    CAPACITY_PERCENT,
    LINEAR,
    TERMINATING,
    RolloutPolicy,
    RolloutProgress,
    RolloutSize,
)

AGREEMENT = AgreementSpec(kind="exact", slower_max=0.0)
POLICY = RolloutPolicy(
    kind=CANARY, size=RolloutSize(kind=CAPACITY_PERCENT, value=25), wait_s=60.0, alarms=("errors",)
)
NOTHING = ServedTarget(target="team/b", serves="team/b")
BEGUN = replace(NOTHING, incoming="team/b-2", policy=POLICY)
WALL = 5000.0  #: the wall clock when the monotonic one says 0


def at(now: float, stage: str, step: int = 0, share: float = 0.0) -> RolloutProgress:
    return RolloutProgress(stage=stage, began=WALL, since=WALL + now, step=step, share=share)


def published(target: TargetRoutes | None) -> EndpointRoutes:
    return replace(routes((1, "a")), targets=() if target is None else (target,))


def now_(share: float, *, serves: str = "team/b", rollout: int = 0) -> TargetRoutes:
    compared = ComparedRoutes(rollout=rollout, spec=AGREEMENT) if rollout else None
    return TargetRoutes(
        target="team/b", serves=serves, incoming="team/b-2" if share else "", share=share,
        compared=compared,
    )  # fmt: skip


def decided(
    served: ServedTarget, before: TargetRoutes | None, now: float, status: str = IN_SERVICE, **told
) -> tuple[tuple[Action, ...], float | None]:  # type: ignore[no-untyped-def]
    target = deployment(2) if status == UPDATING else None
    desired = EndpointSpec(
        endpoint="shop", status=status, active=deployment(1), target=target, targets=(served,)
    )
    there: EndpointObserved = observed(seen("a", READY, copy=1), published=published(before))
    decision = decide(desired, replace(there, **told), now=now, wall=WALL + now)
    return decision.actions, decision.next_deadline


def test_a_canary_from_its_start_to_its_end() -> None:
    quarter, whole = at(0.0, BAKING, 1, 0.25), at(60.0, BAKING, 2, 1.0)
    assert decided(BEGUN, None, 0.0) == (
        (
            PublishRoutes(published(now_(0.25)), "targets-changed"),
            SetTarget(replace(BEGUN, progress=quarter), "generation-ready"),
        ),
        LOOK_S,
    )
    baking = replace(BEGUN, progress=quarter)
    assert decided(baking, now_(0.25), 30.0) == ((), 30.0 + LOOK_S)
    assert decided(baking, now_(0.25), 60.0) == (
        (
            PublishRoutes(published(now_(1.0)), "targets-changed"),
            SetTarget(replace(BEGUN, progress=whole), "share-raised"),
        ),
        60.0 + LOOK_S,
    )
    assert decided(replace(BEGUN, progress=whole), now_(1.0), 120.0) == (
        (
            PublishRoutes(published(now_(0.0, serves="team/b-2")), "targets-changed"),
            SetTarget(replace(NOTHING, serves="team/b-2"), "baked"),
        ),
        None,
    )
    served = replace(NOTHING, serves="team/b-2")
    assert decided(served, now_(0.0, serves="team/b-2"), 121.0) == ((), None)


def test_an_alarm_sends_all_requests_back() -> None:
    baking = replace(BEGUN, progress=at(0.0, BAKING, 1, 0.25))
    back = replace(NOTHING, why="in ALARM: errors")
    assert decided(baking, now_(0.25), 9.0, alarms={"errors": ALARM}) == (
        (
            PublishRoutes(published(None), "targets-changed"),
            SetTarget(back, "alarm", "in ALARM: errors"),
        ),
        None,
    )


def test_answers_that_disagree_send_all_back_to_the_artifact_that_served() -> None:
    policy = replace(POLICY, alarms=(), agreement=AGREEMENT)
    served = replace(NOTHING, serves="team/b-1", incoming="team/b-2", policy=policy)
    baking = replace(served, progress=at(0.0, BAKING, 1, 0.25))
    there = now_(0.25, serves="team/b-1", rollout=5_000_000)
    assert decided(baking, there, 9.0, target_agreements={"team/b": AgreementCounts(agree=40)}) == (
        (), 9.0 + LOOK_S,
    )  # fmt: skip
    wrong = {"team/b": AgreementCounts(agree=1, differ=9)}
    (publishes, sets), _ = decided(baking, there, 9.0, target_agreements=wrong)
    assert publishes == PublishRoutes(
        published(now_(0.0, serves="team/b-1")), "targets-changed"
    )  # fmt: skip
    assert isinstance(sets, SetTarget)
    assert (sets.served.serves, sets.served.incoming, sets.reason) == (
        "team/b-1", "", "disagreement",
    )  # fmt: skip
    assert "9 of 10 answers disagree" in sets.served.why == sets.why


def test_answers_that_agree_promote_before_the_bake_is_over() -> None:
    policy = replace(POLICY, agreement=AGREEMENT)
    baking = replace(BEGUN, policy=policy, progress=at(0.0, BAKING, 1, 0.25))
    same = {"team/b": AgreementCounts(agree=2000)}
    (publishes, sets), deadline = decided(
        baking, now_(0.25, rollout=5_000_000), 9.0, target_agreements=same
    )
    assert publishes == PublishRoutes(published(now_(1.0)), "targets-changed")
    assert isinstance(sets, SetTarget)
    assert sets.served.progress == at(9.0, TERMINATING, 2, 1.0)
    assert sets.reason == "agreed"
    assert deadline == 9.0, "it is complete as soon as that is on record"


def test_an_operator_orders_it_back() -> None:
    baking = replace(BEGUN, progress=replace(at(0.0, BAKING, 1, 0.25), order=ABORT))
    (_, sets), _ = decided(baking, now_(0.25), 9.0)
    assert sets == SetTarget(
        replace(NOTHING, why="an operator ordered it back"),
        "aborted",
        "an operator ordered it back",
    )


def test_all_at_once_ends_in_one_step() -> None:
    at_once = replace(BEGUN, policy=RolloutPolicy(kind=ALL_AT_ONCE))
    assert decided(at_once, None, 0.0) == (
        (
            PublishRoutes(published(now_(0.0, serves="team/b-2")), "targets-changed"),
            SetTarget(replace(NOTHING, serves="team/b-2"), "generation-ready"),
        ),
        None,
    )


def test_while_the_endpoint_is_updated_shares_stay() -> None:
    baking = replace(BEGUN, progress=at(0.0, BAKING, 1, 0.25))
    actions, _ = decided(baking, now_(0.25), 100.0, status=UPDATING)
    assert not [one for one in actions if isinstance(one, SetTarget | PublishRoutes)]


def test_one_that_has_not_begun_yet_changes_no_request() -> None:
    waits = replace(BEGUN, policy=replace(POLICY, agreement=AGREEMENT))
    actions, _ = decided(waits, now_(0.0), 5.0, status=UPDATING)
    assert not [one for one in actions if isinstance(one, SetTarget | PublishRoutes)]


def test_the_own_artifact_again_needs_no_routes() -> None:
    assert decided(replace(NOTHING, why="in ALARM: errors"), None, 5.0) == ((), None)


def test_ten_thousand_rollouts_with_restarts_end_at_one_artifact_or_the_other() -> None:
    """Whatever happens in their middle: the share only grows until it is all or nothing, and each
    ends, also where what was decided was not recorded since the server was killed."""
    ends: Counter[str] = Counter()
    for seed in range(10_000):
        chance = random.Random(seed)
        policy = RolloutPolicy(
            kind=chance.choice([ALL_AT_ONCE, CANARY, LINEAR]),
            size=RolloutSize(kind=CAPACITY_PERCENT, value=chance.choice([10, 25, 50])),
            wait_s=chance.choice([0.0, 1.0, 30.0]),
            execution_s_max=chance.choice([0.0, 60.0]),
            alarms=chance.choice([(), ("errors",)]),
            agreement=chance.choice([None, AGREEMENT]),
        )
        served, share, wall = replace(BEGUN, policy=policy), 0.0, WALL
        quality = chance.choice([0.0, 0.0, 0.2])
        agree = differ = 0
        for _ in range(1000):
            decision = target_rollouts.decide(
                served,
                AgreementCounts(agree=agree, differ=differ),
                {"errors": ALARM} if chance.random() < 0.01 else {},
                wall=wall,
            )
            routes_now = target_rollouts.routes_of(decision.served)
            if decision.served.incoming:
                assert share <= routes_now.share <= 1.0
                share = routes_now.share
            if chance.random() < 0.8:  # else the server is killed before it has recorded it
                served = decision.served
            if not served.incoming:
                break
            for _ in range(30):
                differs = chance.random() < quality
                agree, differ = agree + (not differs), differ + differs
            wall += chance.choice([0.0, 1.0, 5.0])
        assert not served.incoming, (seed, served)
        assert (served.serves == "team/b-2") == (not served.why)
        ends[served.serves] += 1
    assert min(ends["team/b"], ends["team/b-2"]) > 1000, ends
