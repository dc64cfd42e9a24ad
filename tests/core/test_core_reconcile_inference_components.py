"""`core/endpoint/reconcile.py` of an endpoint that takes inference components: whole lists of
actions.

One variant `blue` without a model; `chat` and `rank` are components on it.
"""

from __future__ import annotations

from dataclasses import replace

from tests.kit.core_components import NEED, chat, copy, failed, revision

from penstock.core.deployment.capacity_spec import BINPACK, ComponentSpec, CopySpec
from penstock.core.deployment.deployment import (
    CONSOLIDATION,
    ComparedRoutes,
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    ManagedScaling,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    DRAINED,
    DRAINING,
    FAILED,
    IN_SERVICE,
    LOADING,
    RUNNING,
    STARTING,
    UPDATING,
    Action,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    EndpointSpec,
    FinishDelete,
    ForgetComponent,
    InstanceObserved,
    LoadCopy,
    PublishRoutes,
    RefuseCopy,
    SetComponent,
    SetStatus,
    StartInstance,
    StopInstance,
    UnloadCopy,
    WithdrawRoutes,
)
from penstock.core.deployment.slot_retries import ReconcileSpec
from penstock.core.endpoint.reconcile import decide
from penstock.core.resources import ComputeResources
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec

MANAGED = ManagedScaling(instances_min=0, instances_max=3, cooldown_s=60.0)


def deployment(
    count: int = 1, *, generation: int = 1, managed: ManagedScaling | None = None
) -> DeploymentSpec:
    return DeploymentSpec(
        endpoint="shop",
        generation=generation,
        config_name=f"config-{generation}",
        variants=(
            VariantSpec(
                name="blue",
                model=None,
                instance_type="ml.local.medium",
                instance_count=count,
                managed=managed,
            ),
        ),
    )


def instance(
    name: str, ordinal: int = 0, *, phase: str = RUNNING, leaving: bool = False, generation: int = 1
) -> InstanceObserved:
    """With room for two copies."""
    return InstanceObserved(
        instance_id=name,
        variant="blue",
        generation=generation,
        ordinal=ordinal,
        phase=phase,
        since=0.0,
        resources=ComputeResources(memory_bytes=int(2.5 * 2**30), cores=4.0),
        leaving=leaving,
    )


A, B = instance("a"), instance("b", 1)
SERVES = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=deployment())


def actions(
    desired: EndpointSpec,
    *instances: InstanceObserved,
    copies: tuple[CopyObserved, ...] = (),
    published: EndpointRoutes | None = None,
    now: float = 0.0,
    **more: object,
) -> tuple[Action, ...]:
    state = EndpointObserved(instances=instances, copies=copies, published=published, **more)  # type: ignore[arg-type]
    return decide(desired, state, now=now, spec=ReconcileSpec()).actions


def routes(**components: tuple[tuple[int, str], ...]) -> EndpointRoutes:
    """By component, its copies and where they are."""
    return EndpointRoutes(
        endpoint="shop",
        takes_components=True,
        variants=tuple(
            VariantRoutes(
                name="blue",
                component=name,
                weight=1.0,
                strategy="LEAST_OUTSTANDING_REQUESTS",
                copies=tuple(
                    CopyRoute(copy=number, instance_id=where, outstanding_max=8)
                    for number, where in copies
                ),
                model={"name": f"{name}/1"} if copies else {},
            )
            for name, copies in components.items()
        ),
    )


def test_an_endpoint_without_components_is_in_service_once_its_instances_run() -> None:
    create = EndpointSpec(
        endpoint="shop", status=CREATING, target=deployment(), components=(chat(1, CREATING),)
    )
    assert actions(create) == (StartInstance("blue", 1, 0, "new-generation"),)
    # A component that was asked for early waits for its endpoint.
    assert actions(create, A) == (
        PublishRoutes(routes(chat=()), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 1),
    )


