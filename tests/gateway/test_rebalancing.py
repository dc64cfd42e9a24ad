"""Queues are shared with a copy that comes up: a request is in one place, and answered once."""

from __future__ import annotations

from typing import Any

from tests.kit.gateway import Bench, MemoryLink, routes

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.gateway.dispatch.invocation import Affinity, Invocation


def asks(copy: int, count: int) -> dict[str, Any]:
    return {"op": "give-back", "copy": copy, "count": count}


def give_back(bench: Bench, copy: int, *waiting: Invocation) -> None:
    """What an instance does when it is asked: returns these, and says that it was all."""
    link = bench.link(copy)
    for invocation in waiting:
        link.sent = [item for item in link.sent if item[0] is not invocation]
        link.events.on_returned(invocation, "rebalanced")
    event = {"event": "gave-back", "copy": copy, "count": len(waiting)}
    bench.dispatcher.on_event(f"i{copy}", event)


def comes_up(bench: Bench, copy: int, *beside: int, outstanding_max: int = 16) -> MemoryLink:
    link = bench.connect(f"i{copy}")
    bench.dispatcher.publish(routes(*beside, copy, outstanding_max=outstanding_max))
    return link


def busy(count: int) -> tuple[Bench, list[Invocation]]:
    """A copy with that many requests."""
    bench = Bench(1, outstanding_max=16)
    return bench, [bench.invoke()[0] for _ in range(count)]


def on(bench: Bench, copy: int) -> list[Invocation]:
    return [item[0] for item in bench.link(copy).sent]


def test_a_queue_does_not_stay_with_the_busy_copy_when_a_new_one_comes_up_idle() -> None:
    """Ray Serve 32652."""
    bench, requests = busy(7)
    comes_up(bench, 2, 1)
    assert bench.link(1).told == [asks(1, 3)]
    moved = [requests[1], requests[3], requests[5]]  # which, says the instance
    give_back(bench, 1, *moved)
    assert (on(bench, 2), bench.outstanding()) == (moved, {1: 4, 2: 3})
    for copy, count in ((1, 4), (2, 3)):
        for _ in range(count):
            done = bench.link(copy).sent[0][0]
            bench.link(copy).reply()
            bench.dispatcher.written(done)
    assert (bench.outstanding(), bench.dispatcher.in_flight) == ({1: 0, 2: 0}, 0)


def test_what_moves_is_no_failure_and_no_attempt_and_keeps_its_deadline() -> None:
    bench, requests = busy(1)
    invocation, told = bench.invoke(deadline_s=5.0)
    bench.timers.advance(1.0)
    comes_up(bench, 2, 1)
    give_back(bench, 1, invocation)
    assert bench.link(2).sent == [(invocation, 2, 4000)]
    assert (invocation.attempts, invocation.copy_failures) == (1, ())
    assert invocation.past.alone is False
    assert invocation.route is not None
    assert (invocation.route.reason, invocation.route.state.copy) == ("rebalanced", 2)
    bench.link(2).reply()
    assert told.told == [("reply", b"answer")]
    assert on(bench, 1) == requests


def test_a_copy_that_is_well_again_gets_its_share_too() -> None:
    bench = Bench(1, 2, outstanding_max=16)
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    requests = [bench.invoke()[0] for _ in range(4)]
    assert bench.link(1).told == []
    bench.dispatcher.on_event("i2", {"event": "copy-ready", "copy": 2})
    assert bench.link(1).told == [asks(1, 2)]
    give_back(bench, 1, *requests[2:])
    assert bench.outstanding() == {1: 2, 2: 2}
    bench.link(2).lose()
    assert bench.outstanding() == {1: 4, 2: 0}
    bench.link(2).come_back()
    assert bench.link(1).told == [asks(1, 2), asks(1, 2)]


def test_those_that_were_held_go_first() -> None:
    """What is without a copy waits longest; only then the queues are levelled."""
    bench = Bench(1, outstanding_max=2)
    first = [bench.invoke()[0] for _ in range(2)]
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    for _ in first:
        bench.link(1).give_back("draining")
    comes_up(bench, 2, 1, outstanding_max=2)
    assert on(bench, 2) == first
    assert bench.link(2).told == []
    bench.dispatcher.on_event("i1", {"event": "copy-ready", "copy": 1})
    assert bench.link(2).told == [asks(2, 1)]


