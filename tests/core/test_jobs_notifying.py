"""Notifications that were not delivered: when they are sent again, and for how long."""

from __future__ import annotations

from penstock.core.jobs.asynchronous_actions import Retry, decide


def test_it_is_sent_again_after_twice_the_time_but_never_more_than_twenty_minutes() -> None:
    times = [decide(made=100.0, tries=tries, now=1000.0).at for tries in (1, 2, 3, 11, 12, 99)]
    assert times == [1001.0, 1002.0, 1004.0, 2024.0, 2200.0, 2200.0]


def test_after_a_day_it_is_given_up() -> None:
    assert decide(made=100.0, tries=1, now=86_499.0) == Retry(86_500.0, "not-delivered")
    assert decide(made=100.0, tries=1, now=86_499.5) == Retry(None, "given-up")