def test_a_component_comes_beside_another_and_is_routed_to_once_it_is_ready() -> None:
    both = replace(SERVES, components=(chat(1, CREATING), chat(1, name="rank")))
    rank = copy(7, of="rank/1")
    before = routes(chat=(), rank=((7, "a"),))
    assert actions(both, A, copies=(rank,), published=before) == (
        LoadCopy("a", "chat/1", 1, 0, "copy-count"),
    )
    loading = copy(8, phase=LOADING)
    assert actions(both, A, copies=(rank, loading), published=before) == ()
    ready = copy(8, routed=False)
    assert actions(both, A, copies=(rank, ready), published=before) == (
        PublishRoutes(routes(chat=((8, "a"),), rank=((7, "a"),)), "copies-changed"),
        SetComponent("chat", IN_SERVICE, 1, "copies-ready", "", 1),
    )


def test_down_to_no_copies_the_component_stays_in_service_and_in_the_routes() -> None:
    none = replace(SERVES, components=(chat(0, UPDATING),))
    assert actions(none, A, copies=(copy(1),), published=routes(chat=((1, "a"),))) == (
        PublishRoutes(routes(chat=()), "copies-changed"),
        DrainCopy("a", 1, "copy-count"),
        SetComponent("chat", IN_SERVICE, 0, "counts-reached", "", 1),
    )
    after = replace(SERVES, components=(chat(0),))
    assert actions(after, A, copies=(copy(1, phase=DRAINED),), published=routes(chat=())) == (
        UnloadCopy("a", 1, "drained"),
    )
    assert actions(after, A, published=routes(chat=())) == ()


def test_a_copy_that_has_no_room_says_what_is_short_and_fails_a_new_component() -> None:
    three = replace(SERVES, components=(chat(3, CREATING),))
    there = (copy(1), copy(2, 1))
    seen = routes(chat=((1, "a"), (2, "a")))
    (refusal,) = actions(three, A, copies=there, published=seen)
    assert isinstance(refusal, RefuseCopy)
    assert (refusal.component, refusal.ordinal, refusal.reason) == ("chat/1", 2, "memory-taken")
    assert refusal.failure.startswith("CapacityError: a copy of chat needs 1.00 GiB of memory, 1")
    short = replace(failed(2, permanent=True, count=1), message=refusal.failure, refused=True)
    assert actions(three, A, copies=there, published=seen, failures=(short,), now=5.0) == (
        SetComponent("chat", FAILED, 3, "component-failed", refusal.failure, 1),
    )
    # It is told to all that ask for it, its copies go, and its endpoint serves on.
    over = replace(SERVES, components=(chat(3, FAILED),))
    assert actions(over, A, copies=there, published=seen) == (
        PublishRoutes(routes(), "copies-changed"),
        DrainCopy("a", 1, "copy-count"),
        DrainCopy("a", 2, "copy-count"),
    )


def test_a_count_beyond_what_there_is_room_for_keeps_what_has_room_and_the_spec() -> None:
    more = replace(SERVES, components=(chat(3, UPDATING),))
    there = (copy(1), copy(2, 1))
    seen = routes(chat=((1, "a"), (2, "a")))
    short = replace(failed(2, permanent=True, count=1), refused=True)
    assert actions(more, A, copies=there, published=seen, failures=(short,), now=5.0) == (
        SetComponent("chat", IN_SERVICE, 3, "counts-out-of-reach", "chat/1 can't be had.", 1),
    )
    # Later another instance is there: the copy is loaded without anybody asking again.
    desired = replace(SERVES, active=deployment(2), components=(chat(3),))
    assert actions(desired, A, B, copies=there, published=seen, failures=(short,), now=5.0) == (
        LoadCopy("b", "chat/1", 1, 2, "copy-count"),
    )


def test_a_new_specification_comes_up_beside_the_old_one_and_takes_over_as_a_whole() -> None:
    update = replace(SERVES, components=(chat(1, UPDATING, target=revision(2)),))
    seen = routes(chat=((1, "a"),))
    assert actions(update, A, copies=(copy(1),), published=seen) == (
        LoadCopy("a", "chat/2", 1, 0, "copy-count"),
    )
    both = (copy(1), copy(2, of="chat/2", routed=False))
    new = replace(routes(chat=((2, "a"),)).variants[0], model={"name": "chat/2"})
    after = replace(seen, variants=(new,))
    assert actions(update, A, copies=both, published=seen) == (
        PublishRoutes(after, "copies-changed"),
        SetComponent("chat", IN_SERVICE, 1, "revision-ready", "", 2),
    )
    serves = replace(SERVES, components=(chat(1, active=revision(2)),))
    assert actions(serves, A, copies=both, published=after) == (
        DrainCopy("a", 1, "old-generation"),
    )


