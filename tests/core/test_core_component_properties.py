"""Properties of `core/endpoint/reconcile.py` with inference components: it comes to rest where it
was told.

A small world carries the actions out as the control plane does, while Hypothesis asks for other
counts, other specifications and deletions, lets loads fail and instances die, and ends the server.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.deployment.capacity_spec import (
    BINPACK,
    SPREAD,
    ComponentRevision,
    ComponentSpec,
    CopySpec,
    component_of,
)
from penstock.core.deployment.deployment import (
    CONSOLIDATION,
    IDLE_RELEASE,
    DeploymentSpec,
    EndpointRoutes,
    ManagedScaling,
    ModelSource,
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
    LOST,
    READY,
    RELEASES,
    RUNNING,
    STARTING,
    STOPPING,
    UNLOADING,
    UPDATING,
    Action,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    EndpointSpec,
    ForgetComponent,
    InstanceObserved,
    LoadCopy,
    PublishRoutes,
    RefuseCopy,
    SetComponent,
    SlotFailure,
    StartInstance,
    StopInstance,
    UnloadCopy,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, failure_count
from penstock.core.endpoint.reconcile import decide
from penstock.core.resources import ComputeResources
from penstock.core.rollout.agreement import AS_GOOD, AgreementCounts, AgreementSpec, judge

SPEC = ReconcileSpec()
GIB = 2**30
#: By component: what a copy takes of an instance of 4 GiB and 2 cores, and how it is placed.
NEEDS = {
    "x": (CopySpec(resources=ComputeResources(memory_bytes=GIB, cores=0.5)), SPREAD),
    "y": (CopySpec(resources=ComputeResources(memory_bytes=2 * GIB)), BINPACK),
    "z": (CopySpec(resources=ComputeResources(memory_bytes=3 * GIB, cores=1.0)), BINPACK),
}
TRIES = {STARTING: RUNNING, LOADING: READY, LOST: READY, DRAINING: DRAINED}

#: What comparisons may have found: nothing, nothing sure, what is surely worse, surely as good.
AGREEMENT = AgreementSpec(slower_max=0.0)
PAIRS = (
    AgreementCounts(), AgreementCounts(agree=9), AgreementCounts(differ=20),
    AgreementCounts(agree=2000),
)  # fmt: skip

Slot = tuple[str, int]


def revision(name: str, number: int, batch: int = 0, *, held: bool = False) -> ComponentRevision:
    need, strategy = NEEDS[name]
    model = ModelSource(model_name=name)
    return ComponentRevision(
        number=number, model=model, need=need, strategy=strategy, batch=batch,
        batch_wait_s=5.0 if batch else 0.0, agreement=AGREEMENT if held else None,
    )  # fmt: skip


class ComponentWorld:
    """One endpoint in service, with the components that are asked for."""

    def __init__(self, managed: ManagedScaling | None) -> None:
        variant = VariantSpec(
            name="blue", model=None, instance_type="t", instance_count=2, managed=managed
        )
        spec = DeploymentSpec(endpoint="shop", generation=1, config_name="c", variants=(variant,))
        self.desired = EndpointSpec(endpoint="shop", status=IN_SERVICE, active=spec)
        self.now = 0.0
        self.instances: dict[str, InstanceObserved] = {}
        self.copies: dict[int, CopyObserved] = {}
        self.failures: dict[Slot, SlotFailure] = {}
        self.released: tuple[tuple[str, float], ...] = ()
        self.published: EndpointRoutes | None = None
        self.deadline: float | None = None
        self.number = 0
        self.pairs = PAIRS[0]

    def settle(self) -> None:
        """Decides until nothing more is to be done now; that must come soon."""
        for _ in range(60):
            observed = EndpointObserved(
                instances=tuple(self.instances.values()),
                copies=tuple(self.copies.values()),
                failures=tuple(self.failures.values()),
                published=self.published,
                released=self.released,
                component_agreements=dict.fromkeys(NEEDS, self.pairs),
            )
            decision = decide(self.desired, observed, now=self.now, spec=SPEC)
            self.deadline = decision.next_deadline
            assert self.deadline is None or self.deadline > self.now, "the driver would spin"
            if not decision.actions:
                self.check()
                return
            for action in decision.actions:
                self.apply(action)
        raise AssertionError("decisions do not come to rest")

    def apply(self, action: Action) -> None:
        match action:
            case StartInstance():
                self.number += 1
                name = f"i{self.number}"
                self.instances[name] = InstanceObserved(
                    instance_id=name, variant="blue", generation=1, ordinal=action.ordinal,
                    phase=STARTING, since=self.now,
                    resources=ComputeResources(memory_bytes=4 * GIB, cores=2.0),
                )  # fmt: skip
            case LoadCopy():
                self.load(action)
            case RefuseCopy():
                self.fail((action.component, action.ordinal), refused=True)
            case PublishRoutes():
                self.published = action.routes
                for number in self.named():
                    assert self.copies[number].phase == READY, "routed to what can't answer"
                    self.copies[number] = replace(self.copies[number], routed=True)
            case DrainCopy():
                assert action.copy not in self.named(), "drained while requests still come"
                assert self.copies[action.copy].phase in (READY, LOST)
                self.note_release(action.instance_id, action.reason)
                self.phase(action.copy, DRAINING)
            case UnloadCopy():
                assert action.copy not in self.named(), "unloaded while requests still come"
                self.phase(action.copy, UNLOADING)
            case StopInstance():
                on = [one for one in self.copies.values() if one.instance_id == action.instance_id]
                assert not any(one.routed and one.phase == READY for one in on), "not drained"
                self.note_release(action.instance_id, action.reason)
                one = self.instances[action.instance_id]
                self.instances[action.instance_id] = replace(one, phase=STOPPING)
            case SetComponent():
                self.set_component(action)
            case ForgetComponent():
                kept = [one for one in self.desired.components if one.name != action.component]
                self.change(tuple(kept))
            case _:
                raise AssertionError(f"nobody asked for {action}")

    def load(self, action: LoadCopy) -> None:
        assert self.instances[action.instance_id].phase == RUNNING
        name = component_of(action.component)
        need, _ = NEEDS[name]
        self.number += 1
        self.copies[self.number] = CopyObserved(
            copy=self.number, instance_id=action.instance_id, variant="blue", generation=1,
            component=action.component, ordinal=action.ordinal, phase=LOADING, since=self.now,
            need=need, outstanding_max=4,
        )  # fmt: skip

    def set_component(self, action: SetComponent) -> None:
        """As the store does it."""
        changed = []
        for one in self.desired.components:
            if one.name == action.component and one.status != DELETING:
                assert action.copies == one.copies
                active, target = one.active, None
                if one.target is not None and action.active_revision == one.target.number:
                    proved = judge(AGREEMENT, self.pairs).verdict == AS_GOOD
                    assert one.compared is None or proved, "it took over unproved"
                    active = one.target
                if one.target is not None and action.goes_back:
                    active = one.target
                    target = replace(one.active, batch=1, goes_back=action.goes_back)
                one = replace(one, status=action.status, active=active, target=target)  # noqa: PLW2901
            changed.append(one)
        self.change(tuple(changed))

    def change(self, components: tuple[ComponentSpec, ...]) -> None:
        """As the ledger does it: fresh attempts for whom it concerns."""
        concerned = {one.name for one in set(self.desired.components) ^ set(components)}
        there = {one.name for one in components}
        self.desired = replace(self.desired, components=components)
        self.failures = {
            slot: replace(failure, count=0, permanent=False)
            if not slot[0] or component_of(slot[0]) in concerned
            else failure
            for slot, failure in self.failures.items()
            if not slot[0] or component_of(slot[0]) in there
        }

    def ask(self, name: str, what: str, copies: int) -> None:
        """A caller's spec, refused as the store refuses it."""
        found = {one.name: one for one in self.desired.components}
        one = found.get(name)
        if what == "create" and one is None:
            found[name] = ComponentSpec(
                name=name, variant="blue", status=CREATING, copies=copies, active=revision(name, 1)
            )
        elif what == "delete" and one is not None:
            found[name] = replace(one, status=DELETING)
        elif one is not None and one.status == IN_SERVICE and what in ("update", "roll", "agree"):
            self.number += 1
            batch = int(what != "update")
            target = revision(name, self.number + 1, batch, held=what == "agree")
            found[name] = replace(one, status=UPDATING, copies=copies, target=target)
        elif one is not None and one.status in (IN_SERVICE, UPDATING) and what == "copies":
            found[name] = replace(one, status=UPDATING, copies=copies)
        self.change(tuple(found[key] for key in sorted(found)))

    def step(self, which: int, luck: str) -> None:
        """What becomes of one thing that is under way."""
        if luck == "die" and self.instances:
            name = sorted(self.instances)[which % len(self.instances)]
            self.fail(("", self.instances[name].ordinal))
            self.remove(name)
        elif self.copies:
            number = sorted(self.copies)[which % len(self.copies)]
            copy = self.copies[number]
            if luck == "wrong" and copy.phase == LOADING:
                self.fail((copy.component, copy.ordinal))
                self.phase(number, UNLOADING)
            elif luck == "lost" and copy.phase == READY:
                self.phase(number, LOST)
            elif luck == "ok":
                self.succeed(number)

    def succeed(self, number: int) -> None:
        phase = self.copies[number].phase
        if phase == UNLOADING:
            del self.copies[number]
        elif phase in TRIES:
            self.phase(number, TRIES[phase])

    def calm(self) -> None:
        """Everything under way succeeds, once."""
        for name, one in list(self.instances.items()):
            if one.phase == STARTING:
                self.instances[name] = replace(one, phase=RUNNING, since=self.now)
            elif one.phase == STOPPING:
                self.remove(name)
        for number in list(self.copies):
            self.succeed(number)

    def heal(self) -> None:
        """Good weather from now on, until nothing is under way and what is left to wait for is
        room, with the pauses between two tries to find some."""
        self.pairs = PAIRS[-1]
        until = self.now + 10_000.0
        for _ in range(1200):
            self.settle()
            under_way = any(one.phase != RUNNING for one in self.instances.values())
            under_way |= any(one.phase != READY for one in self.copies.values())
            if under_way:
                self.calm()
            elif self.deadline is not None and self.now < until:
                self.now = self.deadline
            else:
                return
        raise AssertionError("it does not converge")

    def check(self) -> None:
        named = [self.copies[number] for number in self.named()]
        assert all(copy.phase == READY for copy in named)
        for name, one in self.instances.items():
            needs = [
                copy.need.resources for copy in self.copies.values() if copy.instance_id == name
            ]
            assert sum(need.memory_bytes for need in needs) <= one.resources.memory_bytes, (
                "overcommitted"
            )
            assert sum(need.cores for need in needs) <= one.resources.cores, "overcommitted"
        ended = {one.name for one in self.desired.components if one.status in (FAILED, DELETING)}
        assert not ended & {component_of(copy.component) for copy in named}

    def named(self) -> set[int]:
        routes = self.published.variants if self.published is not None else ()
        return {copy.copy for variant in routes for copy in variant.copies}

    def note_release(self, name: str, reason: str) -> None:
        if reason in RELEASES:
            self.instances[name] = replace(self.instances[name], leaving=True)
            self.released = (("blue", self.now),)

    def phase(self, number: int, phase: str) -> None:
        self.copies[number] = replace(self.copies[number], phase=phase, since=self.now)

    def remove(self, name: str) -> None:
        del self.instances[name]
        for number in [n for n, one in self.copies.items() if one.instance_id == name]:
            del self.copies[number]

    def fail(self, slot: Slot, *, refused: bool = False) -> None:
        component, ordinal = slot
        self.failures[slot] = SlotFailure(
            variant="blue", generation=1, component=component, ordinal=ordinal, at=self.now,
            count=failure_count(self.failures.get(slot), ready_s=0.0, spec=SPEC),
            message="it failed", permanent=refused, refused=refused,
        )  # fmt: skip

    def restart(self) -> None:
        """The server was killed: instances die with it, the record stays."""
        self.instances.clear()
        self.copies.clear()
        self.failures.clear()
        self.released = ()
        self.published = None


