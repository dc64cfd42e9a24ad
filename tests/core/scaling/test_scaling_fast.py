"""The fast path: more at once, from the load itself, and never back and forth."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kit.core_scaling import accept, asked, fired, low, scaler, seen, tracking

from penstock.core.scaling.actions import Action, SetCapacity
from penstock.core.scaling.machine import TargetScaler
from penstock.core.scaling.observed import LoadObserved, LoadWindow
from penstock.core.scaling.spec import Suspended, TrackingPolicy
from penstock.core.scaling.tracking import growth_per_s, wished_fast


def concurrency(value: float = 5.0) -> TrackingPolicy:
    return tracking(value=value, of_concurrency=True)


def fast(*policies: TrackingPolicy, **more: object) -> TargetScaler:
    return scaler(*(policies or (concurrency(),)), fast=True, **more)  # type: ignore[arg-type]


def looks(
    machine: TargetScaler, loads: list[int], *, capacity: int = 1, ready_s: float | None = 4.0
) -> list[list[tuple[int, int, str]]]:
    """One look a second, from second 0; what each came to."""
    return [
        asked(
            machine.on_observed(seen(float(at), capacity, in_flight=load, time_to_ready_s=ready_s))
        )
        for at, load in enumerate(loads)
    ]


def test_a_step_of_load_is_answered_in_the_third_second_with_what_it_is() -> None:
    """20 at once on a copy for 5: four copies, and no more for a growth that is over."""
    assert looks(fast(), [0, 20, 20, 20]) == [[], [], [], [(1, 4, "load-above-target")]]


def test_a_ramp_is_asked_for_before_it_is_there() -> None:
    """Two more each second, and a copy takes four seconds: 4 in flight will be 12, three copies."""
    found = looks(fast(concurrency(5.0)), [2, 4, 6, 8])
    assert found == [[], [], [], [(1, 2, "load-grows")]]
    grown = looks(fast(concurrency(5.0)), [8, 10, 12, 14], capacity=2)
    assert grown[3] == [(2, 4, "load-grows")]  # 10 lasts, 8 more are expected: 18


def after_a_minute(loads: list[int], arrivals: list[int]) -> list[tuple[int, int, str]]:
    """Of 48 requests of 2 s each, 0.8 each second; then these looks, and what came between them."""
    machine, came = fast(), 0
    for at in range(60):
        came += at % 5 > 0
        two = 2 if at % 5 in (2, 3, 4) else 1
        assert asked(machine.on_observed(seen(float(at), 1, in_flight=two, arrivals=came))) == []
    found: list[tuple[int, int, str]] = []
    for at, (load, more) in enumerate(zip(loads, arrivals, strict=True), start=60):
        came += more
        look = seen(float(at), 1, in_flight=load, arrivals=came, time_to_ready_s=4.0)
        found = found or asked(machine.on_observed(look))
    return found


def test_requests_that_pile_up_after_a_step_are_no_ramp() -> None:
    """Four each second, of 2 s: they come to 8 in flight, and to 12 if a full copy takes half as
    long again. Eight and then five more looked like a ramp to 16, and four copies were asked for,
    where three had room for all."""
    assert after_a_minute([8, 11, 13], [6, 3, 3]) == [(1, 3, "load-grows")]


def test_a_ramp_that_arrivals_bear_out_is_believed() -> None:
    """The same looks, with as many more requests each second as it takes."""
    assert after_a_minute([8, 11, 13], [6, 8, 9]) == [(1, 4, "load-grows")]


def test_what_is_in_flight_needs_no_arrivals_to_be_believed() -> None:
    """Nothing more comes, and what is there stays: long requests."""
    assert after_a_minute([11, 11, 11], [9, 0, 0]) == [(1, 3, "load-above-target")]


def test_growth_is_not_believed_to_more_than_double_a_load() -> None:
    found = looks(fast(), [0, 10, 20, 30], ready_s=1000.0)
    assert found[3] == [(1, 4, "load-grows")]  # 10 lasts


def test_a_burst_of_a_second_changes_nothing() -> None:
    assert looks(fast(), [0, 50, 0, 0, 50, 0]) == [[]] * 6


def test_looks_that_are_far_apart_tell_nothing() -> None:
    machine = fast()
    for at in (0.0, 10.0, 20.0):
        assert machine.on_observed(seen(at, 1, in_flight=50)) == []


def test_it_never_asks_for_less() -> None:
    assert looks(fast(), [0] * 6, capacity=8) == [[]] * 6


def test_it_never_asks_for_more_than_the_maximum() -> None:
    assert looks(fast(high=3), [90] * 3)[2] == [(1, 3, "load-above-target")]


@pytest.mark.parametrize(
    "machine",
    [
        scaler(concurrency()),  # not switched on
        scaler(tracking(), fast=True),  # its metric is another one
        scaler(concurrency(), fast=True, suspended=Suspended(scale_out=True)),
    ],
)
def test_without_what_it_takes_it_does_nothing(machine: TargetScaler) -> None:
    assert looks(machine, [50] * 6) == [[]] * 6


def test_at_zero_it_waits_for_requests_that_are_held() -> None:
    assert looks(fast(), [50] * 6, capacity=0) == [[]] * 6


def test_a_long_request_is_seen_while_it_runs() -> None:
    """Load that counts only requests that ended is blind to long ones (Ray Serve 18923)."""
    machine = fast()
    found = [
        asked(machine.on_observed(seen(float(at), 1, in_flight=11, arrivals=0))) for at in range(3)
    ]
    assert found[-1] == [(1, 3, "load-above-target")]


def test_a_target_of_one_scales() -> None:
    """Two requests for copies of one each are two copies (Ray Serve 24793)."""
    assert looks(fast(concurrency(1.0)), [2, 2, 2])[2] == [(1, 2, "load-above-target")]
    assert looks(fast(concurrency(1.0)), [1, 1, 1]) == [[]] * 3


def test_a_target_of_one_scales_by_its_alarm_too() -> None:
    machine = scaler(tracking(value=1.0))
    machine.on_observed(seen(0.0, 1))
    alarm = fired("track", 2.0, at=30.0, threshold=1.0)
    assert asked(machine.on_alarm(alarm, seen(30.0, 1))) == [(1, 2, "target-tracking")]


def test_capacity_comes_in_once_streams_have_drained() -> None:
    """Nothing is left behind that keeps it up (Ray Serve 61551): no arrivals, no data, no load."""
    machine = scaler(concurrency(), low=1)
    for at in range(200):
        machine.on_observed(seen(float(at), 6, in_flight=20))
    for at in range(200, 330):
        machine.on_observed(seen(float(at), 6))
    drained = machine.on_alarm(low("track", 0.0, 0.0, at=330.0), seen(330.0, 6))
    assert asked(drained) == [(6, 1, "target-tracking")]


def test_what_a_copy_that_goes_leaves_behind_does_not_bring_it_back() -> None:
    """Its queue stays counted where it moves to: 9 in flight are 9 before and after, and two copies
    hold them at a target of 5 (Ray Serve 18925: in, and out again for what was ended, for ever)."""
    policy = concurrency()
    machine = scaler(policy, fast=True)
    world = ScaledWorld(machine, policy, 9, 4, 3.0)
    world.run(1200)
    changes = [(was, now) for was, now in pairwise(world.capacities) if was != now]
    assert changes == [(4, 2)]


@pytest.mark.parametrize(
    ("loads", "rate"),
    [([0, 2, 4, 6], 2.0), ([0, 9, 9, 9], 0.0), ([6, 4, 2, 0], 0.0), ([0, 5, 7, 8], 1.0)],
)
def test_growth_is_the_slowest_of_all_looks(loads: list[int], rate: float) -> None:
    assert growth_per_s([(float(at), load) for at, load in enumerate(loads)]) == rate


@dataclass
class ScaledWorld:
    """Requests of a constant number, copies that take their time, and the two alarms of a policy,
    as CloudWatch would judge the average per copy of each ten seconds."""

    machine: TargetScaler
    policy: TrackingPolicy
    load: int
    capacity: int
    time_to_ready_s: float
    at: float = 0.0
    ready: int = 0
    coming: list[float] = field(default_factory=list)
    periods: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    capacities: list[int] = field(default_factory=list)

    def run(self, seconds: int) -> None:
        self.ready = self.capacity
        for _ in range(seconds):
            self.at += 1.0
            self.ready += sum(self.at >= one for one in self.coming)
            self.coming = [one for one in self.coming if self.at < one]
            self.samples.append(self.load / max(self.ready, 1))
            self._do(self.machine.on_observed(self._seen()))
            if self.at % 10 == 0:
                self._alarms()
            self.machine.check_invariants()
            self.capacities.append(self.capacity)

    def _seen(self):  # type: ignore[no-untyped-def]
        return seen(
            self.at, self.capacity, self.ready, in_flight=self.load,
            time_to_ready_s=self.time_to_ready_s,
        )  # fmt: skip

    def _alarms(self) -> None:
        self.periods.append(sum(self.samples) / len(self.samples))
        self.samples.clear()
        target = self.policy.target_value
        if len(self.periods) >= 3 and min(self.periods[-3:]) > target:
            alarm = fired("track", *self.periods[-3:], at=self.at, threshold=target)
            self._do(self.machine.on_alarm(alarm, self._seen()))
        if len(self.periods) >= 9 and max(self.periods[-9:]) < 0.9 * target:
            alarm = low("track", *self.periods[-9:], at=self.at, threshold=0.9 * target)
            self._do(self.machine.on_alarm(alarm, self._seen()))

    def _do(self, actions: list[Action]) -> None:
        if not any(isinstance(one, SetCapacity) for one in actions):
            return
        ((was, to, _),) = asked(actions)
        assert was == self.capacity
        accept(self.machine, actions, str(self.at))
        if to > self.ready:
            self.coming = [self.at + self.time_to_ready_s] * (to - self.ready)
        else:
            self.ready, self.coming = to, []
        self.capacity = to


@settings(max_examples=150, deadline=None)
@given(
    load=st.integers(0, 120),
    target_value=st.sampled_from([0.7, 1.0, 3.0, 5.0, 7.5, 40.0]),
    start=st.integers(1, 12),
    time_to_ready_s=st.sampled_from([0.5, 3.0, 17.0, 45.0]),
    cooldown_s=st.sampled_from([0.0, 5.0, 60.0]),
    is_fast=st.booleans(),
)
def test_it_never_flaps_under_constant_load(
    load: int, target_value: float, start: int, time_to_ready_s: float, cooldown_s: float,
    is_fast: bool,
) -> None:  # fmt: skip
    """Whatever the load, once it is constant capacity goes one way, and stays within its bounds."""
    policy = tracking(
        value=target_value, of_concurrency=True,
        scale_out_cooldown_s=cooldown_s, scale_in_cooldown_s=cooldown_s,
    )  # fmt: skip
    machine = scaler(policy, low=1, high=30, fast=is_fast)
    world = ScaledWorld(machine, policy, load, start, time_to_ready_s)
    world.run(600)
    changes = [now - before for before, now in pairwise(world.capacities) if now != before]
    assert all(one > 0 for one in changes) or all(one < 0 for one in changes), world.capacities
    assert all(1 <= one <= 30 for one in world.capacities)
    needed = max(1, min(30, math.ceil(load / target_value)))
    if load > start * target_value:
        assert world.capacity == needed
    else:
        assert needed <= world.capacity <= start


@settings(max_examples=100, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["high", "low", "look", "held", "set"]), st.integers(0, 80)),
        max_size=60,
    ),
    low_=st.integers(0, 3),
    extra=st.integers(0, 6),
)
def test_policies_never_leave_the_bounds(
    steps: list[tuple[str, int]], low_: int, extra: int
) -> None:
    """Out of bounds is only what somebody set by hand, and policies never take it further."""
    high = low_ + extra
    machine = scaler(concurrency(), low=low_, high=high, fast=True)
    capacity, at = low_, 0.0
    for what, number in steps:
        at += 7.0
        if what == "set":
            capacity = number % 12
            continue
        look = seen(at, capacity, in_flight=number)
        if what == "high":
            actions = machine.on_alarm(fired("track", float(number), at=at), look)
        elif what == "low":
            actions = machine.on_alarm(low("track", float(number), at=at), look)
        elif what == "held":
            actions = machine.capacity_wanted(look)
        else:
            actions = machine.on_observed(look)
        machine.check_invariants()
        for was, to, _ in asked(actions):
            assert was == capacity
            assert min(capacity, low_) <= to <= max(capacity, high)
            accept(machine, actions, str(at))
            capacity = to


# what one window asks for


def window(*rows: tuple[float, int, int], ready_s: float | None = None) -> LoadWindow:
    """Each (wall s, in flight, arrivals since the start); a copy takes `ready_s` to be ready."""
    seen = LoadWindow()
    for at, in_flight, arrivals in rows:
        seen.add(
            LoadObserved(
                at=at, capacity=1, ready=1, in_flight=in_flight, arrivals=arrivals,
                time_to_ready_s=ready_s,
            )
        )  # fmt: skip
    return seen


def test_three_observations_of_five_seconds_are_needed() -> None:
    policy = tracking(value=5.0)
    assert wished_fast(policy, LoadWindow()) is None
    assert wished_fast(policy, window((2.0, 10, 0), (5.0, 10, 0))) is None
    assert wished_fast(policy, window((-0.1, 10, 0), (2.0, 10, 0), (5.0, 10, 0))) is None
    three = window((0.0, 10, 0), (2.0, 10, 0), (5.0, 10, 0))
    assert wished_fast(policy, three) == (2, "load-above-target")


def test_growth_is_looked_ahead_by_the_time_to_a_ready_copy_for_half_a_minute_at_most() -> None:
    policy = tracking(value=2.0)
    rows = [(float(at), 4 + 2 * at, 0) for at in range(4)]
    assert wished_fast(policy, window(*rows)) == (3, "load-above-target")
    assert wished_fast(policy, window(*rows, ready_s=-1.0)) == (3, "load-above-target")
    assert wished_fast(policy, window(*rows, ready_s=1.0)) == (4, "load-grows")
    slow = [(float(at), 100 + at, 0) for at in range(4)]
    assert wished_fast(tracking(value=10.0), window(*slow, ready_s=100.0)) == (14, "load-grows")


def test_growth_is_per_second_and_none_where_two_observations_are_of_one_moment() -> None:
    assert growth_per_s([(0.0, 4), (1.5, 7), (3.0, 10), (4.5, 13)]) == 2.0
    assert growth_per_s([(0.0, 4), (0.0, 7), (1.0, 8), (2.0, 9)]) == 0.0


def test_growth_is_trusted_up_to_where_the_present_arrivals_lead() -> None:
    """Requests took 210 / 215 s each while ten came a second. Now fifteen do: half as many again
    as fifteen times that are 22."""
    before = [(float(at), 10, 10 * at) for at in range(0, 21, 2)]
    grows = [(21.0 + at, 12 + 2 * at, 215 + 15 * at) for at in range(4)]
    policy = tracking(value=1.0)
    assert wished_fast(policy, window(*before, *grows, ready_s=10.0)) == (22, "load-grows")


def test_without_ten_requests_before_nobody_knows_how_long_one_takes() -> None:
    def after(count: int) -> tuple[int, str] | None:
        before = [(0.0, 1, 0), (10.0, 1, count)]
        grows = [(11.0 + at, 4 + 2 * at, count) for at in range(4)]
        return wished_fast(tracking(value=1.0), window(*before, *grows, ready_s=1.0))

    assert after(9) == (8, "load-grows")
    assert after(10) == (6, "load-above-target")  # none comes now, so it grows no further
