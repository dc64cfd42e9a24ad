"""When a dead worker is started again."""

from __future__ import annotations

from penstock.runtimes.workers.supervised import RestartPolicy


def test_waits_double_until_ten_seconds() -> None:
    policy = RestartPolicy()
    times = [0.0, 100.0, 200.0, 300.0, 400.0, 500.0, 600.0, 700.0, 800.0]
    waits = [policy.died(now=now) for now in times]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_five_deaths_within_a_minute_without_serving_are_the_end() -> None:
    policy = RestartPolicy()
    assert [policy.died(now=now) for now in (0.0, 10.0, 20.0, 30.0, 59.0)][-1] is None


def test_five_deaths_over_a_longer_time_are_not() -> None:
    policy = RestartPolicy()
    assert [policy.died(now=now) for now in (0.0, 10.0, 20.0, 30.0, 60.0)][-1] == 1.6


def test_serving_makes_a_fresh_start() -> None:
    policy = RestartPolicy()
    for now in (0.0, 1.0, 2.0, 3.0):
        policy.died(now=now)
    policy.served()
    assert policy.died(now=4.0) == 0.1
