"""Rollouts of endpoints in bad weather, with the checks of the properties of
`core/endpoint/reconcile.py` after each event: the new generation's share is what the record says,
what serves is never taken away, no rollout stands still, and each ends at the new generation or at
the old one.

`ROLLOUTS=10000` is the whole of it.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from tests.core.test_core_reconcile_properties import World

from penstock.core.alarms.spec import OK
from penstock.core.deployment.endpoint_state import IN_SERVICE, UPDATING
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.core.rollout.policy import (
    ALL_AT_ONCE,
    CANARY,
    CAPACITY_PERCENT,
    INSTANCE_COUNT,
    LINEAR,
    ORDERS,
    ROLLING,
    RolloutPolicy,
    RolloutSize,
)

ROLLOUTS = int(os.environ.get("ROLLOUTS", "1500"))
KINDS = (ALL_AT_ONCE, CANARY, LINEAR, ROLLING)
LUCK = ("ok", "ok", "ok", "ok", "die", "break", "wrong", "lost")
HAPPENS = ("step", "step", "calm", "calm", "time", "time", "alarm", "pairs", "order", "restart")


def size_of(chance: random.Random) -> RolloutSize:
    if chance.random() < 0.5:
        return RolloutSize(kind=INSTANCE_COUNT, value=chance.randint(1, 2))
    return RolloutSize(kind=CAPACITY_PERCENT, value=chance.choice([5, 20, 34, 50]))


def policy_of(chance: random.Random) -> RolloutPolicy:
    return RolloutPolicy(
        kind=chance.choice(KINDS),
        size=size_of(chance),
        rollback_size=chance.choice([None, size_of(chance)]),
        wait_s=chance.choice([0.0, 2.0]),
        termination_wait_s=chance.choice([0.0, 3.0]),
        execution_s_max=chance.choice([0.0, 0.0, 600.0]),
        alarms=chance.choice([(), ("errors",)]),
        agreement=chance.choice([None, AgreementSpec()]),
    )


def detail_of(what: str, chance: random.Random) -> object:
    if what == "step":
        return chance.choice(LUCK)
    if what == "pairs":
        return AgreementCounts(agree=chance.choice([0, 10_000]), differ=chance.choice([0, 9]))
    return chance.choice(ORDERS) if what == "order" else ""


def rolled_out(seed: int) -> tuple[str, str]:
    """Of the rollout: its kind, and at which generation it ended."""
    chance = random.Random(seed)
    counts = tuple(chance.randint(1, 3) for _ in range(chance.randint(1, 2)))
    world, policy = World(counts), policy_of(chance)
    world.settle()
    world.heal()
    world.ask("update", counts, policy)
    world.settle()
    assert world.desired is not None
    new = world.desired.target
    assert new is not None
    for _ in range(chance.randint(0, 25)):
        what = chance.choice(HAPPENS)
        world.happen(what, chance.randrange(20), detail_of(what, chance))
        if world.desired.status != UPDATING:
            break
    world.alarm = OK
    world.heal()
    assert world.desired.status == IN_SERVICE
    assert world.desired.active is not None
    assert world.desired.target is None
    ended = world.desired.active.generation
    assert ended in (1, new.generation)
    assert {one.generation for one in world.instances.values()} == {ended}
    assert len(world.named()) == sum(counts)
    return policy.kind, "new" if ended == new.generation else "old"


@pytest.mark.timeout(120 + ROLLOUTS // 10)
def test_each_rollout_ends_at_the_new_generation_or_at_the_old_one() -> None:
    ends = Counter(rolled_out(seed) for seed in range(ROLLOUTS))
    assert set(ends) == {(kind, end) for kind in KINDS for end in ("new", "old")}
    assert min(ends.values()) > ROLLOUTS // 50, ends
