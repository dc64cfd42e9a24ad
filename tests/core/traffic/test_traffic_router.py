"""Which region a request goes to, what is held, and why: literal timelines."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import pytest

from penstock.core.routing.copies import NoRoute, Routed
from penstock.core.routing.sessions import Sessions
from penstock.core.traffic import (
    AUTOMATIC,
    MANUAL,
    HealthSpec,
    HeldForRegion,
    RegionObserved,
    RegionSpec,
    TrafficRouter,
    TrafficSpec,
)
from penstock.core.traffic.regions import CREDIT_MAX

PROMPT = b"You are a helpful assistant. " * 40
OTHER = b"Translate what follows, word by word. " * 40


def spec(**changed: Any) -> TrafficSpec:
    """Regions a, b and c by ratio 2, 1 and 1, set by hand; they may be silent for a minute."""
    regions = (
        RegionSpec(name="a", ratio=2.0),
        RegionSpec(name="b", ratio=1.0),
        RegionSpec(name="c", ratio=1.0),
    )
    told = {"regions": regions, "mode": MANUAL, "health": HealthSpec(silence_s_max=60.0)}
    return TrafficSpec(**(told | changed))


def router(told: TrafficSpec | None = None, **rooms: int) -> TrafficRouter:
    """One that has heard of these rooms at second 0."""
    made = TrafficRouter(told or spec(), random.Random(1), sessions=Sessions(sessions_max=4))
    for name, room in rooms.items():
        tell(made, name, room, now=0.0)
    return made


def tell(
    to: TrafficRouter,
    name: str,
    room: int,
    *,
    now: float,
    said_at: float | None = None,
    **more: int,
) -> None:
    at = now if said_at is None else said_at
    to.heard(RegionObserved(name=name, room=room, said_at=at, **more), now=now)


class Sent(NamedTuple):
    """What counts of a `Routed`."""

    region: str
    reason: str


def plain(answer: Routed | HeldForRegion | NoRoute) -> Sent | HeldForRegion | NoRoute:
    if not isinstance(answer, Routed):
        return answer
    assert answer.state.instance_id == answer.variant
    return Sent(answer.variant, answer.reason)


def pick(traffic: TrafficRouter, **asked: Any) -> Sent | HeldForRegion | NoRoute:
    return plain(traffic.pick(**asked))


def released(
    traffic: TrafficRouter, *, now: float
) -> list[tuple[int, Sent | HeldForRegion | NoRoute]]:
    return [(ticket, plain(answer)) for ticket, answer in traffic.released(now=now)]


def room(traffic: TrafficRouter, *, now: float) -> int:
    return sum(one["room"] for one in traffic.snapshot(now=now)["regions"])


def homely(home: str = "a") -> TrafficSpec:
    return spec(mode=AUTOMATIC, home=home)


def regions(traffic: TrafficRouter, count: int, *, now: float = 1.0, **asked: Any) -> list[str]:
    answers = [pick(traffic, now=now, **asked) for _ in range(count)]
    return [answer.region for answer in answers if isinstance(answer, Sent)]


# by ratio


def test_requests_are_spread_by_ratio_and_evenly_in_time() -> None:
    chosen = regions(router(a=100, b=100, c=100), 40)
    assert {name: chosen.count(name) for name in "abc"} == {"a": 20, "b": 10, "c": 10}
    assert all(chosen[at : at + 8].count("a") == 4 for at in range(0, 40, 8))


def test_a_ratio_that_moved_to_0_is_used_where_no_other_region_has_room() -> None:
    """The cheapest region had it all, and is gone: nobody waits for shares to move."""
    told = spec(mode=AUTOMATIC).with_ratios({"a": 0.8, "b": 0.2, "c": 0.0})
    traffic = router(told, a=0, b=1, c=2)
    assert [pick(traffic, now=1.0) for _ in range(4)] == [
        Sent("b", "only-region"),
        Sent("c", "only-region"),
        Sent("c", "only-region"),
        HeldForRegion(1, "no-room"),
    ]


def test_a_region_that_may_have_no_share_gets_nothing_of_what_others_have_no_room_for() -> None:
    regions = (RegionSpec(name="a"), RegionSpec(name="b", ratio=0.0, ratio_max=0.0))
    traffic = router(spec(mode=AUTOMATIC, regions=regions), a=0, b=1)
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-room")


def test_a_ratio_of_0_means_that_nothing_new_goes_there() -> None:
    traffic = router(spec().with_ratios({"b": 0.0}), a=2, b=100)
    assert regions(traffic, 3) == ["a", "a"]


def test_a_ratio_that_is_moved_holds_from_the_next_request_on() -> None:
    traffic = router(a=100, b=100, c=100)
    regions(traffic, 13)
    traffic.replace(traffic.spec.with_ratios({"a": 0.0, "b": 0.5, "c": 0.5}))
    chosen = regions(traffic, 20)
    assert sorted(chosen) == ["b"] * 10 + ["c"] * 10


def test_what_the_others_took_of_a_full_region_is_not_paid_back_in_a_burst() -> None:
    traffic = router(a=0, b=1000, c=1000)
    assert set(regions(traffic, 100)) == {"b", "c"}
    tell(traffic, "a", 1000, now=2.0)
    chosen = regions(traffic, 100, now=2.0)
    assert chosen.count("a") <= 50 + 2 * CREDIT_MAX


# by room


def test_never_more_is_sent_than_a_region_has_room_for() -> None:
    traffic = router(a=2, b=1, c=0)
    assert sorted(regions(traffic, 9)) == ["a", "a", "b"]
    assert pick(traffic, now=1.0) == HeldForRegion(7, "no-room")


def test_a_slot_that_falls_free_is_used_at_once() -> None:
    traffic = router(a=1)
    assert pick(traffic, now=1.0) == Sent("a", "only-region")
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-room")
    assert released(traffic, now=1.5) == []
    traffic.release("a", ok=True, first_byte_s=0.2, now=2.0)
    assert released(traffic, now=2.0) == [(1, Sent("a", "only-region"))]


def test_news_count_what_was_sent_until_they_were_said_and_not_what_came_after() -> None:
    """Room 5 was said when the first of three requests had arrived: two more are on their way."""
    traffic = router(a=5)
    for at in (1.0, 2.0, 3.0):
        pick(traffic, now=at)
    tell(traffic, "a", 5, now=3.5, said_at=1.5)
    assert room(traffic, now=3.5) == 3


def test_what_came_back_meanwhile_is_free() -> None:
    traffic = router(a=5)
    pick(traffic, now=1.0)
    pick(traffic, now=2.0)
    traffic.release("a", ok=True, now=2.5)
    assert room(traffic, now=2.5) == 4
    tell(traffic, "a", 3, now=3.0, said_at=2.2)
    assert room(traffic, now=3.0) == 3


def test_news_that_were_overtaken_change_nothing() -> None:
    traffic = router(a=5)
    tell(traffic, "a", 2, now=3.0, said_at=2.0)
    tell(traffic, "a", 9, now=3.1, said_at=1.0)
    assert room(traffic, now=3.1) == 2


def test_a_slot_that_falls_free_where_others_wait_is_theirs() -> None:
    traffic = router(a=2)
    pick(traffic, now=1.0)
    tell(traffic, "a", 0, now=2.0, waiting=1)
    traffic.release("a", ok=True, now=2.1)
    assert room(traffic, now=2.1) == 0, "the region's own queue has it"
    assert pick(traffic, now=2.2) == HeldForRegion(1, "no-room")


def test_a_region_may_have_a_bound_whatever_room_it_tells_of() -> None:
    traffic = router(spec(regions=(RegionSpec(name="a", slots_max=2),)), a=100)
    assert regions(traffic, 5) == ["a", "a"]


# home


def test_a_request_goes_home_while_there_is_room_and_then_where_there_is_most() -> None:
    traffic = router(homely(), a=2, b=3, c=4)
    answers = [pick(traffic, now=1.0) for _ in range(5)]
    assert answers == [
        Sent("a", "home"),
        Sent("a", "home"),
        Sent("c", "spill"),
        Sent("b", "spill"),  # three each: the order of the spec
        Sent("c", "spill"),
    ]


def test_what_is_spilled_goes_to_the_region_that_knows_its_beginning() -> None:
    traffic = router(homely(), a=0, b=10, c=9)
    assert pick(traffic, prefix=PROMPT, now=1.0) == Sent("b", "spill")
    tell(traffic, "c", 50, now=1.1)
    assert pick(traffic, prefix=PROMPT + b"?", now=1.2) == Sent("b", "prefix-match")
    assert pick(traffic, prefix=OTHER, now=1.2) == Sent("c", "spill")


def test_shares_that_were_set_by_hand_come_before_the_home_region() -> None:
    traffic = router(spec(home="a").with_ratios({"a": 0.0}), a=10, b=10, c=10)
    assert set(regions(traffic, 10)) == {"b", "c"}


# prefixes and sessions


def test_what_begins_alike_stays_together_as_long_as_the_ratio_allows() -> None:
    traffic = router(a=1000, b=1000, c=1000)
    first = pick(traffic, prefix=PROMPT, now=1.0)
    assert isinstance(first, Sent)
    answers = [pick(traffic, prefix=PROMPT, now=1.0) for _ in range(400)]
    there = answers.count(Sent(first.region, "prefix-match"))
    ratio = traffic.spec.ratios()[first.region]
    assert 400 * ratio <= there <= 400 * ratio + 2 * CREDIT_MAX + 1


def test_a_region_is_not_believed_to_hold_more_than_its_engines_keep() -> None:
    """512 tokens are 2048 bytes: one of these prompts, not two."""
    traffic = router(homely(), a=0)
    long, other = (text * 2 for text in (PROMPT, OTHER))
    tell(traffic, "b", 10, now=0.5, cache_tokens=512)
    assert pick(traffic, prefix=long, now=1.0) == Sent("b", "spill")
    pick(traffic, prefix=other, now=1.0)
    tell(traffic, "c", 50, now=1.1)
    assert pick(traffic, prefix=long, now=1.2) == Sent("c", "spill")


def test_half_of_the_beginning_must_be_known() -> None:
    traffic = router(homely(), a=0, b=10, c=9)
    pick(traffic, prefix=PROMPT, now=1.0)
    tell(traffic, "c", 50, now=1.1)
    barely = PROMPT[:256] + OTHER
    assert pick(traffic, prefix=barely, now=1.2) == Sent("c", "spill")


def test_a_session_stays_in_its_region_and_waits_for_room_there() -> None:
    traffic = router(a=1, b=100, c=100)
    traffic.replace(spec().with_ratios({"a": 1.0, "b": 0.0, "c": 0.0}))
    assert pick(traffic, session="s", now=1.0) == Sent("a", "only-region")
    traffic.replace(spec().with_ratios({"a": 0.0, "b": 0.5, "c": 0.5}))
    assert pick(traffic, session="s", now=2.0) == HeldForRegion(1, "session-region-full")
    assert isinstance(pick(traffic, session="t", now=2.0), Sent), "others need not wait for it"
    traffic.release("a", ok=True, now=3.0)
    assert released(traffic, now=3.0) == [(1, Sent("a", "session"))]


def test_a_session_is_moved_when_its_region_is_gone_and_stays_where_it_went() -> None:
    traffic = router(homely(), a=10, b=9, c=8)
    assert pick(traffic, session="s", now=1.0) == Sent("a", "home")
    lose(traffic, "a", now=1.5)
    assert pick(traffic, session="s", now=1.5) == Sent("b", "session-moved")
    tell(traffic, "a", 10, now=20.0)
    tell(traffic, "b", 10, now=20.0)
    assert pick(traffic, session="s", now=20.0) == Sent("b", "session")


def test_a_session_that_waits_moves_on_when_its_region_is_lost() -> None:
    traffic = router(homely(), a=1, b=9)
    pick(traffic, session="s", now=1.0)
    assert pick(traffic, session="s", now=1.0) == HeldForRegion(1, "session-region-full")
    lose(traffic, "a", now=1.5)
    assert released(traffic, now=1.5) == [(1, Sent("b", "session-moved"))]


def test_a_closed_session_is_forgotten() -> None:
    traffic = router(homely(), a=10)
    pick(traffic, session="s", now=1.0)
    assert traffic.close_session("s", now=1.0)
    assert not traffic.close_session("s", now=1.0)


def test_sessions_beyond_the_bound_are_routed_like_requests_without_one() -> None:
    traffic = router(homely(), a=100)
    for number in range(9):
        assert pick(traffic, session=str(number), now=1.0) == Sent("a", "home")
    assert traffic.snapshot(now=1.0)["sessions"] == 4


# health


def lose(traffic: TrafficRouter, name: str, *, now: float) -> None:
    for _ in range(HealthSpec().probes_max):
        traffic.probed(name, False, now=now)


def test_a_region_that_is_gone_is_passed_over() -> None:
    traffic = router(a=10, b=10, c=10)
    lose(traffic, "a", now=1.0)
    assert set(regions(traffic, 8)) == {"b", "c"}
    assert not traffic.serves("a", now=1.0)
    assert traffic.serves("b", now=1.0)


def test_failures_of_real_requests_eject_it_and_clients_that_leave_say_nothing() -> None:
    traffic = router(a=10, b=10)
    regions(traffic, 20)
    for _ in range(5):
        traffic.release("a", ok=None, now=1.1)
    assert traffic.serves("a", now=1.1)
    for _ in range(3):
        traffic.release("a", ok=False, now=1.2)
    assert not traffic.serves("a", now=1.2)


def test_a_region_that_came_back_is_given_little_at_first() -> None:
    traffic = router(a=100, b=100, c=100)
    lose(traffic, "a", now=1.0)
    for name in "abc":
        tell(traffic, name, 100, now=3.0)
    chosen = regions(traffic, 100, now=3.0)
    assert 5 <= chosen.count("a") <= 12, "a tenth of its ratio, against all of the others'"
    for second in range(4, 14):
        for name in "abc":
            tell(traffic, name, 1000, now=float(second))
    assert regions(traffic, 100, now=13.0).count("a") in range(48, 60)


def test_a_region_that_failed_this_request_is_taken_only_if_no_other_serves() -> None:
    traffic = router(homely(), a=10, b=1)
    assert pick(traffic, exclude=("a",), now=1.0) == Sent("b", "spill")
    assert pick(traffic, exclude=("a",), now=1.0) == HeldForRegion(1, "no-room")
    lose(traffic, "b", now=1.1)
    assert released(traffic, now=1.1) == [(1, Sent("a", "home"))]


def test_who_waits_because_of_what_failed_it_holds_up_nobody_else() -> None:
    traffic = router(homely(), a=10, b=0)
    assert pick(traffic, exclude=("a",), now=1.0) == HeldForRegion(1, "no-room")
    assert pick(traffic, now=1.0) == Sent("a", "home")


def test_where_all_regions_answer_with_errors_they_are_used_all_the_same() -> None:
    traffic = router(homely(), a=10, b=10)
    for name in ("a", "b"):
        for _ in range(3):
            pick(traffic, exclude=("b",) if name == "a" else ("a",), now=1.0)
        for _ in range(3):
            traffic.release(name, ok=False, now=1.0)
    assert pick(traffic, now=1.0) == Sent("a", "last-resort")
    assert pick(traffic, session="s", now=1.0) == Sent("a", "last-resort")
    assert pick(traffic, session="s", now=1.0) == Sent("a", "last-resort"), "it stays there"


def test_where_no_region_can_be_reached_requests_wait_for_one() -> None:
    traffic = router(a=10)
    lose(traffic, "a", now=1.0)
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-region-serves")
    tell(traffic, "a", 10, now=4.0)
    assert released(traffic, now=4.0) == [(1, Sent("a", "only-region"))]


def test_what_waited_for_a_region_that_never_came_is_told_so_and_not_of_room() -> None:
    traffic = router(spec(hold_s_max=2.0, hold_max=1), a=10)
    lose(traffic, "a", now=1.0)
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-region-serves")
    assert pick(traffic, now=1.5) == NoRoute("no-region-serves", 1.0)
    assert pick(traffic, deadline=1.5, now=1.5) == NoRoute("no-region-serves", 1.0)
    assert released(traffic, now=3.0) == [(1, NoRoute("no-region-serves", 1.0))]


def test_what_a_request_waits_for_is_told_as_it_is_now() -> None:
    traffic = router(a=0)
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-room")
    assert traffic.waits_for(1, now=1.0) == "no-room"
    lose(traffic, "a", now=2.0)
    assert traffic.waits_for(1, now=2.0) == "no-region-serves"


def test_a_region_that_answers_probes_and_tells_nothing_does_not_serve() -> None:
    """It lets nobody in, or is no region: that is no lack of room."""
    traffic = TrafficRouter(spec(), random.Random(1))
    traffic.probed("a", True, now=1.0)
    assert traffic.serves("a", now=1.0) is False
    assert traffic.is_reachable(now=1.0) is False
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-region-serves")
    tell(traffic, "a", 0, now=1.1)
    assert traffic.is_reachable(now=1.1) is True
    assert pick(traffic, now=1.1) == HeldForRegion(2, "no-room")


# holding


def test_the_number_of_those_held_is_bounded() -> None:
    traffic = router(spec(hold_max=2), a=0)
    assert [pick(traffic, now=1.0) for _ in range(3)] == [
        HeldForRegion(1, "no-room"),
        HeldForRegion(2, "no-room"),
        NoRoute("held-too-many", 1.0),
    ]


def test_an_orchestrator_that_holds_nothing_says_why_it_refuses() -> None:
    traffic = router(spec(hold_max=0), a=0)
    assert pick(traffic, now=1.0) == NoRoute("no-room", 1.0)


def test_nobody_is_held_for_longer_than_it_may_be_or_than_it_has_time() -> None:
    traffic = router(spec(hold_s_max=10.0), a=0)
    pick(traffic, now=1.0)
    pick(traffic, now=1.0, deadline=4.0)
    assert traffic.next_deadline() == 4.0
    assert released(traffic, now=3.9) == []
    assert released(traffic, now=4.0) == [(2, NoRoute("held-too-long", 1.0))]
    assert traffic.next_deadline() == 11.0
    assert released(traffic, now=11.0) == [(1, NoRoute("held-too-long", 1.0))]
    assert traffic.next_deadline() is None
    assert pick(traffic, now=12.0, deadline=12.0) == NoRoute("held-too-long", 1.0)


def test_those_held_go_in_the_order_in_which_they_came() -> None:
    traffic = router(a=0)
    for _ in range(3):
        pick(traffic, now=1.0)
    tell(traffic, "a", 2, now=2.0)
    assert pick(traffic, now=2.0) == HeldForRegion(4, "others-wait")
    assert [ticket for ticket, _ in released(traffic, now=2.0)] == [1, 2]


def test_what_was_sent_before_goes_before_what_never_was_and_in_order_among_its_like() -> None:
    traffic = router(a=0, b=0)
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-room")
    assert pick(traffic, again=True, exclude=("a",), now=1.1) == HeldForRegion(2, "no-room")
    assert pick(traffic, again=True, exclude=("a",), now=1.2) == HeldForRegion(3, "no-room")
    tell(traffic, "b", 2, now=2.0)
    assert pick(traffic, now=2.0) == HeldForRegion(4, "others-wait")
    assert pick(traffic, again=True, exclude=("a",), now=2.0) == HeldForRegion(5, "others-wait")
    assert [ticket for ticket, _ in released(traffic, now=2.0)] == [2, 3]
    tell(traffic, "b", 3, now=3.0)
    assert [ticket for ticket, _ in released(traffic, now=3.0)] == [5, 1, 4]


def test_what_was_sent_before_does_not_wait_behind_what_never_was() -> None:
    traffic = router(a=0)
    assert pick(traffic, now=1.0) == HeldForRegion(1, "no-room")
    tell(traffic, "a", 1, now=2.0)
    assert pick(traffic, again=True, now=2.0) == Sent("a", "only-region")
    assert released(traffic, now=2.0) == []


def test_one_that_may_go_elsewhere_does_not_wait_behind_one_that_may_not() -> None:
    traffic = router(a=0, b=5)
    assert pick(traffic, allowed=frozenset("a"), now=1.0) == HeldForRegion(1, "no-room")
    assert pick(traffic, allowed=frozenset("b"), now=1.0) == Sent("b", "only-region")


def test_a_client_that_leaves_takes_its_place_with_it() -> None:
    traffic = router(a=0)
    pick(traffic, now=1.0)
    assert traffic.withdraw(1)
    assert not traffic.withdraw(1)
    tell(traffic, "a", 1, now=2.0)
    assert released(traffic, now=2.0) == []


# where it may go


def test_an_endpoint_that_is_pinned_stays_in_its_regions() -> None:
    traffic = router(spec(pinned=frozenset("b")), a=10, b=2, c=10)
    assert regions(traffic, 5) == ["b", "b"]


def test_a_request_that_may_go_nowhere_is_refused_for_good() -> None:
    traffic = router(spec(pinned=frozenset("b")), a=10, b=10)
    assert pick(traffic, allowed=frozenset("a"), now=1.0) == NoRoute("no-region-allowed", None)


def test_what_was_held_when_an_endpoint_was_pinned_is_bound_by_it() -> None:
    traffic = router(a=0, b=0)
    pick(traffic, now=1.0)
    traffic.replace(spec(pinned=frozenset("b")))
    tell(traffic, "a", 5, now=2.0)
    assert released(traffic, now=2.0) == []
    tell(traffic, "b", 5, now=3.0)
    assert released(traffic, now=3.0) == [(1, Sent("b", "only-region"))]


# changes


def test_a_region_that_left_is_forgotten_with_its_last_answer() -> None:
    traffic = router(a=5, b=5, c=5)
    regions(traffic, 8)
    traffic.replace(spec(regions=(RegionSpec(name="b"), RegionSpec(name="d"))))
    tell(traffic, "a", 50, now=2.0)  # late news
    traffic.probed("a", True, now=2.0)
    assert set(regions(traffic, 4, now=2.0)) <= {"b"}
    for _ in range(4):
        traffic.release("a", ok=True, now=3.0)
    with pytest.raises(KeyError):
        traffic.release("a", ok=True, now=3.0)
    traffic.check_invariants()


def test_it_tells_its_state() -> None:
    traffic = router(a=5)
    pick(traffic, now=1.0)
    traffic.release("a", ok=True, first_byte_s=0.25, now=1.5)
    pick(traffic, now=2.0)
    told = traffic.snapshot(now=2.0)
    assert told["regions"][0] == {
        "region": "a",
        "ratio": 0.5,
        "room": 4,
        "in_flight": 1,
        "first_byte_s": 0.25,
        "sent_since_news": 1,
        "reason": "serving",
        "share": 1.0,
        "failures_in_a_row": 0,
        "probes_failed_in_a_row": 0,
    }
    assert {key: told[key] for key in ("endpoint", "mode", "held")} == {
        "endpoint": "",
        "mode": "manual",
        "held": 0,
    }
