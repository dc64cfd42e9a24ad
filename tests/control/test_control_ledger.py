"""`control/instances/ledger.py` of an endpoint with inference components: attempts, counts,
waiting.
"""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_components import chat

from penstock.control.instances.entries import CopyEntry, InstanceEntry
from penstock.control.instances.ledger import EndpointLedger, Slot
from penstock.core.deployment.capacity_spec import copies_spec
from penstock.core.deployment.deployment import (
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    ModelSource,
    PoolSpec,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import (
    IN_SERVICE,
    LOADING,
    READY,
    RUNNING,
    EndpointSpec,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceType

KIND = InstanceType(
    name="ml.local.small", resources=ComputeResources(cores=1.0, memory_bytes=2**30)
)


def deployment(model: ModelSource | None = None) -> DeploymentSpec:
    variant = VariantSpec(name="blue", model=model, instance_type="t", instance_count=1)
    return DeploymentSpec(endpoint="shop", generation=1, config_name="c", variants=(variant,))


def ledger(*components: str, model: ModelSource | None = None) -> EndpointLedger:
    """With an instance that runs and has no copy."""
    desired = EndpointSpec(
        endpoint="shop", status=IN_SERVICE, active=deployment(model),
        components=tuple(chat(1, name=name) for name in components),
    )  # fmt: skip
    made = EndpointLedger(desired, ReconcileSpec())
    made.instances["a"] = InstanceEntry(
        instance_id="a", variant="blue", generation=1, ordinal=0, kind=KIND, phase=RUNNING, since=0
    )
    return made


def load(made: EndpointLedger, number: int, component: str, phase: str = READY) -> None:
    one = chat(1, name=component)
    made.copies[number] = CopyEntry(
        copy=number, instance_id="a", variant="blue", generation=1, phase=phase, since=0.0,
        component=copies_spec(one, one.active, 1), ordinal=number,
    )  # fmt: skip


def fail(made: EndpointLedger, component: str) -> None:
    slot = Slot(variant="blue", generation=1, ordinal=0, component=component)
    made.fail(slot, "why", permanent=True, now=1.0)


def test_a_new_spec_for_one_component_gives_another_no_fresh_attempts() -> None:
    made = ledger("chat", "rank")
    for component in ("chat/1", "rank/1", ""):
        fail(made, component)
    changed = replace(made.desired, components=(chat(2, name="chat"), chat(1, name="rank")))
    made.take_spec(changed)
    counts = {one.component: (one.count, one.permanent) for one in made.observed().failures}
    # An instance may be what the changed one needs.
    assert counts == {"chat/1": (0, False), "rank/1": (1, True), "": (0, False)}
    made.take_spec(replace(changed, active=replace(deployment(), config_name="d")))
    assert {one.count for one in made.observed().failures} == {0}


def test_another_name_gives_nothing_fresh_attempts() -> None:
    made = ledger("chat")
    fail(made, "chat/1")
    fail(made, "")
    made.take_spec(replace(made.desired, served_names={"chat_1": ""}))
    assert made.desired.served_names == {"chat_1": ""}
    assert {(one.count, one.permanent) for one in made.observed().failures} == {(1, True)}


def test_failures_of_a_component_that_is_gone_are_forgotten() -> None:
    made = ledger("chat", "rank")
    fail(made, "chat/1")
    made.take_spec(replace(made.desired, components=(chat(1, name="rank"),)))
    assert made.observed().failures == ()


def test_copies_are_counted_by_component_and_only_while_they_answer() -> None:
    made = ledger("chat", "rank")
    load(made, 1, "chat")
    load(made, 2, "chat", LOADING)
    assert made.component_counts() == {"chat": 1, "rank": 0}


def test_an_instance_that_takes_components_serves_once_it_runs_and_awaits_none() -> None:
    made = ledger()
    assert (made.ready_counts(), made.kept_counts()) == ({"blue": 1}, {"blue": 1})
    assert not made.awaits_copy()
    made.instances["a"].leaving = True
    assert made.kept_counts() == {}
    own = ledger(model=ModelSource(model_name="m"))
    assert (own.ready_counts(), own.awaits_copy()) == ({"blue": 0}, True)


def test_a_shadow_variants_instances_are_counted_and_its_last_failure_is_told() -> None:
    made = ledger(model=ModelSource(model_name="m"))
    active = made.desired.active
    assert active is not None
    dark = replace(active.variants[0], name="dark")
    made.take_spec(replace(made.desired, active=replace(active, shadows=(dark,))))
    assert made.variant("dark", 1) == dark
    assert made.ready_counts() == {"blue": 0, "dark": 0}
    assert made.last_failure("dark") == ""
    for variant, ordinal, at in (("dark", 1, 2.0), ("dark", 0, 1.0), ("blue", 0, 3.0)):
        slot = Slot(variant=variant, generation=1, ordinal=ordinal, component="")
        made.fail(slot, f"{variant} at {at}", permanent=True, now=at)
    assert made.last_failure("dark") == "dark at 2.0"
    load(made, 7, "chat")
    route = CopyRoute(copy=7, instance_id="a", outstanding_max=1)
    named = VariantRoutes(name="dark", weight=1.0, strategy="RANDOM", copies=(route,))
    made.publish(EndpointRoutes(endpoint="shop", variants=(), shadows=(named,)))
    assert made.copies[7].routed, "it may have requests, so it is drained before it ends"


# pools

BIG = InstanceType(name="ml.big", resources=ComputeResources(cores=1.0, memory_bytes=2**30))


def pooled() -> EndpointLedger:
    made = ledger(model=ModelSource(model_name="m"))
    (variant,) = deployment(ModelSource(model_name="m")).variants
    pools = tuple(PoolSpec(instance_type=kind) for kind in ("ml.big", "ml.local.small"))
    active = replace(
        deployment(), variants=(replace(variant, pools=pools, model=ModelSource(model_name="m")),)
    )
    made.take_spec(replace(made.desired, active=active))
    made.instances["a"].kind = BIG
    return made


def test_want_of_room_is_a_shortage_of_the_pool_and_no_failure_of_the_slot() -> None:
    made = pooled()
    entry = made.instances["a"]
    made.fail_instance(entry, "full", permanent=True, now=5.0, reason="memory-short")
    (found,) = made.observed().shortages
    assert (found.instance_type, found.count, found.at, found.reason) == (
        "ml.big", 1, 5.0, "memory-short",
    )  # fmt: skip
    assert made.observed().failures == ()
    made.fail_instance(entry, "it died", permanent=False, now=6.0, reason="instance-exit")
    assert [one.reason for one in made.observed().failures] == ["instance-exit"]


def test_of_a_variant_of_one_type_want_of_room_is_a_failure_as_ever() -> None:
    made = ledger(model=ModelSource(model_name="m"))
    made.fail_instance(made.instances["a"], "full", permanent=True, now=5.0, reason="memory-short")
    assert made.observed().shortages == ()
    assert [one.permanent for one in made.observed().failures] == [True]


def test_a_shortage_is_over_when_an_instance_runs_that_was_asked_for_later() -> None:
    made = pooled()
    made.short("blue", 1, "ml.big", "type-limit", "full", now=5.0)
    entry = made.instances["a"]
    entry.asked_at = 4.0
    made.had(entry)
    assert len(made.observed().shortages) == 1
    entry.asked_at = 5.5
    made.had(entry)
    assert made.observed().shortages == ()


def test_a_new_spec_asks_all_pools_anew() -> None:
    made = pooled()
    made.short("blue", 1, "ml.big", "type-limit", "full", now=5.0)
    active = made.desired.active
    assert active is not None
    more = replace(active, variants=(replace(active.variants[0], instance_count=2),))
    made.take_spec(replace(made.desired, active=more))
    assert made.observed().shortages == ()


def test_counts_by_type_add_up_to_those_of_the_variant() -> None:
    made = ledger("chat")
    made.instances["b"] = replace(made.instances["a"], instance_id="b", kind=BIG)
    load(made, 1, "chat")
    assert made.pool_counts() == {"blue": {"ml.local.small": 1, "ml.big": 1}}
    assert made.ready_counts() == {"blue": 2}
    assert made.component_types() == {"chat": {"ml.local.small": 1}}
    assert made.component_counts() == {"chat": 1}