def test_with_no_room_elsewhere_it_goes_back_to_its_copy() -> None:
    bench, requests = busy(4)
    comes_up(bench, 2, 1)
    bench.dispatcher.publish(routes(1, 2, outstanding_max=4))
    other = [bench.invoke()[0] for _ in range(4)]  # came while copy 1 was asked
    assert on(bench, 2) == other
    give_back(bench, 1, requests[3])
    assert (bench.outstanding(), requests[3].attempts) == ({1: 4, 2: 4}, 1)
    assert requests[3] in on(bench, 1)


def test_what_a_copy_gives_back_unasked_is_an_ordinary_return() -> None:
    """An instance that says so for ever must not keep a request going round."""
    bench, (request,) = busy(1)
    bench.link(1).give_back("rebalanced")
    assert (request.copy_failures, bench.dispatcher.snapshot()["waiting"]) == ((1,), 1)


def test_who_is_cancelled_while_its_copy_is_asked_is_gone() -> None:
    bench, requests = busy(4)
    comes_up(bench, 2, 1)
    bench.dispatcher.cancel(requests[3])
    give_back(bench, 1, requests[2])
    assert bench.outstanding() == {1: 2, 2: 1}
    assert bench.dispatcher.in_flight == 3


def test_a_copy_that_is_lost_while_it_is_asked_loses_nothing() -> None:
    bench, requests = busy(4)
    comes_up(bench, 2, 1)
    bench.link(1).lose()
    assert on(bench, 2) == requests
    bench.link(1).come_back()
    assert bench.link(2).told == [asks(2, 2)]


def test_a_copy_that_leaves_the_routes_while_it_is_asked_holds_up_nobody() -> None:
    bench, requests = busy(4)
    comes_up(bench, 2, 1)
    comes_up(bench, 3, 2)
    give_back(bench, 1, *requests[2:])
    assert bench.outstanding() == {2: 1, 3: 1}
    comes_up(bench, 4, 2, 3)
    assert [bench.link(copy).told for copy in (2, 3)] == [[], []]  # level: 1, 1, 0


def test_two_copies_that_come_up_one_after_the_other_share_in_two_steps() -> None:
    bench, requests = busy(9)
    comes_up(bench, 2, 1)
    comes_up(bench, 3, 1, 2)
    assert bench.link(1).told == [asks(1, 4)]  # not again before it has answered
    give_back(bench, 1, *requests[5:])
    counts = bench.outstanding()
    assert sorted(counts.values()) == [2, 2, 5]
    assert bench.link(1).told == [asks(1, 4), asks(1, 2)]
    give_back(bench, 1, *requests[3:5])
    assert sorted(bench.outstanding().values()) == [3, 3, 3]


def test_variants_are_levelled_each_for_itself() -> None:
    def both(*blue: int) -> EndpointRoutes:
        parts = [routes(*blue, variant="blue"), routes(3, variant="green")]
        return EndpointRoutes(endpoint="echo", variants=tuple(p.variants[0] for p in parts))

    bench = Bench(1, 2, 3)
    bench.dispatcher.publish(both(1))
    for _ in range(4):
        bench.invoke(variant="blue")
    bench.connect("i2")
    bench.dispatcher.publish(both(1, 2))
    assert [bench.link(copy).told for copy in (1, 2, 3)] == [[asks(1, 2)], [], []]


def test_a_session_stays_with_its_copy_whatever_is_given_back() -> None:
    """Its instance keeps such requests; were one given back, it would return to its copy."""
    bench = Bench(1, outstanding_max=16)
    bench.dispatcher.sessions.open("echo", "s")
    invocation, told = bench.invoke()
    bound = Invocation("echo", b"[]", b"", told, received=bench.clock.monotonic(), deadline=None)
    bound.affinity = Affinity(session="s")
    bench.dispatcher.invoke(bound)
    comes_up(bench, 2, 1)
    give_back(bench, 1, bound)
    assert on(bench, 1) == [invocation, bound]


def test_an_endpoint_that_is_gone_is_forgotten() -> None:
    bench, requests = busy(4)
    comes_up(bench, 2, 1)
    bench.dispatcher.withdraw("echo")
    give_back(bench, 1, requests[3])
    assert bench.dispatcher.in_flight == 4  # its client has yet to read that it is gone
    assert requests[3].error is not None
    assert requests[3].error.code == "endpoint-not-found"
