"""Properties of `core/endpoint/reconcile.py`: whatever fails in between, it converges and harms
nobody.

A small world carries the actions out as the control plane's driver does, with the weather chosen by
Hypothesis: starts and loads that succeed, fail or hang, deaths, updates with and without a rollout
policy, alarms, answers that agree or not, orders, new counts, deletions.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.alarms.spec import ALARM, OK
from penstock.core.deployment.deployment import (
    DeploymentSpec,
    EndpointRoutes,
    ModelSource,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import (
    CREATING,
    DELETING,
    DRAINED,
    DRAINING,
    FAILED,
    GONE,
    IN_SERVICE,
    LOADING,
    LOST,
    READY,
    RUNNING,
    STARTING,
    STOPPING,
    UPDATING,
    Action,
    CopyObserved,
    DrainCopy,
    EndpointObserved,
    EndpointSpec,
    FinishDelete,
    InstanceObserved,
    LoadCopy,
    PublishRoutes,
    SetRollout,
    SetStatus,
    SlotFailure,
    StartInstance,
    StopInstance,
    WithdrawRoutes,
)
from penstock.core.deployment.slot_retries import ReconcileSpec, failure_count
from penstock.core.endpoint.reconcile import decide
from penstock.core.rollout.agreement import AgreementCounts, AgreementSpec
from penstock.core.rollout.policy import (
    ALL_AT_ONCE,
    CANARY,
    CAPACITY_PERCENT,
    INSTANCE_COUNT,
    LINEAR,
    ORDERS,
    PAUSE,
    RESUME,
    ROLLING,
    ROLLING_BACK,
    TERMINATING,
    RolloutPolicy,
    RolloutSize,
)

SPEC = ReconcileSpec()
LEAVING = (DRAINING, DRAINED)
WALL = 5000.0  #: the wall clock when the other one says 0


def deployment(generation: int, counts: tuple[int, ...]) -> DeploymentSpec:
    return DeploymentSpec(
        endpoint="shop",
        generation=generation,
        config_name=f"config-{generation}",
        variants=tuple(
            VariantSpec(
                name=f"v{number}",
                model=ModelSource(model_name="m"),
                instance_type="ml.local.small",
                instance_count=count,
                download_timeout_s=60.0,
                startup_timeout_s=60.0,
            )
            for number, count in enumerate(counts)
        ),
    )


class World:
    """One endpoint, its instances with their copies, and the checks after every action."""

    def __init__(self, counts: tuple[int, ...]) -> None:
        self.now = 0.0
        self.desired: EndpointSpec | None = EndpointSpec(
            endpoint="shop", status=CREATING, target=deployment(1, counts)
        )
        self.instances: dict[str, InstanceObserved] = {}
        self.copies: dict[str, CopyObserved] = {}  #: by their instance
        self.failures: dict[tuple[int, str, int], SlotFailure] = {}
        self.published: EndpointRoutes | None = None
        self.deadline: float | None = None
        self.number = 0
        self.alarm = OK
        self.pairs = AgreementCounts()

    def observed(self) -> EndpointObserved:
        return EndpointObserved(
            instances=tuple(self.instances.values()),
            copies=tuple(self.copies.values()),
            failures=tuple(self.failures.values()),
            published=self.published,
            alarms={"errors": self.alarm},
            agreement=self.pairs,
        )

    def named(self) -> set[int]:
        if self.published is None:
            return set()
        return {copy.copy for variant in self.published.variants for copy in variant.copies}

    def happen(self, what: str, which: int, detail: object) -> None:
        """One of `EVENTS`, and all that is decided because of it."""
        if what == "step" and self.instances:
            names = list(self.instances)
            assert isinstance(detail, str)
            self.step(names[which % len(names)], detail)
        elif what == "time" and self.deadline is not None:
            self.now = self.deadline
        elif what == "calm":
            self.calm()
        elif what == "restart":
            self.restart()
        elif what == "alarm":
            self.alarm = ALARM if self.alarm == OK else OK
        elif what == "pairs":
            assert isinstance(detail, AgreementCounts)
            self.pairs = detail
        elif what == "order":
            assert isinstance(detail, str)
            self.order(detail)
        elif what == "roll out":
            assert isinstance(detail, tuple)
            self.ask("update", *detail)
        elif what in ("update", "counts", "delete"):
            assert isinstance(detail, tuple)
            self.ask(what, detail)
        self.settle()
        self.check()

    def settle(self) -> None:
        """Decides until nothing more is to be done now; that must come soon."""
        for _ in range(60):
            if self.desired is None:
                return
            decision = decide(
                self.desired, self.observed(), now=self.now, spec=SPEC, wall=WALL + self.now
            )
            self.deadline = decision.next_deadline
            spins = self.deadline is not None and self.deadline <= self.now
            assert decision.actions or not spins, "the driver would spin"
            if not decision.actions:
                return
            for action in decision.actions:
                self.apply(action)
        raise AssertionError("decisions do not come to rest")

    def apply(self, action: Action) -> None:
        assert action.reason
        match action:
            case StartInstance():
                slot = (action.generation, action.variant, action.ordinal)
                for one in self.instances.values():
                    same = (one.generation, one.variant, one.ordinal) == slot
                    assert not (same and self.holds_its_slot(one)), "the slot is taken"
                self.number += 1
                name = f"i{self.number}"
                self.instances[name] = InstanceObserved(
                    instance_id=name,
                    variant=action.variant,
                    generation=action.generation,
                    ordinal=action.ordinal,
                    phase=STARTING,
                    since=self.now,
                )
            case LoadCopy():
                self.number += 1
                one = self.instances[action.instance_id]
                assert one.phase == RUNNING
                assert one.instance_id not in self.copies, "it is to have the instance to itself"
                self.copies[one.instance_id] = CopyObserved(
                    copy=self.number,
                    instance_id=one.instance_id,
                    variant=one.variant,
                    generation=action.generation,
                    component=action.component,
                    ordinal=action.ordinal,
                    phase=LOADING,
                    since=self.now,
                    load_s_max=120.0,
                    outstanding_max=4,
                )
            case PublishRoutes():
                self.published = action.routes
                by_copy = {copy.copy: name for name, copy in self.copies.items()}
                for number in self.named():
                    name = by_copy[number]
                    assert self.state(name) == READY, "routed to a copy that can't answer"
                    self.copies[name] = replace(self.copies[name], routed=True)
            case WithdrawRoutes():
                self.published = None
            case DrainCopy():
                assert action.copy not in self.named(), "drained while requests still come"
                assert self.state(action.instance_id) in (READY, LOST)
                self.phase(action.instance_id, DRAINING)
                self.check_capacity(action.instance_id)
            case StopInstance():
                one = self.instances[action.instance_id]
                assert one.phase != STOPPING, "stopped twice"
                routed = one.instance_id in self.copies and self.copies[one.instance_id].routed
                serves = self.state(one.instance_id) == READY
                assert not (serves and routed), "stopped without draining"
                if action.failure:
                    self.fail(one, permanent=action.permanent)
                self.phase(action.instance_id, STOPPING)
            case SetRollout():
                assert self.desired is not None
                assert self.desired.target is not None
                assert self.desired.target.generation == action.generation
                before = self.desired.progress
                order = before.order if before is not None else ""
                self.desired = replace(self.desired, progress=replace(action.progress, order=order))
            case SetStatus():
                self.set_status(action)
            case FinishDelete():
                assert not self.instances
                self.desired = None

    def set_status(self, action: SetStatus) -> None:
        """As the store does it, and the ledger's fresh attempts for a new spec."""
        desired = self.desired
        assert desired is not None
        active, target = desired.active, desired.target
        if action.restore_previous:
            active = desired.previous
        if target is not None and action.active_generation == target.generation:
            active = target
        if action.active_generation is not None:
            target = None
        if target is None and active is not desired.active and not action.restore_previous:
            assert active is not None
            assert self.published is not None
            assert [len(v.copies) for v in self.published.variants] == [
                v.instance_count for v in active.variants
            ], "the switch came before the new generation was published whole"
        self.make_spec(
            EndpointSpec(endpoint="shop", status=action.status, active=active, target=target)
        )

    def make_spec(self, desired: EndpointSpec) -> None:
        self.desired = desired
        generations = {
            one.generation for one in (desired.active, desired.target) if one is not None
        }
        self.failures = {
            slot: replace(failure, count=0, permanent=False)
            for slot, failure in self.failures.items()
            if slot[0] in generations
        }

    def state(self, name: str) -> str:
        """The copy's phase on an instance that runs, else the instance's."""
        one = self.instances[name]
        if one.phase != RUNNING or name not in self.copies:
            return one.phase
        return self.copies[name].phase

    def states(self) -> list[str]:
        return [self.state(name) for name in self.instances]

    def ready(self) -> list[CopyObserved]:
        return [copy for name, copy in self.copies.items() if self.state(name) == READY]

    def holds_its_slot(self, one: InstanceObserved) -> bool:
        return one.phase != STOPPING and self.state(one.instance_id) not in LEAVING

    def phase(self, name: str, phase: str) -> None:
        if phase in (RUNNING, GONE, STOPPING):
            self.instances[name] = replace(self.instances[name], phase=phase, since=self.now)
        else:
            self.copies[name] = replace(self.copies[name], phase=phase, since=self.now)

    def remove(self, name: str) -> None:
        del self.instances[name]
        self.copies.pop(name, None)

    def fail(self, one: InstanceObserved, *, permanent: bool = False) -> None:
        slot = (one.generation, one.variant, one.ordinal)
        self.failures[slot] = SlotFailure(
            variant=one.variant,
            generation=one.generation,
            ordinal=one.ordinal,
            count=failure_count(self.failures.get(slot), ready_s=0.0, spec=SPEC),
            at=self.now,
            message="it failed",
            permanent=permanent,
        )

    def step(self, name: str, luck: str) -> None:
        """What becomes of one instance's operation under way."""
        one = self.instances[name]
        state = self.state(name)
        if luck == "die":
            if one.phase != STOPPING:
                self.fail(one)
            self.remove(name)
        elif luck == "break" and one.phase == RUNNING:
            self.phase(name, GONE)
        elif luck == "wrong" and state == LOADING:
            self.fail(one, permanent=True)
            self.phase(name, STOPPING)
        elif luck == "lost" and state == READY:
            self.phase(name, LOST)
        else:
            self.succeed(name)

    def succeed(self, name: str) -> None:
        one = self.instances[name]
        after = {STARTING: RUNNING, LOADING: READY, LOST: READY, DRAINING: DRAINED}
        state = self.state(name)
        if state in after:
            self.phase(name, after[state])
        elif one.phase in (STOPPING, GONE):
            if one.phase == GONE:
                self.fail(one)
            self.remove(name)

    def check_capacity(self, drained: str) -> None:
        """While one generation takes over from another, neither loses what the other has not."""
        desired, name = self.desired, self.copies[drained].variant
        if desired is None or desired.status != UPDATING:
            return
        counts = [
            variant.instance_count
            for one in desired.generations
            for variant in one.variants
            if variant.name == name
        ]
        if len(counts) == 2:
            ready = sum(copy.variant == name for copy in self.ready())
            assert ready >= min(counts), "fewer copies than either generation has"

    def ask(self, what: str, counts: tuple[int, ...], rollout: RolloutPolicy | None = None) -> None:
        """A caller's spec, refused as the store refuses it."""
        desired = self.desired
        if desired is None:
            return
        if what == "delete":
            self.make_spec(replace(desired, status=DELETING))
        elif desired.status == IN_SERVICE and desired.active is not None:
            active = desired.active
            if what == "update":
                target = deployment(active.generation + self.number + 1, counts)
                target = replace(target, rollout=rollout)
                self.make_spec(replace(desired, status=UPDATING, target=target))
            elif what == "counts" and len(counts) == len(active.variants):
                changed = deployment(active.generation, counts)
                self.make_spec(replace(desired, status=UPDATING, active=changed, previous=active))

    def order(self, order: str) -> None:
        """An operator's order, refused as the store refuses it."""
        progress = self.desired.progress if self.desired is not None else None
        if progress is None or progress.stage in (TERMINATING, ROLLING_BACK):
            return
        assert self.desired is not None
        ordered = replace(progress, order="" if order == RESUME else order)
        self.desired = replace(self.desired, progress=ordered)

    def restart(self) -> None:
        """The server was killed: instances die with it, the record stays."""
        self.instances.clear()
        self.copies.clear()
        self.failures.clear()
        self.published = None

    def check(self) -> None:
        """What must hold after every event, once decisions have come to rest."""
        desired = self.desired
        if desired is None or desired.status in (DELETING, FAILED):
            assert self.published is None
            return
        ready = self.ready()
        assert self.named() <= {copy.copy for copy in ready}
        self.check_share()
        if desired.active is not None:
            serving = [copy for copy in ready if copy.generation == desired.active.generation]
            assert not serving or self.named(), "a copy could serve, and no route names it"

    def check_share(self) -> None:
        """The new generation gets what the record says, and nothing once it is over."""
        assert self.desired is not None
        progress, published = self.desired.progress, self.published
        incoming = [one for one in published.variants if one.incoming] if published else []
        share = progress.share if progress is not None else 0.0
        if not 0.0 < share < 1.0:
            assert not incoming
        elif published is not None:
            total = sum(one.weight for one in published.variants)
            part = sum(one.weight for one in incoming)
            assert abs(part - share * total) < 1e-9 * total

    def calm(self) -> None:
        """Everything under way succeeds, once."""
        for name in [name for name in self.instances if self.state(name) != READY]:
            self.succeed(name)

    def heal(self) -> None:
        """Good weather from now on: everything under way succeeds, answers agree, nobody pauses,
        time goes on."""
        self.pairs = AgreementCounts(agree=10_000)
        progress = self.desired.progress if self.desired is not None else None
        if progress is not None and progress.order == PAUSE:
            self.order(RESUME)
        for _ in range(400):
            self.settle()
            self.check()
            if any(state != READY for state in self.states()):
                self.calm()
            elif self.deadline is not None:
                self.now = self.deadline
            else:
                return
        raise AssertionError("it does not converge")