def test_batch_by_batch_both_revisions_are_routed_to_meanwhile() -> None:
    update = replace(SERVES, components=(chat(2, UPDATING, target=revision(2, batch=1)),))
    there = (copy(1), copy(2, 1, where="b"), copy(3, of="chat/2", routed=False))
    desired = replace(update, active=deployment(2))
    seen = routes(chat=((1, "a"), (2, "b")))
    (publish, drain, load) = sorted(
        actions(desired, A, B, copies=there, published=seen), key=lambda one: type(one).__name__,
        reverse=True,
    )  # fmt: skip
    assert load == DrainCopy("b", 2, "copy-count")
    assert drain == LoadCopy("b", "chat/2", 1, 1, "copy-count")
    assert isinstance(publish, PublishRoutes)
    assert [one.copy for one in publish.routes.variants[0].copies] == [1, 3]


SCORES = AgreementSpec(slower_max=0.0)
HELD = replace(revision(2, batch=1), agreement=SCORES, rollout=7)


def compared(old: tuple[int, str], new: tuple[int, str]) -> EndpointRoutes:
    """Routes of `chat`: a copy of each revision, whose answers are compared."""
    (entry,) = routes(chat=(old, new)).variants
    first, second = entry.copies
    copies = (first, replace(second, incoming=True))
    marked = replace(entry, copies=copies, compared=ComparedRoutes(rollout=7, spec=SCORES))
    return replace(routes(), variants=(marked,))


def test_while_both_revisions_have_copies_gateways_compare_their_answers_and_all_else_stands() -> (
    None
):
    update = replace(SERVES, components=(chat(1, UPDATING, target=HELD),))
    alone = routes(chat=((1, "a"),))
    loading = (copy(1), copy(2, of="chat/2", phase=LOADING))
    assert actions(update, A, copies=loading, published=alone) == ()
    both = (copy(1), copy(2, of="chat/2", routed=False))
    told = compared((1, "a"), (2, "a"))
    assert actions(update, A, copies=both, published=alone) == (
        PublishRoutes(told, "copies-changed"),
    )
    seen = EndpointObserved(instances=(A,), copies=both, published=told)
    waits = decide(update, seen, now=100.0, spec=ReconcileSpec())
    assert (waits.actions, waits.next_deadline) == ((), 101.0)
    # An old copy that dies is replaced, and meanwhile there is nothing to compare with.
    (publish, load) = sorted(
        actions(update, A, copies=both[1:], published=told), key=lambda one: type(one).__name__,
        reverse=True,
    )  # fmt: skip
    assert load == LoadCopy("a", "chat/1", 1, 0, "copy-count")
    assert isinstance(publish, PublishRoutes)
    (entry,) = publish.routes.variants
    assert ([(one.copy, one.incoming) for one in entry.copies], entry.compared) == (
        [(2, False)], None,
    )  # fmt: skip


def test_what_the_answers_say_of_one_component_is_done_with_that_one() -> None:
    update = replace(
        SERVES,
        components=(
            chat(1, UPDATING, target=HELD), chat(1, UPDATING, target=HELD, name="rank"),
        ),
    )  # fmt: skip
    both = (copy(1), copy(2, of="chat/2"), copy(3, of="rank/1", where="b"))
    both += (copy(4, of="rank/2", where="b"),)
    good, worse = AgreementCounts(agree=2000), AgreementCounts(differ=20)
    desired = replace(update, active=deployment(2))
    made = actions(desired, A, B, copies=both, component_agreements={"chat": good, "rank": worse})
    assert isinstance(made[0], PublishRoutes)
    assert [[one.copy for one in each.copies] for each in made[0].routes.variants] == [[2], [3, 4]]
    by_name = {one.component: one for one in made if isinstance(one, SetComponent)}
    chat_, rank = by_name["chat"], by_name["rank"]
    assert (chat_.status, chat_.reason, chat_.active_revision) == (IN_SERVICE, "agreed", 2)
    assert (rank.status, rank.reason) == (UPDATING, "goes-back")
    assert rank.goes_back.startswith("the update went back: 20 of 20 answers disagree")


