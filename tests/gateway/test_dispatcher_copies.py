"""Which copies the dispatcher may pick: what instances, links and routes say of them."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from tests.kit.gateway import Bench, MemoryLink, routes

from penstock.core.deployment.deployment import LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE
from penstock.gateway.dispatch.invocation import Invocation


def sent(bench: Bench, copy: int) -> list[Invocation]:
    return [item[0] for item in bench.link(copy).sent]


def picked(bench: Bench) -> list[int]:
    """The copies that get the next four requests, which are over at once."""
    chosen = []
    for _ in range(4):
        invocation, told = bench.invoke()
        if told.told:
            assert told.told == [("error", "no-healthy-copy")]
        else:
            assert invocation.copy is not None
            chosen.append(invocation.copy.copy)
        bench.dispatcher.cancel(invocation)
        bench.dispatcher.written(invocation)
    return sorted(set(chosen))


@pytest.mark.parametrize("kind", ["copy-lost", "copy-failed"])
def test_a_copy_that_is_lost_is_not_picked_until_it_is_ready(kind: str) -> None:
    bench = Bench(1, 2)
    assert picked(bench) == [1, 2]
    bench.dispatcher.on_event("i1", {"event": kind, "copy": 1})
    assert picked(bench) == [2]
    assert list(bench.dispatcher.table.healthy_copies("echo")) == [2]
    bench.dispatcher.on_event("i1", {"event": "copy-ready", "copy": 1})
    assert picked(bench) == [1, 2]
    assert list(bench.dispatcher.table.healthy_copies("echo")) == [1, 2]


@pytest.mark.parametrize(
    "event",
    [
        {"event": "copy-started", "copy": 1},
        {"event": "copy-lost"},
        {"event": "copy-lost", "copy": "1"},
        {"event": "copy-lost", "copy": 7},
        {"copy": 1},
        {},
    ],
)
def test_news_of_something_else_changes_nothing(event: dict[str, object]) -> None:
    bench = Bench(1, 2)
    bench.dispatcher.on_event("i1", event)
    assert picked(bench) == [1, 2]


def test_only_good_news_lets_those_that_wait_try_again() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(routes(1))
    invocation, _ = bench.invoke()
    bench.link(1).give_back("draining")
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    assert sent(bench, 1) == []
    bench.dispatcher.on_event("i2", {"event": "copy-ready", "copy": 2})
    assert sent(bench, 1) == [invocation]


def test_a_link_that_is_back_lets_those_that_wait_try_again() -> None:
    bench = Bench(1)
    invocation, _ = bench.invoke()
    bench.link(1).lose()
    bench.link(1).come_back()
    assert sent(bench, 1) == [invocation]


def test_new_routes_let_those_that_wait_try_again() -> None:
    bench = Bench(1)
    bench.connect("i2")
    invocation, _ = bench.invoke()
    bench.link(1).give_back("draining")
    bench.dispatcher.publish(routes(1, 2))
    assert sent(bench, 2) == [invocation]


def test_a_new_connection_voids_what_the_instance_said_before() -> None:
    """It says again what is lost; the end of a loss may have been missed."""
    bench = Bench(1)
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    bench.dispatcher.on_unusable("i1", [])
    bench.dispatcher.on_usable("i1", fresh=False)
    assert picked(bench) == []
    bench.dispatcher.on_usable("i1", fresh=True)
    assert picked(bench) == [1]


def test_news_may_come_before_the_routes() -> None:
    bench = Bench(1)
    bench.connect("i2")
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    bench.dispatcher.publish(routes(1, 2, 3))
    assert picked(bench) == [1], "one is lost, the other's instance was never connected"
    bench.dispatcher.on_event("i2", {"event": "copy-ready", "copy": 2})
    bench.connect("i3")
    assert picked(bench) == [1, 2, 3]


def test_what_is_lost_stays_lost_with_new_routes() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    bench.dispatcher.on_unusable("i2", [])
    bench.dispatcher.publish(routes(1, 2))
    assert picked(bench) == []
    assert not bench.dispatcher.is_ready("echo")


def test_a_pause_ends_with_its_connection() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.on_paused("i1", True)
    assert picked(bench) == [2]
    bench.dispatcher.on_usable("i1", fresh=True)
    assert picked(bench) == [1, 2]
    bench.dispatcher.on_paused("i2", True)
    bench.dispatcher.on_paused("i2", False)
    assert picked(bench) == [1, 2]


def test_an_instance_that_is_disconnected_is_as_one_that_never_was() -> None:
    bench = Bench(1, 2)
    invocation, told = bench.invoke()
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    link = bench.link(1)
    asyncio.run(bench.dispatcher.disconnect("i1"))
    asyncio.run(bench.dispatcher.disconnect("i1"))
    assert (link.usable, told.told) == (False, [])
    assert not bench.dispatcher.is_ready("echo")
    asyncio.run(bench.dispatcher.disconnect("i2"))
    bench.connect("i2")
    assert sent(bench, 2) == [invocation], "what was known of its copies is forgotten"


def test_nothing_is_kept_of_an_instance_that_is_gone() -> None:
    """Instances come and go under new names for as long as a server runs."""
    bench = Bench(1, 2)
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    assert list(bench.dispatcher.table._lost) == ["i2"]
    asyncio.run(bench.dispatcher.disconnect("i2"))
    assert (bench.dispatcher.table._lost, sorted(bench.dispatcher._links)) == ({}, ["i1"])


def test_connecting_again_ends_the_connection_that_was() -> None:
    bench = Bench(1)
    before = bench.link(1)
    invocation, _ = bench.invoke()
    after = bench.connect("i1")
    assert after is not before
    assert (before.usable, after.usable) == (False, True)
    assert [item[0] for item in after.sent] == [invocation]


class Unreachable(MemoryLink):
    async def open(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        raise TimeoutError


def test_a_link_that_does_not_open_is_kept_and_goes_on_trying() -> None:
    bench = Bench(1)
    link = Unreachable("i2", "memory", bench.dispatcher)
    bench.dispatcher._link_factory = lambda *_: link
    with pytest.raises(TimeoutError):
        asyncio.run(bench.dispatcher.connect("i2", "memory", timeout_s=3.0))
    assert link.timeout_s == 3.0
    bench.dispatcher.publish(routes(2))
    link.come_back()
    invocation, _ = bench.invoke()
    assert [item[0] for item in link.sent] == [invocation]


def test_closing_ends_every_link() -> None:
    bench = Bench(1, 2)
    _, told = bench.invoke()
    asyncio.run(bench.dispatcher.close())
    assert [link.usable for link in bench.links.values()] == [False, False]
    assert told.told == [("error", "stopping")]
    assert not bench.dispatcher.accepting
    _, told = bench.invoke()
    assert told.told == [("error", "stopping")]


@pytest.mark.parametrize("frees", ["deadline", "answer", "cancel"])
def test_a_copy_has_drained_with_its_last_request_and_not_with_its_first(frees: str) -> None:
    async def main() -> None:
        waiting = asyncio.ensure_future(bench.dispatcher.drained([1], 5.0))
        await asyncio.sleep(0)
        if frees == "deadline":
            bench.timers.advance(1.0)
        elif frees == "answer":
            bench.link(1).reply()
            bench.dispatcher.written(first)
        else:
            bench.dispatcher.cancel(first)
        for _ in range(3):
            await asyncio.sleep(0)
        assert not waiting.done()
        bench.link(1).reply()
        bench.dispatcher.written(second)
        assert await waiting is True

    bench = Bench(1)
    first, _ = bench.invoke(deadline_s=1.0)
    second, _ = bench.invoke()
    bench.connect("i2")
    bench.dispatcher.publish(routes(2))
    asyncio.run(main())


def test_prompts_that_begin_alike_meet_where_routing_reads_them() -> None:
    prompt = b'{"prompt": "' + b"the same long beginning " * 50 + b'"}'
    for strategy, together in ((PREFIX_AWARE, True), (LEAST_OUTSTANDING_REQUESTS, False)):
        bench = Bench(1, 2)
        plain = routes(1, 2)
        variant = dataclasses.replace(
            plain.variants[0],
            strategy=strategy,
            prefix_length_max=4096,
            concurrency_threshold=16,
        )
        bench.dispatcher.publish(dataclasses.replace(plain, variants=(variant,)))
        asked = [bench.invoke(body=prompt)[0] for _ in range(2)]
        first, second = (one.copy.copy for one in asked if one.copy is not None)
        assert (first == second) is together


def test_what_a_copy_has_left_to_do_is_told_while_it_is_routed_to() -> None:
    """For whoever chooses which copy goes: streams and what waits included."""
    bench = Bench(1, 2)
    invocations = [bench.invoke()[0] for _ in range(3)]
    assert [bench.dispatcher.outstanding(copy) for copy in (1, 2, 9)] == [2, 1, 0]
    bench.link(2).events.on_chunk(invocations[1], b"piece", b"")
    assert bench.dispatcher.outstanding(2) == 1
    bench.dispatcher.publish(routes(2))
    assert [bench.dispatcher.outstanding(copy) for copy in (1, 2)] == [0, 1]