COUNTS = st.lists(st.integers(1, 3), min_size=1, max_size=2).map(tuple)
LUCK = st.sampled_from(["ok", "ok", "ok", "ok", "die", "break", "wrong", "lost"])
NOTHING = st.just("")
SIZES = st.builds(
    RolloutSize, kind=st.just(CAPACITY_PERCENT), value=st.sampled_from([5, 20, 34, 50])
) | st.builds(RolloutSize, kind=st.just(INSTANCE_COUNT), value=st.integers(1, 2))
POLICIES = st.builds(
    RolloutPolicy,
    kind=st.sampled_from([ALL_AT_ONCE, CANARY, LINEAR, ROLLING]),
    size=SIZES,
    rollback_size=st.none() | SIZES,
    wait_s=st.sampled_from([0.0, 2.0]),
    termination_wait_s=st.sampled_from([0.0, 3.0]),
    execution_s_max=st.sampled_from([0.0, 0.0, 600.0]),
    alarms=st.sampled_from([(), ("errors",)]),
    agreement=st.sampled_from([None, AgreementSpec()]),
)
EVENTS = st.one_of(
    st.tuples(st.just("step"), st.integers(0, 20), LUCK),
    st.tuples(st.just("calm"), st.just(0), NOTHING),
    st.tuples(st.just("time"), st.just(0), NOTHING),
    st.tuples(st.just("update"), st.just(0), COUNTS),
    st.tuples(st.just("counts"), st.just(0), COUNTS),
    st.tuples(st.just("roll out"), st.just(0), st.tuples(COUNTS, POLICIES)),
    st.tuples(st.just("alarm"), st.just(0), NOTHING),
    st.tuples(
        st.just("pairs"),
        st.just(0),
        st.builds(
            AgreementCounts, agree=st.sampled_from([0, 10_000]), differ=st.sampled_from([0, 9])
        ),
    ),
    st.tuples(st.just("order"), st.just(0), st.sampled_from(ORDERS)),
    st.tuples(st.sampled_from(["restart", "calm"]), st.just(0), NOTHING),
    st.tuples(st.sampled_from(["delete", "time", "time", "time"]), st.just(0), st.just((1,))),
)


@settings(max_examples=300, deadline=None)
@given(COUNTS, st.booleans(), st.lists(EVENTS, max_size=60))
def test_it_converges_and_never_takes_what_serves(
    counts: tuple[int, ...], in_service: bool, events: list[tuple[str, int, object]]
) -> None:
    world = World(counts)
    world.settle()
    if in_service:
        world.heal()
    for what, which, detail in events:
        world.happen(what, which, detail)
    world.heal()
    desired = world.desired
    if desired is None:
        assert not world.instances
        return
    assert desired.status in (IN_SERVICE, FAILED)
    if desired.status == FAILED:
        assert not world.instances
        return
    assert desired.active is not None
    assert desired.target is None
    assert world.published is not None
    assert [(v.name, len(v.copies)) for v in world.published.variants] == [
        (v.name, v.instance_count) for v in desired.active.variants
    ]
    assert len(world.instances) == sum(v.instance_count for v in desired.active.variants)
