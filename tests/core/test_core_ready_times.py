"""Time to ready: what is measured at each start, and what is forecast of the next."""

from __future__ import annotations

from penstock.core.endpoint.ready_times import (
    COMPONENTS_MAX,
    PARTS,
    SAMPLES_MAX,
    ReadyObserved,
    ReadyTimes,
    TimeToReady,
)


def _took(load_s: float) -> TimeToReady:
    return TimeToReady(load_s=load_s)


def test_nothing_is_forecast_of_what_was_never_started() -> None:
    times = ReadyTimes()
    times.observe("chat", "llama", _took(2.0))
    assert times.forecast_s("chat", "other") is None
    assert times.forecast_s("other", "llama") is None


def test_one_start_is_the_forecast_of_the_next() -> None:
    times = ReadyTimes()
    took = TimeToReady(start_s=0.5, connect_s=0.25, fetch_s=1.0, load_s=2.0, warm_up_s=0.125)
    times.observe("chat", "llama", took)
    assert times.forecast_s("chat", "llama") == 3.875


def test_the_fastest_start_is_known_for_whoever_refuses_by_it() -> None:
    times = ReadyTimes()
    assert times.fastest_s("chat", "llama") is None
    for load_s in (4.0, 1.0, 2.0):
        times.observe("chat", "llama", _took(load_s))
    assert times.fastest_s("chat", "llama") == 1.0


def test_the_parts_are_named_in_the_order_of_a_start() -> None:
    assert PARTS == ("start", "connect", "fetch", "load", "warm_up", "waited")


def test_what_it_waited_for_others_is_not_forecast() -> None:
    """A server that brings ten endpoints back at once starts some of them late: that is no property
    of their models."""
    times = ReadyTimes()
    times.observe("chat", "llama", TimeToReady(load_s=2.0, waited_s=60.0))
    assert times.forecast_s("chat", "llama") == 2.0


def test_of_few_starts_the_slowest_counts() -> None:
    times = ReadyTimes()
    for load_s in (1.0, 4.0, 2.0):
        times.observe("chat", "llama", _took(load_s))
    assert times.forecast_s("chat", "llama") == 4.0


def test_of_ten_starts_one_that_was_slow_does_not() -> None:
    times = ReadyTimes()
    for load_s in (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 90.0):
        times.observe("chat", "llama", _took(load_s))
    assert times.forecast_s("chat", "llama") == 1.8


def test_only_the_last_starts_count() -> None:
    """A new version that loads faster is known to after a while."""
    times = ReadyTimes()
    for _ in range(SAMPLES_MAX):
        times.observe("chat", "llama", _took(30.0))
    for _ in range(SAMPLES_MAX):
        times.observe("chat", "llama", _took(2.0))
    assert times.forecast_s("chat", "llama") == 2.0


def test_an_endpoint_is_one_whatever_the_case_of_its_name() -> None:
    times = ReadyTimes()
    times.observe("Chat", "llama", _took(2.0))
    assert times.forecast_s("chat", "llama") == 2.0
    assert times.seen("CHAT") == {"llama": ReadyObserved(last=_took(2.0), forecast_s=2.0, count=1)}


def test_the_parts_of_the_last_start_are_told_with_the_forecast() -> None:
    times = ReadyTimes()
    assert times.parts_s("chat", "llama") == {}
    times.observe("chat", "llama", TimeToReady(start_s=0.5, load_s=9.0))
    times.observe("chat", "llama", TimeToReady(start_s=0.5, load_s=2.0, waited_s=1.0))
    assert times.parts_s("chat", "llama") == {
        "start": 0.5,
        "connect": 0.0,
        "fetch": 0.0,
        "load": 2.0,
        "warm_up": 0.0,
        "waited": 1.0,
        "forecast": 9.5,
    }


def test_whoever_keeps_them_sees_that_something_changed() -> None:
    times = ReadyTimes()
    before = times.changes
    times.observe("chat", "llama", _took(1.0))
    measured = times.changes
    times.forget("other")
    assert before != measured == times.changes
    times.forget("chat")
    assert times.changes != measured


def test_a_deleted_endpoint_leaves_nothing_and_others_stay() -> None:
    times = ReadyTimes()
    times.observe("chat", "llama", _took(2.0))
    times.observe("other", "llama", _took(3.0))
    times.forget("Chat")
    assert times.forecast_s("chat", "llama") is None
    assert times.forecast_s("other", "llama") == 3.0


def test_it_is_the_same_after_a_restart() -> None:
    times, again = ReadyTimes(), ReadyTimes()
    for number in range(SAMPLES_MAX + 3):
        times.observe("chat", "llama", TimeToReady(start_s=0.5, load_s=float(number)))
    times.observe("chat", "small", _took(1.0))
    again.restore(times.rows())
    assert again.rows() == times.rows()
    assert again.seen("chat") == times.seen("chat")


def test_rows_that_are_none_are_left_out() -> None:
    times = ReadyTimes()
    good = {"endpoint": "chat", "component": "llama", "took": [{"load_s": 2.0}]}
    times.restore(
        [
            {"endpoint": "chat"},
            {"endpoint": "chat", "component": "llama", "took": 7},
            {"endpoint": "chat", "component": "llama", "took": [{"load_s": "long"}]},
            {"endpoint": "chat", "component": "llama", "took": [{"load_s": -1.0}]},
            {"endpoint": "chat", "component": "llama", "took": [{"load_s": float("nan")}]},
            {"endpoint": "chat", "component": "llama", "took": [{"flown_s": 1.0}]},
            {"endpoint": 5, "component": "llama", "took": [{"load_s": 1.0}]},
            good,
        ]
    )
    assert times.rows() == [
        {
            "endpoint": "chat",
            "component": "llama",
            "took": [
                {
                    "start_s": 0.0,
                    "connect_s": 0.0,
                    "fetch_s": 0.0,
                    "load_s": 2.0,
                    "warm_up_s": 0.0,
                    "waited_s": 0.0,
                }
            ],
        }
    ]


def test_memory_is_bounded_by_those_not_seen_for_longest() -> None:
    times = ReadyTimes()
    for number in range(COMPONENTS_MAX):
        times.observe(f"e{number}", "c", _took(1.0))
    times.observe("e0", "c", _took(1.0))
    times.observe("one-more", "c", _took(1.0))
    assert times.forecast_s("e0", "c") == 1.0
    assert times.forecast_s("e1", "c") is None
    assert len(times.rows()) == COMPONENTS_MAX
