"""Zero copies: who comes in to them, and who leads out."""

from __future__ import annotations

from tests.kit.core_scaling import accept, asked, fired, low, scaler, seen, steps, watch
from tests.kit.core_scaling import tracking as track

from penstock.core.scaling.spec import Suspended


def no_capacity(at: float) -> object:
    """Clients' wake-up alarm: NoCapacityInvocationFailures >= 1, one period of 30 s."""
    return fired("wake", 3.0, at=at, threshold=1.0, period_s=30, periods=1)


def test_target_tracking_comes_in_to_zero_and_never_leaves_it() -> None:
    machine = scaler(track(), low=0)
    watch(machine, 0, 300, 1)
    down = machine.on_alarm(low("track", 0.0, at=300.0), seen(300.0, 1))
    assert asked(down) == [(1, 0, "target-tracking")]
    accept(machine, down)
    watch(machine, 301, 600, 0)
    assert machine.on_alarm(fired("track", 50.0, at=600.0), seen(600.0, 0)) == []
    assert machine.decisions()[-1].reason == "tracking-never-leaves-zero"


def test_a_step_policy_on_failures_for_want_of_capacity_leads_out() -> None:
    wake = steps((0, None, 1), name="wake")
    machine = scaler(track(), wake, low=0)
    watch(machine, 0, 60, 0)
    actions = machine.on_alarm(no_capacity(60.0), seen(60.0, 0))  # type: ignore[arg-type]
    assert asked(actions) == [(0, 1, "step-scaling")]


def test_requests_that_are_held_start_the_first_copy_at_once() -> None:
    machine = scaler(track(), low=0)
    actions = machine.capacity_wanted(seen(5.0, 0, in_flight=1))
    assert asked(actions) == [(0, 1, "requests-held")]
    accept(machine, actions)
    assert machine.capacity_wanted(seen(5.1, 1, ready=0, in_flight=9)) == []


def test_held_requests_start_as_many_as_the_minimum_and_none_beyond_the_maximum() -> None:
    assert asked(scaler(low=2).capacity_wanted(seen(0.0, 0))) == [(0, 2, "requests-held")]
    none = scaler(low=0, high=0)
    assert none.capacity_wanted(seen(0.0, 0)) == []
    assert none.decisions()[-1].reason == "at-max-capacity"


def test_held_requests_wait_where_scaling_out_is_suspended() -> None:
    machine = scaler(low=0, suspended=Suspended(scale_out=True))
    assert machine.capacity_wanted(seen(0.0, 0)) == []
    assert machine.decisions()[-1].reason == "scale-out-suspended"


def test_the_first_copy_stays_for_its_cooldown() -> None:
    """The low alarm of the time at zero still lasts when the first copy answers."""
    machine = scaler(track(), low=0)
    watch(machine, 0, 300, 0)
    accept(machine, machine.capacity_wanted(seen(300.0, 0, in_flight=1)))
    watch(machine, 301, 310, 1)
    assert asked(machine.on_alarm(low("track", 0.0, at=310.0), seen(310.0, 1))) == []
    assert machine.decisions()[-1].reason == "scale-out-cooldown"