def test_a_component_that_is_deleted_leaves_the_routes_drains_and_is_forgotten() -> None:
    going = replace(SERVES, components=(chat(1, DELETING),))
    assert actions(going, A, copies=(copy(1),), published=routes(chat=((1, "a"),))) == (
        PublishRoutes(routes(), "copies-changed"),
        DrainCopy("a", 1, "copy-count"),
    )
    assert actions(going, A, copies=(copy(1, phase=DRAINING),), published=routes()) == ()
    assert actions(going, A, published=routes()) == (ForgetComponent("chat", "nothing-left"),)


def test_an_endpoint_that_is_deleted_takes_its_components_along() -> None:
    going = EndpointSpec(
        endpoint="shop", status=DELETING, active=deployment(), components=(chat(1, DELETING),)
    )
    assert actions(going, A, copies=(copy(1),), published=routes(chat=((1, "a"),))) == (
        WithdrawRoutes("endpoint-deleted"),
        DrainCopy("a", 1, "endpoint-deleted"),
    )
    assert actions(going) == (FinishDelete("nothing-left"),)


def test_components_of_an_endpoint_that_failed_fail_with_it() -> None:
    dead = EndpointSpec(
        endpoint="shop", status=FAILED, target=deployment(),
        components=(chat(1, CREATING), chat(1, DELETING, name="rank"), chat(1, FAILED, name="x")),
    )  # fmt: skip
    story = "the endpoint that it was to be on has failed"
    assert actions(dead) == (
        SetComponent("chat", FAILED, 1, "endpoint-failed", story),
        ForgetComponent("rank", "nothing-left"),
    )


def test_a_new_generation_takes_over_once_the_copies_of_the_components_are_on_it_too() -> None:
    desired = EndpointSpec(
        endpoint="shop", status=UPDATING, active=deployment(), components=(chat(1),),
        target=deployment(generation=2),
    )  # fmt: skip
    seen = routes(chat=((1, "a"),))
    assert actions(desired, A, copies=(copy(1),), published=seen) == (
        StartInstance("blue", 2, 0, "new-generation"),
    )
    new = instance("n", generation=2)
    assert actions(desired, A, new, copies=(copy(1),), published=seen) == (
        LoadCopy("n", "chat/1", 2, 0, "copy-count"),
    )
    there = (copy(1), replace(copy(2, where="n", routed=False), generation=2))
    assert actions(desired, A, new, copies=there, published=seen) == (
        PublishRoutes(routes(chat=((2, "n"),)), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 2),
    )


def managed(*components: object, **changes: object) -> EndpointSpec:
    spec = replace(MANAGED, **changes)  # type: ignore[arg-type]
    return replace(SERVES, active=deployment(managed=spec), components=components)  # type: ignore[arg-type]


def test_instances_follow_the_copies_from_none_up_and_down_again() -> None:
    assert actions(managed(), published=routes()) == ()
    new = managed(chat(3, CREATING))
    assert actions(new, published=routes(chat=())) == (
        StartInstance("blue", 1, 0, "copies-need-more"),
    )
    starting = instance("a", phase=STARTING)
    assert actions(new, starting, published=routes(chat=())) == (
        StartInstance("blue", 1, 1, "copies-need-more"),
    )
    assert actions(new, A, instance("b", 1, phase=STARTING), published=routes(chat=())) == (
        LoadCopy("a", "chat/1", 1, 0, "copy-count"),
        LoadCopy("a", "chat/1", 1, 1, "copy-count"),
    )
    none = managed(chat(0))
    assert actions(none, A, B, published=routes(chat=()), now=59.0) == ()
    assert actions(none, A, B, published=routes(chat=()), now=60.0) == (
        StopInstance("a", "idle-release"),
        StopInstance("b", "idle-release"),
    )


