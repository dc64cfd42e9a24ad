"""Keep-warm schedules on literal weeks."""

from __future__ import annotations

import datetime as dt

import pytest

from penstock.clock import zone_of
from penstock.core.residency.keep_warm import Keep, KeepWarm, Release, parse
from penstock.errors import CallerError

UTC = dt.UTC


def at(text: str, zone: dt.tzinfo = UTC) -> float:
    """2026-11-23 is a Monday."""
    return dt.datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def test_schedules_are_read_with_days_hours_zone_and_models() -> None:
    berlin, night = parse(
        "mon-fri 08:00-18:30 Europe/Berlin: a.tar.gz, team/b.tar.gz; Sat,sun 22:00-02:00: n;",
        zone_of,
    )
    assert (berlin.models, night.models) == (("a.tar.gz", "team/b.tar.gz"), ("n",))
    assert berlin.hours.hold(at("2026-11-23 07:00"))  # 8:00 there
    assert not berlin.hours.hold(at("2026-11-23 17:30"))  # 18:30
    assert night.hours.hold(at("2026-11-23 01:59"))  # UTC, and Sunday's
    assert parse(" ; ", zone_of) == ()


def test_a_hundred_schedules_and_a_thousand_models_of_one_can_be_read() -> None:
    names = ",".join(f"m{number}" for number in range(1000))
    schedules = parse("; ".join([f"mon 08:00-18:00: {names}"] * 100), zone_of)
    assert (len(schedules), len(schedules[-1].models)) == (100, 1000)


@pytest.mark.parametrize(
    "text",
    [
        "mon-fri: m",
        "mon-fri 08:00-18:00",
        "mon-fri 08:00-18:00:",
        "mon-fri 08:00-18:00: ,",
        "monday 08:00-18:00: m",
        "mon 8-18: m",
        "mon 08:00-18:00 Mars/Olympus: m",
        "mon 08:00-18:00 Europe/Berlin now: m",
        "; ".join(["mon 08:00-18:00: m"] * 101),
        "mon 08:00-18:00: " + ",".join(f"m{n}" for n in range(1001)),
    ],
)
def test_what_can_not_be_read_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CallerError) as raised:
        parse(text, zone_of)
    assert raised.value.code == "keep-warm-invalid"
    assert "mon-fri 08:00-18:00" in raised.value.hint


def test_a_model_is_kept_from_five_minutes_before_its_hours_until_they_end() -> None:
    keeper = KeepWarm(parse("mon 08:00-09:00: a, b", zone_of))
    assert keeper.next_deadline() == 0.0
    assert keeper.on_timer(now=at("2026-11-23 07:54")) == []
    assert keeper.next_deadline() == at("2026-11-23 07:55")
    assert keeper.on_timer(now=at("2026-11-23 07:55")) == [
        Keep("a", "hours-begin"),
        Keep("b", "hours-begin"),
    ]
    assert keeper.snapshot() == {"kept_warm": ["a", "b"], "schedules": 1}
    # Said again: a load may have failed.
    assert keeper.on_timer(now=at("2026-11-23 08:59")) == [
        Keep("a", "hours-last"),
        Keep("b", "hours-last"),
    ]
    assert keeper.on_timer(now=at("2026-11-23 09:00")) == [
        Release("a", "hours-over"),
        Release("b", "hours-over"),
    ]
    assert keeper.on_timer(now=at("2026-11-23 09:01")) == []


def test_a_model_of_two_schedules_is_let_go_when_both_are_over() -> None:
    keeper = KeepWarm(parse("mon 08:00-10:00: a; mon 09:00-12:00: a, b", zone_of))
    assert keeper.on_timer(now=at("2026-11-23 08:30")) == [Keep("a", "hours-begin")]
    assert keeper.on_timer(now=at("2026-11-23 10:30")) == [
        Keep("a", "hours-last"),
        Keep("b", "hours-begin"),
    ]
    assert keeper.on_timer(now=at("2026-11-23 12:00")) == [
        Release("a", "hours-over"),
        Release("b", "hours-over"),
    ]


def test_who_starts_in_the_middle_of_the_hours_keeps_at_once() -> None:
    keeper = KeepWarm(parse("daily 00:00-24:00: a", zone_of))
    assert keeper.on_timer(now=at("2026-11-23 13:00")) == [Keep("a", "hours-begin")]


def test_without_schedules_there_is_nothing_to_wait_for() -> None:
    keeper = KeepWarm(())
    assert keeper.next_deadline() is None
    assert keeper.on_timer(now=5.0) == []