MANAGED = st.one_of(
    st.none(),
    st.builds(
        ManagedScaling,
        instances_min=st.integers(0, 2),
        instances_max=st.integers(2, 4),
        strategy=st.sampled_from([IDLE_RELEASE, CONSOLIDATION]),
        step_max=st.integers(0, 1),
        cooldown_s=st.just(60.0),
    ),
)
EVENTS = st.one_of(
    st.tuples(
        st.sampled_from(
            ["create", "create", "copies", "copies", "update", "roll", "agree", "delete"]
        ),
        st.sampled_from(sorted(NEEDS)),
        st.integers(0, 4),
    ),
    st.tuples(st.just("pairs"), st.just(""), st.integers(0, len(PAIRS) - 1)),
    st.tuples(
        st.just("step"),
        st.sampled_from(["ok", "ok", "ok", "die", "wrong", "lost"]),
        st.integers(0, 9),
    ),
    st.tuples(
        st.sampled_from(["calm", "calm", "time", "time", "restart"]), st.just(""), st.just(0)
    ),
)


@settings(max_examples=100, deadline=None)
@given(MANAGED, st.lists(EVENTS, max_size=40))
def test_components_end_where_they_were_told_whatever_happens_in_between(
    managed: ManagedScaling | None, events: list[tuple[str, str, int]]
) -> None:
    world = ComponentWorld(managed)
    world.settle()
    comes_to_rest(world, managed, events)


