"""Requests that came back unanswered: who gets them next, how long they wait, what ends them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.kit.gateway import Bench, Recording, routes

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.core.request import retry
from penstock.gateway.dispatch.invocation import Affinity, Invocation


def lose(bench: Bench, copy: int) -> None:
    bench.dispatcher.on_event(f"i{copy}", {"event": "copy-lost", "copy": copy})


def find(bench: Bench, copy: int) -> None:
    bench.dispatcher.on_event(f"i{copy}", {"event": "copy-ready", "copy": copy})


def held(bench: Bench, *, copy: int = 1, **given: object) -> tuple[Invocation, Recording]:
    """A request that its copy gave back, and that no copy can take now."""
    invocation, told = bench.invoke(**given)  # type: ignore[arg-type]
    lose(bench, copy)
    bench.link(copy).events.on_returned(invocation, "draining")
    bench.link(copy).sent = [item for item in bench.link(copy).sent if item[0] is not invocation]
    return invocation, told


def waiting(bench: Bench) -> int:
    count: int = bench.dispatcher.snapshot()["waiting"]
    return count


def sent(bench: Bench, copy: int = 1) -> list[Invocation]:
    return [item[0] for item in bench.link(copy).sent]


def two_variants(*, blue: tuple[int, ...] = (1,), green: tuple[int, ...] = (2,)) -> EndpointRoutes:
    parts = [routes(*blue, variant="blue"), routes(*green, variant="green")]
    return EndpointRoutes(endpoint="echo", variants=tuple(p.variants[0] for p in parts))


def test_requests_that_wait_are_sent_in_the_order_in_which_they_came() -> None:
    bench = Bench(1)
    requests = [bench.invoke()[0] for _ in range(3)]
    lose(bench, 1)
    for _ in requests:
        bench.link(1).give_back("draining")
    assert (waiting(bench), bench.outstanding()) == (3, {1: 0})
    find(bench, 1)
    assert sent(bench) == requests
    assert waiting(bench) == 0


def test_those_that_still_find_no_place_keep_their_order() -> None:
    bench = Bench(1, outstanding_max=3)
    requests = [bench.invoke()[0] for _ in range(3)]
    lose(bench, 1)
    for _ in requests:
        bench.link(1).give_back("draining")
    bench.dispatcher.publish(routes(1, outstanding_max=1))
    find(bench, 1)
    assert (sent(bench), waiting(bench)) == (requests[:1], 2)
    for number, request in enumerate(requests):
        bench.link(1).reply()
        bench.dispatcher.written(request)
        bench.timers.advance(0.05)
        assert sent(bench) == requests[number + 1 : number + 2]
    assert waiting(bench) == 0


def test_what_waits_is_looked_at_every_fifty_milliseconds_until_nothing_does() -> None:
    bench = Bench(1)
    held(bench)
    bench.dispatcher.table.set_lost("i1", 1, False)  # news that was lost on the way
    bench.timers.advance(0.049)
    assert bench.link(1).sent == []
    bench.timers.advance(0.001)
    assert [item[2] for item in bench.link(1).sent] == [59_950]
    bench.link(1).reply()
    bench.timers.advance(0.05)
    held(bench)
    for _ in range(3):
        bench.timers.advance(0.05)
        assert waiting(bench) == 1
    find(bench, 1)
    assert (len(sent(bench)), waiting(bench)) == (1, 0)


def test_one_timer_serves_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(1)
    rung: list[float] = []
    call_at = bench.timers.call_at

    def noted(when: float, callback: Callable[[], None]) -> Any:
        rung.append(when)
        return call_at(when, callback)

    bench.invoke()
    bench.invoke()
    lose(bench, 1)
    monkeypatch.setattr(bench.timers, "call_at", noted)
    bench.link(1).give_back("draining")
    bench.timers.advance(0.01)
    bench.link(1).give_back("draining")
    assert (waiting(bench), rung) == (2, [100.05])
    bench.timers.advance(0.05)
    assert rung == [100.05, pytest.approx(100.1)]
    find(bench, 1)
    bench.timers.advance(1.0)
    assert len(rung) == 2, "nobody waits"


def test_a_request_that_waits_holds_no_slot_and_is_in_flight() -> None:
    bench = Bench(1)
    invocation, told = held(bench)
    assert (bench.outstanding(), bench.dispatcher.in_flight, told.told) == ({1: 0}, 1, [])
    assert (invocation.copy, invocation.link) == (None, None)
    assert bench.dispatcher.snapshot()["endpoints"]["echo"]["in_flight"] == 1


def test_closing_tells_all_that_wait_once_and_looks_no_more() -> None:
    bench = Bench(1)
    _, first = held(bench)
    cancelled, nothing = bench.invoke()
    assert nothing.told == [("error", "no-healthy-copy")]
    bench.dispatcher.written(cancelled)
    asyncio.run(bench.dispatcher.close())
    assert first.told == [("error", "stopping")]
    assert waiting(bench) == 0
    assert bench.timers.set == []
    bench.timers.advance(100.0)
    assert first.told == [("error", "stopping")]


def test_closing_says_nothing_to_those_that_ended_while_they_waited() -> None:
    bench = Bench(1)
    cancelled, told = held(bench)
    bench.dispatcher.cancel(cancelled)
    assert waiting(bench) == 0, "nobody keeps its body"
    asyncio.run(bench.dispatcher.close())
    assert (told.told, waiting(bench)) == ([], 0)


def test_too_many_that_wait_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "HELD_MAX", 1)
    bench = Bench(1)
    (first, kept), (_, given_up) = bench.invoke(), bench.invoke()
    lose(bench, 1)
    bench.link(1).give_back("draining")
    bench.link(1).give_back("draining")
    assert (kept.told, given_up.told) == ([], [("error", "copies-lost")])
    assert waiting(bench) == 1
    find(bench, 1)
    assert sent(bench) == [first]


def test_given_up_says_how_often_and_why() -> None:
    bench = Bench(1, 2, 3, 4)
    invocation, told = bench.invoke()
    for _ in range(4):
        [link] = [link for link in bench.links.values() if link.sent]
        link.lose()
    assert told.told == [("error", "copies-lost")]
    assert invocation.error is not None
    assert invocation.error.message == (
        "Endpoint echo gave the request back 4 times, the last time: connection-lost."
    )


def test_workers_that_died_are_counted_whoever_else_they_had() -> None:
    bench = Bench(1, 2, 3)
    invocation, told = bench.invoke()
    bench.link(1).give_back("worker-died-in-company")
    assert invocation.past.alone
    bench.link(2).give_back("worker-died")
    assert told.told == [("error", "model-worker-died")]
    assert invocation.error is not None
    assert invocation.error.message == "The model's process ended on this request, 2 times."


def test_copies_that_gave_it_back_are_tried_after_all_others() -> None:
    bench = Bench(1, 2, 3)
    invocation, _ = bench.invoke()
    bench.link(1).give_back("draining")
    bench.link(2).give_back("draining")
    assert invocation.copy_failures == (1, 2)
    bench.link(3).give_back("draining")
    assert [len(sent(bench, copy)) for copy in (1, 2, 3)] == [0, 0, 0]
    assert bench.outstanding() == {1: 0, 2: 0, 3: 0}, "a slot that was reserved is not used"
    bench.timers.advance(0.05)
    [link] = [link for link in bench.links.values() if link.sent]
    link.give_back("draining")
    assert sorted(invocation.copy_failures) == [1, 2, 3], "each copy once"


# Variants


def test_who_named_a_variant_is_never_answered_by_another() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(two_variants())
    invocation, told = bench.invoke(variant="blue")
    bench.dispatcher.publish(routes(2, variant="green"))
    bench.link(1).lose()
    assert told.told == [("error", "variant-not-found")]
    assert (sent(bench, 2), invocation.pinned) == ([], True)
    assert invocation.error is not None
    assert invocation.error.message == "Variant blue of endpoint echo not found."


def test_who_named_none_is_answered_by_those_that_took_over() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(routes(1, variant="blue"))
    invocation, told = bench.invoke()
    assert (invocation.variant, invocation.pinned) == ("blue", False)
    bench.dispatcher.publish(routes(2, variant="green"))
    bench.link(1).lose()
    assert (sent(bench, 2), invocation.variant) == ([invocation], "green")
    assert told.told == []


def test_a_copy_that_changed_its_variant_does_not_have_it_back_at_once() -> None:
    bench = Bench(1)
    bench.dispatcher.publish(routes(1, variant="blue"))
    invocation, _ = bench.invoke()
    bench.dispatcher.publish(routes(1, variant="green"))
    bench.link(1).give_back("draining")
    assert (sent(bench), waiting(bench), bench.outstanding()) == ([], 1, {1: 0})
    bench.timers.advance(0.05)
    assert (sent(bench), invocation.variant) == ([invocation], "green")


def test_a_retry_stays_with_its_variant_while_that_is_there() -> None:
    bench = Bench(1, 2, 3)
    bench.dispatcher.publish(two_variants(blue=(1, 3)))
    invocation, _ = bench.invoke(variant="blue")
    bench.link(1).give_back("draining")
    assert sent(bench, 3) == [invocation]
    bench.link(3).give_back("draining")
    assert (sent(bench, 2), waiting(bench)) == ([], 1)


def test_a_request_that_waits_fails_once_its_variant_is_gone() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(two_variants())
    invocation, told = bench.invoke(variant="blue")
    lose(bench, 1)
    bench.link(1).give_back("draining")
    bench.dispatcher.publish(routes(2, variant="green"))
    assert told.told == [("error", "variant-not-found")]
    assert waiting(bench) == 0
    bench.dispatcher.written(invocation)
    assert bench.dispatcher.in_flight == 0


# Endpoints and sessions


def test_an_endpoint_of_the_same_name_is_another_one() -> None:
    """What was accepted for the one that is gone is not answered by its successor."""
    bench = Bench(1)
    _, told = bench.invoke()
    bench.dispatcher.withdraw("echo")
    bench.dispatcher.publish(routes(1))
    bench.link(1).give_back("draining")
    bench.timers.advance(1.0)
    assert (told.told, waiting(bench)) == ([("error", "endpoint-not-found")], 0)


def test_a_session_whose_copy_is_gone_is_not_carried_on_elsewhere() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.sessions.open("echo", "s")
    recording = Recording()
    now = bench.clock.monotonic()
    invocation = Invocation("echo", b"[]", b"", recording, received=now, deadline=None)
    invocation.affinity = Affinity(session="s")
    bench.dispatcher.invoke(invocation)
    [link] = [link for link in bench.links.values() if link.sent]
    lose(bench, int(link.instance_id[1:]))
    link.give_back("copy-lost")
    assert recording.told == [("error", "session-lost")]


# What was streamed


def test_a_stream_that_is_given_back_is_broken() -> None:
    bench = Bench(1, 2)
    invocation, told = bench.invoke()
    link = bench.link(1)
    link.events.on_chunk(invocation, b"one", b"[]")
    link.give_back("draining")
    assert told.told == [("chunk", b"one"), ("error", "stream-broken")]
    assert sent(bench, 2) == []
    bench.dispatcher.written(invocation)
    assert bench.outstanding() == {1: 0, 2: 0}
