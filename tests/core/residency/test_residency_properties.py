"""What holds for residency whatever comes in: a world of its own carries out what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.kit.core_residency import bytes_

from penstock.core.residency import (
    Action,
    Admit,
    Footprint,
    Load,
    Prepare,
    RefuseParked,
    Residency,
    ResidencySpec,
    Unload,
)

MODELS = [f"m{at}" for at in range(7)]
HOST, ACCELERATOR = 100, 40

specs = st.builds(
    ResidencySpec,
    budget=st.just(bytes_(HOST, ACCELERATOR)),
    loads_max=st.integers(1, 3),
    keep=st.sampled_from([True, True, True, False]),
    residency_s_min=st.sampled_from([None, 0.0, 3.0, 10.0]),
    failure_s=st.just(2.0),
    crashes_max=st.integers(1, 3),
    quarantine_s=st.just(20.0),
    waiting_max=st.sampled_from([2, 10]),
    models_max=st.sampled_from([0, 0, 2]),
)
#: Three in the world are too large for the accelerator or the host.
sizes = st.builds(bytes_, st.integers(1, 105), st.sampled_from([0, 0, 0, 10, 41]))
durations = st.sampled_from([0.0, 0.1, 1.0, 4.0, 15.0])


@dataclass
class Parked:
    number: int
    deadline: float | None
    callers: tuple[str, ...] = ()  #: loaded models that wait for it


@dataclass
class ResidencyWorld:
    """True sizes and times; estimates are never below the truth."""

    taken: dict[str, Footprint] = field(default_factory=dict)  #: what is held, in truth
    doing: dict[str, str] = field(default_factory=dict)  #: what the driver does for a model
    parked: dict[str, list[Parked]] = field(default_factory=dict)
    in_flight: dict[str, int] = field(default_factory=dict)
    loaded: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)  #: load, or loaded, with nothing beside them
    ended: dict[int, str] = field(default_factory=dict)

    @property
    def used(self) -> Footprint:
        total = bytes_(0)
        for size in self.taken.values():
            total += size
        return total


class ResidencyMachine(RuleBasedStateMachine):
    """A driver that believes nothing: it keeps its own books of memory and requests."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.world = ResidencyWorld()
        self.events: list[tuple[float, int, str, str]] = []
        self.count = 0
        self.fails: set[str] = set()

    @initialize(spec=specs, data=st.data())
    def start(self, spec: ResidencySpec, data: st.DataObject) -> None:
        self.spec = spec
        self.residency = Residency(spec)
        self.truth = {model: data.draw(sizes) for model in MODELS}
        self.more = {model: data.draw(st.sampled_from([0, 0, 20])) for model in MODELS}
        self.sized = {model: data.draw(st.booleans()) for model in MODELS}
        self.times = {model: data.draw(durations) for model in MODELS}

    # the world

    def carry_out(self, actions: list[Action]) -> None:
        world = self.world
        for action in actions:
            model = action.model
            if isinstance(action, Admit):
                assert world.parked.get(model), "admitted nobody"
                assert model in world.loaded
                for one in world.parked.pop(model):
                    self.send(model)
                    self.end(one, "admitted")
            elif isinstance(action, RefuseParked):
                self.refuse(action)
            elif isinstance(action, Unload):
                assert model in world.loaded, "unloads what is not loaded"
                assert not world.in_flight.get(model), "unloads what answers"
                world.loaded.discard(model)
                self.later(0.5, "unloaded", model)
            else:
                assert model not in world.doing, "two things at once for one model"
                assert model not in world.loaded
                kind = "prepared" if isinstance(action, Prepare) else "loaded"
                world.doing[model] = kind
                if isinstance(action, Load):
                    loading = [one for one, what in world.doing.items() if what == "loaded"]
                    assert len(loading) <= self.spec.loads_max
                    alone = [one for one in loading if one in world.alone]
                    assert not alone or loading == alone == [model], "beside one of unknown size"
                    if action.alone:
                        assert loading == [model], "of unknown size, and not alone"
                        world.alone.add(model)
                    assert action.alone <= (not self.sized[model])
                    world.taken[model] = self.truth[model]
                    assert world.used.within(self.spec.budget), "above the budget"
                self.later(self.times[model] if kind == "loaded" else 0.2, kind, model)

    def refuse(self, action: RefuseParked) -> None:
        parked = self.world.parked.get(action.model, [])
        if action.newest_only:
            refused = [parked.pop()]
        elif action.calls_only:
            refused = [one for one in parked if one.callers]
            assert refused, "refused nobody"
            self.world.parked[action.model] = [one for one in parked if not one.callers]
        elif action.deadline_max is not None:
            latest = action.deadline_max
            refused = [one for one in parked if one.deadline is not None]
            refused = [one for one in refused if (one.deadline or 0.0) <= latest]
            assert refused, "refused nobody"
            self.world.parked[action.model] = [one for one in parked if one not in refused]
        else:
            refused = self.world.parked.pop(action.model, [])
        for one in refused:
            self.end(one, action.reason)

    def end(self, one: Parked, how: str) -> None:
        self.world.ended[one.number] = how
        for caller in one.callers:
            self.later(0.6, "answered", caller)

    def send(self, model: str) -> None:
        assert (
            self.residency.is_loaded(model) or self.world.in_flight.get(model) is not None or (True)
        )
        self.residency.began(model, now=self.now)
        self.world.in_flight[model] = self.world.in_flight.get(model, 0) + 1
        self.later(0.3, "answered", model)

    def later(self, after_s: float, what: str, model: str) -> None:
        self.count += 1
        heappush(self.events, (self.now + after_s, self.count, what, model))

    def happen(self, what: str, model: str) -> None:
        world, now = self.world, self.now
        if what == "answered":
            if world.in_flight.get(model):
                world.in_flight[model] -= 1
                if not world.in_flight[model]:
                    self.carry_out(self.residency.idle(model, now=now))
        elif what == "unloaded":
            if model in world.taken and model not in world.doing and model not in world.loaded:
                del world.taken[model]
                self.carry_out(self.residency.unloaded(model, now=now, used=world.used))
        elif world.doing.get(model) != what:
            return  # its worker crashed meanwhile
        elif model in self.fails:
            del world.doing[model]
            world.alone.discard(model)
            world.taken.pop(model, None)
            self.fails.discard(model)
            self.carry_out(
                self.residency.load_failed(
                    model, now=now, message="no", permanent=False, used=world.used
                )
            )
        elif what == "prepared":
            del world.doing[model]
            need = self.truth[model] + bytes_(self.more[model])
            self.carry_out(self.prepared(model, need))
        else:
            del world.doing[model]
            world.alone.discard(model)
            world.loaded.add(model)
            self.carry_out(
                self.residency.loaded(
                    model,
                    self.truth[model],
                    now=now,
                    load_s=self.times[model],
                    used=world.used,
                )
            )

    def prepared(self, model: str, need: Footprint) -> list[Action]:
        sized = self.sized[model]
        return self.residency.prepared(model, need, now=self.now, prepare_s=0.2, sized=sized)

    def advance(self, until: float) -> None:
        """Everything that happens until then, in its order; the timer acts or moves."""
        for _ in range(3000):
            due = self.residency.next_deadline()
            event = self.events[0][0] if self.events else float("inf")
            at = min(event, float("inf") if due is None else due)
            if at > until:
                self.now = until
                return
            self.now = max(self.now, at)
            if due is not None and due <= self.now:
                actions = self.residency.on_timer(now=self.now)
                after = self.residency.next_deadline()
                assert actions or after is None or after > self.now, "the timer spins"
                self.carry_out(actions)
            else:
                _, _, what, model = heappop(self.events)
                self.happen(what, model)
            self.residency.check_invariants()
        raise AssertionError("it does not come to rest")

    # what may come in

    @rule(
        model=st.sampled_from(MODELS),
        life_s=st.sampled_from([None, 0.0, 1.0, 5.0, 30.0]),
        callers=st.integers(1, 3),
    )
    def call(self, model: str, life_s: float | None, callers: int) -> None:
        for _ in range(callers):
            if self.residency.is_loaded(model):
                assert model in self.world.loaded
                self.send(model)
                continue
            self.count += 1
            deadline = None if life_s is None else self.now + life_s
            self.world.parked.setdefault(model, []).append(Parked(self.count, deadline))
            self.carry_out(self.residency.request(model, now=self.now, deadline=deadline))

    @rule(
        callers=st.lists(st.sampled_from(MODELS), min_size=1, max_size=2, unique=True),
        model=st.sampled_from(MODELS),
        life_s=st.sampled_from([None, None, 5.0]),
    )
    def nested_call(self, callers: list[str], model: str, life_s: float | None) -> None:
        """Loaded models call one that is not: they answer once they have what it says."""
        if self.residency.is_loaded(model) or not all(map(self.residency.is_loaded, callers)):
            return
        for caller in callers:
            self.residency.began(caller, now=self.now)
            self.world.in_flight[caller] = self.world.in_flight.get(caller, 0) + 1
        self.count += 1
        deadline = None if life_s is None else self.now + life_s
        one = Parked(self.count, deadline, tuple(callers))
        self.world.parked.setdefault(model, []).append(one)
        self.carry_out(
            self.residency.request(model, now=self.now, deadline=deadline, callers=one.callers)
        )

    @rule(seconds=st.sampled_from([0.0, 0.1, 0.5, 2.0, 10.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.advance(self.now + seconds)

    @rule(model=st.sampled_from(MODELS), which=st.integers(0, 5))
    def cancel(self, model: str, which: int) -> None:
        parked = self.world.parked.get(model)
        if not parked:
            return
        self.abandon(model, parked.pop(which % len(parked)))

    def abandon(self, model: str, one: Parked) -> None:
        self.end(one, "abandoned")
        self.carry_out(
            self.residency.abandoned(
                model, now=self.now, deadline=one.deadline, callers=one.callers
            )
        )

    @rule(model=st.sampled_from(MODELS))
    def fail_next(self, model: str) -> None:
        self.fails.add(model)

    @rule(model=st.sampled_from(MODELS))
    def crash(self, model: str) -> None:
        world = self.world
        if model not in world.taken or (model in world.doing and world.doing[model] != "loaded"):
            return
        world.doing.pop(model, None)
        world.alone.discard(model)
        world.loaded.discard(model)
        world.in_flight.pop(model, None)
        del world.taken[model]
        for called, parked in world.parked.items():
            for one in [each for each in parked if model in each.callers]:
                parked.remove(one)
                self.abandon(called, one)
        self.carry_out(self.residency.crashed(model, now=self.now, used=world.used))

    @rule(model=st.sampled_from(MODELS), pinned=st.booleans())
    def pin(self, model: str, pinned: bool) -> None:
        self.carry_out(self.residency.pin(model, pinned, now=self.now))

    @rule(model=st.sampled_from(MODELS), what=st.sampled_from(["wish", "dismiss", "replaced"]))
    def ask(self, model: str, what: str) -> None:
        self.carry_out(getattr(self.residency, what)(model, now=self.now))

    @rule()
    def look(self) -> None:
        world = self.world
        known = {model: world.taken[model] for model in sorted(world.loaded)}
        self.carry_out(self.residency.measured(world.used, now=self.now, by_model=known))

    # what holds

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "residency"):
            return
        self.residency.check_invariants()
        assert self.world.used.within(self.spec.budget)
        waiting = self.residency.snapshot()["waiting"]
        assert waiting == {
            model: len(parked) for model, parked in sorted(self.world.parked.items()) if parked
        }
        for parked in self.world.parked.values():
            for one in parked:
                assert one.number not in self.world.ended

    def teardown(self) -> None:
        """When nothing more comes in and nothing is pinned, every parked request is answered."""
        if not hasattr(self, "residency"):
            return
        for model in MODELS:
            self.carry_out(self.residency.pin(model, False, now=self.now))
        self.advance(self.now + 1000.0)
        assert not any(self.world.parked.values()), "a parked request was lost"
        assert not any(self.world.in_flight.values())


TestResidency = ResidencyMachine.TestCase
TestResidency.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
