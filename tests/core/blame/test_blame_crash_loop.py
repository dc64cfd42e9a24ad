"""When a process that died is started again, and when it is given up."""

from __future__ import annotations

from penstock.core.blame.death_limits import LOOP_WINDOW_S, CrashLoop


def of_a_minute() -> CrashLoop:
    return CrashLoop(window_s=LOOP_WINDOW_S)


def test_waits_double_until_ten_seconds() -> None:
    loop = of_a_minute()
    times = [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0]
    waits = [loop.died(now=now) for now in times]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_five_deaths_within_a_minute_without_serving_are_the_end() -> None:
    loop = of_a_minute()
    waits = [loop.died(now=now) for now in (0.0, 10.0, 20.0, 30.0, 59.0)]
    assert waits == [0.1, 0.2, 0.4, 0.8, None]


def test_five_deaths_over_a_longer_time_are_not() -> None:
    loop = of_a_minute()
    assert [loop.died(now=now) for now in (0.0, 10.0, 20.0, 30.0, 60.0)][-1] == 1.6
    assert loop.died(now=69.0) is None  # the last five are


def test_without_a_window_five_deaths_are_the_end_however_long_they_take() -> None:
    loop = CrashLoop()
    assert [loop.died(now=1e6 * at) for at in range(5)] == [0.1, 0.2, 0.4, 0.8, None]
    loop = CrashLoop()
    assert [loop.died() for _ in range(5)] == [0.1, 0.2, 0.4, 0.8, None]


def test_serving_makes_a_fresh_start() -> None:
    loop = of_a_minute()
    for now in (0.0, 1.0, 2.0, 3.0):
        loop.died(now=now)
    assert loop.deaths == 4
    loop.served()
    assert loop.deaths == 0
    assert loop.died(now=4.0) == 0.1


def test_as_few_deaths_are_a_loop_as_is_said() -> None:
    assert CrashLoop(deaths_max=1).died() is None
    loop = CrashLoop(deaths_max=2)
    assert [loop.died(), loop.died()] == [0.1, None]