@settings(max_examples=200, deadline=None)
@given(MANAGED, st.integers(1, 3), st.lists(EVENTS, max_size=20))
def test_nothing_takes_over_unproved_whatever_happens_to_a_rollout_that_is_held_to_agreement(
    managed: ManagedScaling | None, copies: int, events: list[tuple[str, str, int]]
) -> None:
    world = ComponentWorld(managed)
    world.settle()
    world.ask("x", "create", copies)
    world.heal()
    world.pairs = PAIRS[0]
    world.ask("x", "agree", copies)
    comes_to_rest(world, managed, events)


def comes_to_rest(
    world: ComponentWorld, managed: ManagedScaling | None, events: list[tuple[str, str, int]]
) -> None:
    for what, detail, number in events:
        if what == "step":
            world.step(number, detail)
        elif what == "calm":
            world.calm()
        elif what == "restart":
            world.restart()
        elif what == "pairs":
            world.pairs = PAIRS[number]
        elif what == "time" and world.deadline is not None:
            world.now = world.deadline
        elif what != "time":
            world.ask(detail, what, number)
        world.settle()
    world.heal()
    ready: dict[str, int] = {}
    for copy in world.copies.values():
        ready[copy.component] = ready.get(copy.component, 0) + 1
    for one in world.desired.components:
        assert one.status in (IN_SERVICE, FAILED)
        assert one.target is None
        serving = ready.pop(f"{one.name}/{one.active.number}", 0)
        if one.status == FAILED:
            assert serving == 0
        else:
            assert serving <= one.copies
    assert ready == {}, "copies of something that nobody asks for"
    assert {copy.copy for copy in world.copies.values()} == world.named()
    if managed is None:
        assert len(world.instances) == 2
    else:
        assert managed.instances_min <= len(world.instances) <= managed.instances_max
        busy = {copy.instance_id for copy in world.copies.values()}
        assert len(world.instances) == max(len(busy), managed.instances_min)


@settings(max_examples=100, deadline=None)
@given(MANAGED, st.tuples(*[st.integers(0, 2)] * 3))
def test_in_good_weather_every_copy_that_has_room_is_loaded(
    managed: ManagedScaling | None, copies: tuple[int, int, int]
) -> None:
    """Created largest first, so that none can be in the way of a larger one."""
    world = ComponentWorld(managed)
    world.settle()
    for name, count in zip("zyx", reversed(copies), strict=True):
        world.ask(name, "create", count)
        world.heal()
    failed = [one for one in world.desired.components if one.status == FAILED]
    in_all = 2 if managed is None else managed.instances_max
    # An instance holds one z with one x, or two y.
    if copies[2] + (copies[1] + 1) // 2 <= in_all and copies[0] <= copies[2]:
        assert not failed