def test_at_the_maximum_what_is_left_over_is_refused() -> None:
    full = managed(chat(3, CREATING), instances_max=1)
    there = (copy(1), copy(2, 1))
    (refusal,) = actions(full, A, copies=there, published=routes(chat=((1, "a"), (2, "a"))))
    assert isinstance(refusal, RefuseCopy)
    assert refusal.reason == "memory-taken"


def test_consolidation_loads_elsewhere_first_then_drains_and_stops() -> None:
    packed = chat(2, active=replace(revision(), strategy=BINPACK))
    desired = managed(packed, strategy=CONSOLIDATION, step_max=1)
    apart = (copy(1), copy(2, 1, where="b"))
    seen = routes(chat=((1, "a"), (2, "b")))
    assert actions(desired, A, B, copies=apart, published=seen, now=60.0) == (
        LoadCopy("a", "chat/1", 1, 1, "copy-count"),
    )
    loading = (*apart, copy(3, 1, phase=LOADING))
    assert actions(desired, A, B, copies=loading, published=seen, now=60.0) == ()
    ready = (*apart, copy(3, 1, routed=False))
    assert actions(desired, A, B, copies=ready, published=seen, now=61.0) == (
        PublishRoutes(routes(chat=((1, "a"), (3, "a"))), "copies-changed"),
        DrainCopy("b", 2, "consolidation"),
    )
    going = instance("b", 1, leaving=True)
    drained = (copy(1), copy(3, 1), replace(copy(2, 1, where="b"), phase=DRAINED))
    after = routes(chat=((1, "a"), (3, "a")))
    released = (("blue", 61.0),)
    assert actions(
        desired, A, going, copies=drained, published=after, now=62.0, released=released
    ) == (StopInstance("b", "drained"),)
    assert NEED.resources.cores == 1.0


def lora(status: str = IN_SERVICE) -> ComponentSpec:
    return replace(
        chat(0, status, name="lora"), active=replace(revision(), base="chat", need=CopySpec())
    )


def riding(number: int, base: int, where: str = "a", **more: object) -> CopyObserved:
    made = copy(number, base, of="lora/1", where=where, **more)  # type: ignore[arg-type]
    return replace(made, base_copy=base, need=CopySpec())


def adapted(**components: tuple[tuple[int, str, int], ...]) -> EndpointRoutes:
    """By component, its copies, where they are, and the copies of the base that they are on."""
    plain = routes(**{name: tuple(one[:2] for one in all_) for name, all_ in components.items()})
    return replace(
        plain,
        variants=tuple(
            replace(
                one,
                base="chat" if one.component == "lora" else "",
                copies=tuple(
                    replace(route, base_copy=told[2])
                    for route, told in zip(one.copies, components[one.component], strict=True)
                ),
            )
            for one in plain.variants
        ),
    )


def test_an_adapter_is_routed_to_where_its_base_has_it_and_needs_no_room() -> None:
    """The instance has room for two copies, and the base has both of them."""
    desired = replace(SERVES, components=(chat(2), lora(CREATING)))
    bases = (copy(1), copy(2, 1))
    known = adapted(chat=((1, "a", 0), (2, "a", 0)), lora=())
    assert actions(desired, A, copies=bases, published=known) == (
        LoadCopy("a", "lora/1", 1, 1, "base-ready", 1),
        LoadCopy("a", "lora/1", 1, 2, "base-ready", 2),
    )
    one = (*bases, riding(11, 1, routed=False), riding(12, 2, phase=LOADING))
    told = adapted(chat=((1, "a", 0), (2, "a", 0)), lora=((11, "a", 1),))
    assert actions(desired, A, copies=one, published=known) == (
        PublishRoutes(told, "copies-changed"),
    )
    both = (*bases, riding(11, 1), riding(12, 2, routed=False))
    told = adapted(chat=((1, "a", 0), (2, "a", 0)), lora=((11, "a", 1), (12, "a", 2)))
    assert actions(desired, A, copies=both, published=told) == (
        SetComponent("lora", IN_SERVICE, 0, "copies-ready", "", 1),
    )
    assert (
        actions(replace(desired, components=(chat(2), lora())), A, copies=both, published=told)
        == ()
    )


