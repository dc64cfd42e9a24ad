"""Copies of requests for a component that is the shadow of another one: callers of that one are
answered first, nobody can name the shadow, and a component may become one and cease to be one."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.gateway import Bench, reply, routes

from penstock.core.deployment.deployment import ComparedRoutes, EndpointRoutes, VariantRoutes
from penstock.core.rollout.agreement import AgreementSpec
from penstock.errors import ModelError
from penstock.gateway.dispatch.endpoint_table import EndpointTable
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.recording import mirror_number
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.metrics import item_failures
from penstock.metrics.counts.registry import MetricRegistry


def component(name: str, *copies: int, **more: Any) -> VariantRoutes:
    (one,) = routes(*copies).variants
    return replace(one, component=name, **more)


CHAT, RANK, NEXT = component("chat", 1), component("rank", 3), component("next", 2)
DARK = replace(NEXT, shadow_of="chat")


def shop(*answering: VariantRoutes, shadows: tuple[VariantRoutes, ...] = ()) -> EndpointRoutes:
    return EndpointRoutes(
        endpoint="echo", variants=answering, takes_components=True, shadows=shadows
    )


class ComponentBench(Bench):
    """Copy 1 is of `chat`, copy 2 of its shadow `next`, copy 3 of `rank`, each on an instance."""

    def __init__(self, *shadows: VariantRoutes, **bench: Any) -> None:
        super().__init__(1, 2, 3, **bench)
        self.publish(shadows=shadows or (DARK,))

    def publish(self, *answering: VariantRoutes, shadows: tuple[VariantRoutes, ...] = ()) -> None:
        self.dispatcher.publish(shop(*(answering or (CHAT, RANK)), shadows=shadows))

    def call(self, name: str = "chat", copy: int = 1, **asked: Any) -> Invocation:
        """A request that is answered, and whose answer has left."""
        invocation, told = self.invoke(component=name, **asked)
        self.link(copy).reply()
        assert told.told == [("reply", b"answer")]
        self.dispatcher.written(invocation)
        return invocation

    def counted(self, name: str) -> list[tuple[Any, ...]]:
        return [row[3:] for row in self.counting.told if row[2] == name]

    def outcomes(self, name: str = "next") -> list[str]:
        return [row[1] for row in self.counted(name) if row[0] == "mirrored"]

    def drained(self, copy: int) -> bool:
        """Whether nothing is on it that was sent before it left the routes."""

        async def soon() -> bool:
            waiting = asyncio.create_task(self.dispatcher.drained([copy], 1.0))
            await asyncio.sleep(0)
            self.timers.advance(1.0)
            return await waiting

        return asyncio.run(soon())


def test_the_shadow_gets_the_same_request_under_its_own_name_once_it_is_answered() -> None:
    bench = ComponentBench()
    invocation, told = bench.invoke(component="chat", body=b"four", meta=b"[1]", deadline_s=9.0)
    bench.timers.advance(2.0)
    assert bench.link(2).sent == []
    bench.link(1).reply()
    assert told.told == [("reply", b"answer")]
    ((copy, number, deadline_ms),) = bench.link(2).sent
    assert (copy.endpoint, copy.meta, copy.body, copy.door) == ("echo", b"[1]", b"four", "shadow")
    assert (number, deadline_ms, copy.affinity) == (2, 9000, Affinity(component="next"))
    assert invocation.affinity == Affinity(component="chat")
    assert bench.link(1).sent == bench.link(3).sent == []


def test_it_is_counted_as_the_shadows_and_its_answer_is_nobodys() -> None:
    bench = ComponentBench()
    bench.call()
    answering = bench.counted("chat")
    before = bench.dispatcher.snapshot()["endpoints"]["echo"]
    assert (before["in_flight"], before["shadow"]["in_flight"]) == (0, 1)
    bench.timers.advance(0.5)
    bench.link(2).reply(b"other")
    assert bench.counted("chat") == answering
    assert [row[0] for row in bench.counted("next")] == ["mirrored", "started", "finished"]
    assert bench.counted("next")[-1][1:3] == (200, 0.5)
    after = bench.dispatcher.snapshot()["endpoints"]["echo"]
    for name in ("in_flight", "held", "router", "admission"):
        assert after[name] == before[name], f"callers' {name}"
    assert after["shadow"]["in_flight"] == 0


def test_each_of_both_is_found_by_the_other() -> None:
    bench = ComponentBench()
    asked = bench.call()
    bench.link(2).reply()
    ids, number = bench.dispatcher.ids, mirror_number(asked.number)
    asked_story, story = (bench.dispatcher.explain(ids.text(one)) for one in (asked.number, number))
    assert asked_story is not None
    assert story is not None
    assert asked_story["mirrored_as"] == ids.text(number)
    assert (story["mirror_of"], story["door"]) == (ids.text(asked.number), "shadow")
    assert (story["route"]["variant"], story["route"]["copy"]) == ("AllTraffic", 2)


def test_requests_for_other_components_are_copied_to_nobody() -> None:
    bench, failures = ComponentBench(), item_failures.counts()
    bench.call("rank", 3)
    assert (bench.link(2).sent, bench.outcomes()) == ([], [])
    assert item_failures.counts() == failures


def test_each_source_has_its_own_shadow_and_share() -> None:
    bench = ComponentBench(
        replace(DARK, weight=0.25), replace(component("dark-rank", 4), shadow_of="rank")
    )
    bench.connect("i4")
    for _ in range(400):
        bench.call()
        while bench.link(2).sent:
            bench.link(2).reply()
    copied = bench.outcomes().count("mirrored")
    assert abs(copied - 100) < 4 * (400 * 0.25 * 0.75) ** 0.5
    assert set(bench.outcomes()) == {"mirrored"}
    bench.call("rank", 3)
    assert bench.outcomes("dark-rank") == ["mirrored"]
    assert bench.link(4).take().affinity == Affinity(component="dark-rank")


def test_a_shadow_of_what_is_not_there_gets_nothing() -> None:
    bench = ComponentBench(replace(DARK, shadow_of="gone"))
    bench.call()
    bench.call("rank", 3)
    assert (bench.link(2).sent, bench.outcomes()) == ([], [])


def test_a_copy_is_copied_to_nobody_whatever_names_it() -> None:
    """Of a record that says so, though the tag would be refused: a shadow of a shadow."""
    bench = ComponentBench(DARK, replace(component("third", 4), shadow_of="next"))
    bench.connect("i4")
    bench.call()
    bench.link(2).reply()
    assert (bench.link(4).sent, bench.outcomes("third")) == ([], [])


def test_no_caller_can_name_a_shadow() -> None:
    bench = ComponentBench()
    invocation, told = bench.invoke(component="next")
    assert told.told == [("error", "component-is-shadow")]
    assert invocation.error is not None
    assert "Inference component next of endpoint echo answers no caller" in str(invocation.error)
    assert not bench.dispatcher.is_ready("echo", "next")
    _, told = bench.invoke(component="nobody")
    assert told.told == [("error", "component-not-found")]
    assert bench.dispatcher.ready_count("echo") == 2
    assert bench.link(2).sent == []
    assert bench.wanted == [], "nobody waits for a copy of it"


@pytest.mark.parametrize("happens", ["error", "death", "connection-lost", "slowness"])
def test_what_happens_to_a_copy_is_the_shadows_alone(happens: str) -> None:
    bench = ComponentBench()
    bench.call()
    answering = bench.counted("chat")
    if happens == "error":
        bench.link(2).fail(ModelError("model-error", "It raised.", original_status=500))
    elif happens == "death":
        bench.link(2).give_back("worker-died")
    elif happens == "connection-lost":
        bench.link(2).lose()
    else:
        bench.timers.advance(60.1)
    assert bench.counted("chat") == answering
    assert [row[0] for row in bench.counted("next")][-1] == "finished"
    assert bench.link(2).sent == [], "it is tried once"
    assert bench.dispatcher.snapshot()["endpoints"]["echo"]["shadow"]["in_flight"] == 0
    bench.call()  # the endpoint goes on


def test_a_shadow_that_is_full_or_has_no_copy_is_not_waited_for() -> None:
    bench = ComponentBench()
    for _ in range(6):
        bench.call()
    assert bench.outcomes() == ["mirrored"] * 4 + ["all-copies-full"] * 2
    bench.publish(shadows=(replace(DARK, copies=()),))
    bench.call()
    assert bench.outcomes()[-1] == "no-copies"
    assert bench.wanted == []


def test_requests_of_a_session_are_not_copied() -> None:
    bench = ComponentBench()
    bench.invoke(affinity=Affinity(session="s", opens=True, component="chat"))
    bench.link(1).reply()
    assert (bench.link(2).sent, bench.outcomes()) == ([], ["in-session"])


def test_a_stream_is_copied_after_its_last_part() -> None:
    bench = ComponentBench()
    asked, told = bench.invoke(component="chat")
    asked.stream = StreamObserved()
    link = bench.link(1)
    link.take()
    link.events.on_chunk(asked, b"one", b"[]")
    assert bench.link(2).sent == []
    link.events.on_end(asked, reply(b""))
    copy = bench.link(2).take()
    bench.link(2).events.on_chunk(copy, b"other", b"[]")
    bench.link(2).events.on_end(copy, reply(b""))
    assert told.told == [("chunk", b"one"), ("end", None)]


def test_a_component_becomes_a_shadow_while_callers_wait_for_it() -> None:
    """They are answered; whoever drains its copies waits for them and for what was copied."""
    bench = ComponentBench()
    bench.publish(CHAT, NEXT)
    _, told = bench.invoke(component="next")
    bench.publish(CHAT, shadows=(DARK,))
    bench.call()
    early, mirrored = bench.link(2).sent[0][0], bench.link(2).sent[1][0]
    assert (early.door, mirrored.door) == ("runtime", "shadow")
    bench.publish(CHAT)  # deleted
    assert not bench.drained(2)
    link = bench.link(2)
    link.sent.reverse()
    link.reply()  # to the copy
    assert told.told == []
    assert not bench.drained(2), "a caller waits"
    link.reply()
    assert told.told == [("reply", b"answer")]
    bench.dispatcher.written(early)
    assert bench.drained(2)


def test_a_shadow_ceases_to_be_one_and_answers_callers_at_once() -> None:
    bench = ComponentBench()
    bench.call()
    bench.publish(CHAT, NEXT)
    link = bench.link(2)
    link.reply()  # to the copy
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    _, told = bench.invoke(component="next")
    assert told.told == [("error", "no-healthy-copy")], "its copy is known here"
    bench.dispatcher.on_event("i2", {"event": "copy-ready", "copy": 2})
    bench.call("next", 2)
    assert bench.outcomes() == ["mirrored"]
    assert "shadow" not in bench.dispatcher.snapshot()["endpoints"]["echo"]
    assert bench.dispatcher.table.endpoints["echo"].only_answers


def test_its_counts_are_apart_while_it_is_one_and_no_longer() -> None:
    """The recorder is the same one: what becomes a shadow, or ceases to be one, has its history."""
    registry = MetricRegistry()
    table = EndpointTable(random.Random(1), registry)

    def publish(*answering: VariantRoutes, shadows: tuple[VariantRoutes, ...] = ()) -> None:
        table.publish(shop(*answering, shadows=shadows))
        registry.collect(1_700_000_000)  # drops what no requests come for

    def state(name: str) -> tuple[bool, bool]:
        held = registry._recorders["echo", "AllTraffic", name, ""]
        return held.apart, held.retired

    other = replace(component("dark-rank", 4), shadow_of="rank")
    publish(CHAT, RANK, NEXT)
    held = registry._recorders["echo", "AllTraffic", "next", ""]
    for before, after in (((), ()), ((other,), (other,)), ((), (other,))):
        publish(CHAT, RANK, shadows=(DARK, *before))
        assert [state(name) for name in ("chat", "next")] == [(False, False), (True, False)]
        publish(CHAT, NEXT, RANK, shadows=after)
        assert [state(name) for name in ("chat", "next")] == [(False, False), (False, False)]
        assert registry._recorders["echo", "AllTraffic", "next", ""] is held
    publish(CHAT)
    assert ("echo", "AllTraffic", "next", "") not in registry._recorders


def test_answers_of_a_shadows_two_revisions_are_compared_as_any_others() -> None:
    held = ComparedRoutes(rollout=7, spec=AgreementSpec(kind="exact"))
    (old, new) = component("next", 2, 4).copies
    both = replace(DARK, copies=(old, replace(new, incoming=True)), compared=held)
    bench = ComponentBench(both)
    bench.connect("i4")
    bench.call()
    first, other = (2, 4) if bench.link(2).sent else (4, 2)
    bench.link(first).reply(b"yes")
    bench.link(other).reply(b"no")
    assert [row for row in bench.counted("next") if row[0] == "compared"] == [
        ("compared", 7, "differ")
    ]
    assert [row for row in bench.counted("chat") if row[0] == "compared"] == []
