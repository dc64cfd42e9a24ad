"""When alarms are looked at, and at which time: complete periods, and what may come late."""

from __future__ import annotations

import pytest

from penstock.core.alarms.evaluate import (
    evaluation_range,
    interval_s,
    next_look,
    next_repeat,
    repeats,
)
from penstock.core.alarms.spec import AlarmSpec, MetricQuery, MetricStat


def spec(period_s: int, periods: int = 3) -> AlarmSpec:
    stat = MetricStat(namespace="n", name="m", dimensions=(), period_s=period_s, stat="Sum")
    return AlarmSpec(
        name="a",
        queries=(MetricQuery(id="", stat=stat),),
        period_s=period_s,
        evaluation_periods=periods,
        datapoints_to_alarm=periods,
        threshold=1.0,
        comparison="GreaterThanThreshold",
    )


@pytest.mark.parametrize(
    ("period_s", "periods", "expected"),
    [
        (1, 3, 1),
        (5, 3, 5),
        (10, 3, 10),
        (20, 3, 10),
        (30, 3, 10),
        (60, 3, 60),
        (300, 3, 60),
        (3600, 24, 60),
        (3600, 25, 3600),  # more than a day: once an hour
        (86_400, 7, 3600),
    ],
)
def test_how_often(period_s: int, periods: int, expected: int) -> None:
    assert interval_s(spec(period_s, periods)) == expected


@pytest.mark.parametrize(
    ("period_s", "now", "look", "until"),
    [
        (10, 1_000.0, 1_002.0, 990),  # the period that ended this moment is still on its way
        (10, 1_001.9, 1_002.0, 990),
        (10, 1_002.0, 1_012.0, 1_000),
        (30, 1_002.0, 1_012.0, 990),  # looked at again: something may have come late
        (30, 1_022.0, 1_032.0, 1_020),
        (60, 1_021.0, 1_022.0, 960),
        (60, 1_022.0, 1_082.0, 1_020),
        (300, 1_202.0, 1_262.0, 1_200),
        (1, 1_000.5, 1_001.5, 1_000),
        (1, 1_000.4, 1_000.5, 999),
    ],
)
def test_the_next_look_and_the_last_complete_period(
    period_s: int, now: float, look: float, until: int
) -> None:
    assert next_look(spec(period_s), now=now) == look
    assert evaluation_range(spec(period_s), now=now) == (until - 5 * period_s, until)


def test_at_its_own_moment_a_look_is_over() -> None:
    """Whoever sleeps until the moment and asks again does not spin."""
    for one in (spec(1), spec(10), spec(60), spec(86_400, 7)):
        now = 1_700_000_000.123
        for _ in range(50):
            following = next_look(one, now=now)
            assert following > now
            assert following - now <= interval_s(one)
            now = following


POLICY = "resource/sagemaker/endpoint/e/variant/v:policyName/p"


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (f"arn:aws:autoscaling:eu-1:000000000000:scalingPolicy:1:{POLICY}", True),
        (f"arn:aws:application-autoscaling:eu-1:000000000000:scalingPolicy:1:{POLICY}", True),
        ("arn:aws:sns:eu-1:000000000000:on-call", False),
        ("https://example.org/hook?x=arn:aws:autoscaling:e:0:scalingPolicy:1", False),
    ],
)
def test_actions_of_scaling_policies_go_on(action: str, expected: bool) -> None:
    assert repeats(action) is expected


def test_they_go_on_each_period_and_each_minute_of_longer_ones() -> None:
    assert [next_repeat(spec(period), acted_at=100.0) for period in (1, 10, 60, 300)] == [
        101.0, 110.0, 160.0, 160.0,
    ]  # fmt: skip