def test_an_adapter_is_compared_with_the_one_before_on_the_same_copy_of_its_base() -> None:
    target = replace(HELD, base="chat", need=CopySpec())
    update = replace(SERVES, components=(chat(1), replace(lora(UPDATING), target=target)))
    both = (copy(1), riding(11, 1), replace(riding(12, 1, routed=False), component="lora/2"))
    (publish,) = actions(update, A, copies=both)
    assert isinstance(publish, PublishRoutes)
    entry = publish.routes.variants[1]
    assert [(one.copy, one.base_copy, one.incoming) for one in entry.copies] == [
        (11, 1, False), (12, 1, True),
    ]  # fmt: skip
    assert entry.compared == ComparedRoutes(rollout=7, spec=SCORES)
    worse = {"lora": AgreementCounts(differ=20)}
    [back] = actions(
        update, A, copies=both, published=publish.routes, component_agreements=worse
    )  # fmt: skip
    assert isinstance(back, SetComponent)
    assert (back.component, back.status, back.reason) == ("lora", UPDATING, "goes-back")


def test_a_copy_of_a_base_goes_after_its_adapters_and_takes_none_of_their_streams() -> None:
    desired = replace(SERVES, components=(chat(1), lora()))
    kept = (copy(1), riding(11, 1))
    told = adapted(chat=((1, "a", 0),), lora=((11, "a", 1),))
    before = adapted(chat=((1, "a", 0), (2, "a", 0)), lora=((11, "a", 1), (12, "a", 2)))
    assert actions(desired, A, copies=(*kept, copy(2, 1), riding(12, 2)), published=before) == (
        PublishRoutes(told, "copies-changed"),
        DrainCopy("a", 2, "copy-count"),
        DrainCopy("a", 12, "base-leaves"),
    )
    # The base's own requests are over first; it waits.
    drained, drains = copy(2, 1, phase=DRAINED), riding(12, 2, phase=DRAINING)
    assert actions(desired, A, copies=(*kept, drained, drains), published=told) == ()
    over = riding(12, 2, phase=DRAINED)
    assert actions(desired, A, copies=(*kept, drained, over), published=told) == (
        UnloadCopy("a", 12, "drained"),
    )
    assert actions(desired, A, copies=(*kept, drained), published=told) == (
        UnloadCopy("a", 2, "drained"),
    )


def test_a_new_generation_waits_for_no_rollout_of_an_adapter_that_waits_itself() -> None:
    """It needs both artifacts, which are compared for as long as it takes."""
    target = replace(HELD, base="chat", need=CopySpec(), batch_wait_s=3600.0)
    compared_ = replace(lora(UPDATING), target=target)
    desired = replace(
        SERVES, status=UPDATING, target=deployment(generation=2), components=(chat(1), compared_)
    )
    new = instance("n", generation=2)
    base = replace(copy(2, where="n", routed=False), generation=2)
    former = replace(riding(12, 2, "n", routed=False), generation=2)
    newest = replace(former, copy=13, component="lora/2")
    takes_over = SetStatus(IN_SERVICE, "generation-ready", "", 2)
    assert takes_over in actions(desired, A, new, copies=(copy(1), base, former, newest))
    for some in ((former,), (newest, replace(former, phase=LOADING))):
        made = actions(desired, A, new, copies=(copy(1), base, *some))
        assert (takes_over in made) == (newest in some)


def test_a_new_generation_takes_over_when_adapters_are_on_it_as_well() -> None:
    desired = replace(
        SERVES, status=UPDATING, target=deployment(generation=2), components=(chat(1), lora())
    )
    new = instance("n", generation=2)
    old = (copy(1), riding(11, 1))
    base = replace(copy(2, where="n", routed=False), generation=2)
    told = adapted(chat=((1, "a", 0),), lora=((11, "a", 1),))
    assert actions(desired, A, new, copies=(*old, base), published=told) == (
        LoadCopy("n", "lora/1", 2, 2, "base-ready", 2),
    )
    on_new = replace(riding(12, 2, "n", routed=False), generation=2)
    assert actions(desired, A, new, copies=(*old, base, on_new), published=told) == (
        PublishRoutes(adapted(chat=((2, "n", 0),), lora=((12, "n", 2),)), "generation-ready"),
        SetStatus(IN_SERVICE, "generation-ready", "", 2),
    )
