"""Copies of requests for a shadow variant: the caller is answered first, and nothing that happens
to a copy reaches anything but the shadow's own figures."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.capture_sink import ScriptedSink
from tests.kit.gateway import Bench, Recording, reply, routes, run

from penstock.core.deployment.deployment import CaptureSpec, EndpointRoutes
from penstock.core.request.mirroring import MirrorSpec
from penstock.errors import ModelError, NotNowError
from penstock.gateway.dispatch import endpoint_table
from penstock.gateway.dispatch.capture import Captures
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.recording import SIZE, mirror_number
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.wire import frames


def shadowed(*copies: int, share: float = 1.0, outstanding_max: int = 4) -> EndpointRoutes:
    """Copy 1 answers callers; these copies are of its shadow `dark`."""
    (dark,) = routes(*copies, variant="dark", outstanding_max=outstanding_max).variants
    return replace(routes(1), shadows=(replace(dark, weight=share),))


class ShadowBench(Bench):
    """Copy 1 on i1 answers callers, copy 2 on i2 is the shadow's."""

    def __init__(self, share: float = 1.0, *, outstanding_max: int = 4, **bench: Any) -> None:
        super().__init__(1, **bench)
        self.shadow = self.connect("i2")
        self.dispatcher.publish(shadowed(2, share=share, outstanding_max=outstanding_max))

    def call(self, body: bytes = b"body", **asked: Any) -> Invocation:
        """A request that is answered, and whose answer has left."""
        invocation, told = self.invoke(body=body, **asked)
        self.link(1).reply()
        assert told.told == [("reply", b"answer")]
        self.dispatcher.written(invocation)
        return invocation

    def mirrored(self) -> list[Invocation]:
        return [sent for sent, _, _ in self.shadow.sent]

    def counted(self, variant: str) -> list[tuple[Any, ...]]:
        return [row[2:] for row in self.counting.told if row[1] == variant]

    def outcomes(self) -> list[str]:
        """What became of requests that were sampled."""
        return [row[1] for row in self.counted("dark") if row[0] == "mirrored"]

    def under_way(self) -> dict[str, int]:
        seen = self.dispatcher.snapshot()["endpoints"]["echo"]["shadow"]
        return {name: seen[name] for name in ("in_flight", "bytes")}


def explained(bench: Bench, number: int) -> dict[str, Any]:
    story = bench.dispatcher.explain(bench.dispatcher.ids.text(number))
    assert story is not None
    return story


def test_the_caller_is_answered_and_then_the_shadow_gets_the_same_request() -> None:
    bench = ShadowBench()
    seen_by_caller: list[int] = []

    class Caller(Recording):
        def on_reply(self, invocation: Invocation, reply: frames.Reply) -> None:
            seen_by_caller.append(len(bench.shadow.sent))
            invocation.body = b""  # as doors do

    now = bench.clock.monotonic()
    asked = Invocation(
        "echo", b"[1]", b"four", Caller(), received=now, deadline=now + 9, priority=3
    )
    bench.dispatcher.invoke(asked)
    bench.timers.advance(2.0)
    assert bench.shadow.sent == []
    bench.link(1).reply()
    assert seen_by_caller == [0]
    ((copy, number, deadline_ms),) = bench.shadow.sent
    assert (copy.endpoint, copy.meta, copy.body, copy.priority) == ("echo", b"[1]", b"four", 3)
    assert (number, deadline_ms, copy.door) == (2, 9000, "shadow")
    assert bench.link(1).sent == []


def test_it_is_counted_under_the_shadows_name_and_nowhere_else() -> None:
    bench = ShadowBench()
    bench.call()
    production = bench.counted("AllTraffic")
    before = bench.dispatcher.snapshot()["endpoints"]["echo"]
    assert before["in_flight"] == bench.dispatcher.in_flight == 0
    assert bench.under_way() == {"in_flight": 1, "bytes": 4}
    shadow = bench.dispatcher.table.endpoints["echo"].shadow
    assert shadow is not None
    assert shadow.entry.in_flight == 1
    bench.timers.advance(0.5)
    bench.shadow.reply(b"other")
    assert bench.counted("AllTraffic") == production
    assert [row[0] for row in bench.counted("dark")] == ["mirrored", "started", "finished"]
    assert bench.counted("dark")[0] == ("mirrored", "mirrored")
    assert bench.counted("dark")[-1][1:3] == (200, 0.5)
    after = bench.dispatcher.snapshot()["endpoints"]["echo"]
    assert {name: after[name] for name in after if name != "shadow"} == {
        name: before[name] for name in before if name != "shadow"
    }
    assert bench.under_way() == {"in_flight": 0, "bytes": 0}


def test_each_of_both_is_found_by_the_other() -> None:
    bench = ShadowBench()
    asked = bench.call()
    assert "mirrored_as" not in explained(bench, asked.number), "it is not over"
    bench.shadow.reply()
    number = mirror_number(asked.number)
    ids = bench.dispatcher.ids
    assert explained(bench, asked.number)["mirrored_as"] == ids.text(number)
    story = explained(bench, number)
    assert (story["mirror_of"], story["door"]) == (ids.text(asked.number), "shadow")
    assert story["route"]["variant"] == "dark"
    assert ids.number(ids.text(number)) == number
    assert number % SIZE != asked.number % SIZE, "both are kept"


def test_a_share_of_the_requests_is_copied() -> None:
    bench = ShadowBench(share=0.25)
    for _ in range(400):
        bench.call()
        while bench.shadow.sent:
            bench.shadow.reply()
    copied = bench.outcomes().count("mirrored")
    assert abs(copied - 100) < 4 * (400 * 0.25 * 0.75) ** 0.5
    assert set(bench.outcomes()) == {"mirrored"}, "others are not dropped: they are not sampled"


def test_a_share_of_nothing_copies_nothing() -> None:
    bench = ShadowBench(share=0.0)
    bench.call()
    assert (bench.shadow.sent, bench.outcomes()) == ([], [])


def test_an_endpoint_without_a_shadow_is_only_answered() -> None:
    bench = ShadowBench()
    assert not bench.dispatcher.table.endpoints["echo"].only_answers
    bench.dispatcher.publish(routes(1))
    assert bench.dispatcher.table.endpoints["echo"].only_answers
    bench.call()
    assert bench.outcomes() == []
    assert "shadow" not in bench.dispatcher.snapshot()["endpoints"]["echo"]


def test_a_shadow_can_not_be_named_or_drawn() -> None:
    bench = ShadowBench()
    _, told = bench.invoke(variant="dark")
    assert told.told == [("error", "variant-not-found")]
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    _, told = bench.invoke()
    assert told.told == [("error", "no-healthy-copy")]
    assert bench.shadow.sent == []
    assert bench.dispatcher.ready_count("echo") == 0


@pytest.mark.parametrize(
    ("happens", "status", "model_status"),
    [
        ("error", 424, 500),
        ("death", 424, 500),
        ("given-back", 503, 0),
        ("connection-lost", 503, 0),
        ("slowness", 503, 0),
    ],
)
def test_what_happens_to_a_copy_is_the_shadows_alone(
    happens: str, status: int, model_status: int
) -> None:
    bench = ShadowBench()
    bench.call()
    production, (copy,) = bench.counted("AllTraffic"), bench.mirrored()
    if happens == "error":
        error = ModelError("model-error", "It raised.", original_status=500)
        bench.shadow.fail(error)
    elif happens == "death":
        bench.shadow.give_back("worker-died")
    elif happens == "given-back":
        bench.shadow.give_back("copy-lost")
    elif happens == "connection-lost":
        bench.shadow.lose()
    else:
        bench.timers.advance(59.9)
        assert bench.shadow.cancelled == []
        bench.timers.advance(0.2)
        assert bench.shadow.cancelled == [copy]
    assert bench.counted("AllTraffic") == production
    (finished,) = [row for row in bench.counted("dark") if row[0] == "finished"]
    assert (finished[1], finished[-1]) == (status, model_status)
    assert bench.shadow.sent == [], "it is tried once"
    assert bench.under_way() == {"in_flight": 0, "bytes": 0}
    assert bench.dispatcher.in_flight == 0
    bench.call()  # the endpoint goes on


def test_a_copy_has_as_much_time_as_its_request_had() -> None:
    bench = ShadowBench()
    bench.call(deadline_s=1.0)
    (copy,) = bench.mirrored()
    bench.timers.advance(0.9)
    assert bench.shadow.cancelled == []
    bench.timers.advance(0.2)
    assert bench.shadow.cancelled == [copy]


def test_a_shadow_that_is_full_is_not_waited_for() -> None:
    bench = ShadowBench(outstanding_max=2)
    for _ in range(4):
        bench.call()
    assert bench.outcomes() == ["mirrored", "mirrored", "all-copies-full", "all-copies-full"]
    assert bench.under_way() == {"in_flight": 2, "bytes": 8}
    bench.shadow.reply()
    bench.call()
    assert bench.outcomes()[-1] == "mirrored"


def test_queues_of_a_shadows_copies_are_not_balanced() -> None:
    bench = ShadowBench()
    for _ in range(4):
        bench.call()
    bench.dispatcher.publish(shadowed(2, 3))
    bench.connect("i3")
    bench.dispatcher.on_event("i3", {"event": "copy-ready", "copy": 3})
    bench.dispatcher.on_unusable("i3", [])
    assert bench.shadow.told == []
    assert len(bench.shadow.sent) == 4


def test_without_a_copy_that_lives_copies_are_dropped() -> None:
    bench = ShadowBench()
    bench.dispatcher.on_event("i2", {"event": "copy-lost", "copy": 2})
    bench.call()
    bench.dispatcher.publish(shadowed())
    bench.call()
    assert bench.outcomes() == ["no-healthy-copy", "no-copies"]
    assert bench.under_way() == {"in_flight": 0, "bytes": 0}


def test_count_and_bytes_under_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = MirrorSpec(count_max=2, bytes_max=10)
    monkeypatch.setattr(endpoint_table, "MIRRORS", bounds)
    bench = ShadowBench()
    for size in (4, 7, 6, 1):
        bench.call(b"b" * size)
    assert bench.outcomes() == ["mirrored", "too-many-bytes", "mirrored", "too-many-in-flight"]
    bench.shadow.reply()
    assert bench.under_way() == {"in_flight": 1, "bytes": 6}


def test_requests_of_a_session_are_not_copied_and_counted_as_such() -> None:
    bench = ShadowBench()
    now = bench.clock.monotonic()
    asked = Invocation("echo", b"", b"", Recording(), received=now, deadline=None)
    asked.affinity = Affinity(session="s", opens=True)
    bench.dispatcher.invoke(asked)
    bench.link(1).reply()
    assert bench.outcomes() == ["in-session"]
    assert bench.shadow.sent == []


def test_a_request_for_a_target_model_is_copied_for_the_same_one() -> None:
    bench = ShadowBench()
    hosts = shadowed(2)
    multi = replace(
        hosts,
        variants=tuple(replace(one, multi_model=True) for one in hosts.variants),
        shadows=tuple(replace(one, multi_model=True) for one in hosts.shadows),
    )
    bench.dispatcher.publish(multi)
    now = bench.clock.monotonic()
    asked = Invocation("echo", b"", b"", Recording(), received=now, deadline=None)
    asked.affinity = Affinity(model="a.tar.gz")
    bench.dispatcher.invoke(asked)
    bench.link(1).reply()
    (copy,) = bench.mirrored()
    assert copy.affinity == Affinity(model="a.tar.gz")


def test_a_stream_is_copied_after_its_last_part_and_its_copys_answer_thrown_away() -> None:
    bench = ShadowBench()
    asked, told = bench.invoke()
    asked.stream = StreamObserved()
    link = bench.link(1)
    link.take()
    link.events.on_chunk(asked, b"one", b"[]")
    assert bench.shadow.sent == []
    link.events.on_end(asked, reply(b""))
    assert told.told == [("chunk", b"one"), ("end", None)]
    copy = bench.shadow.take()
    assert copy.body == b"body"
    bench.timers.advance(0.5)
    bench.shadow.events.on_chunk(copy, b"other", b"[]")
    bench.shadow.events.on_end(copy, reply(b""))
    assert told.told == [("chunk", b"one"), ("end", None)]
    assert ("streamed", 0.5) in bench.counted("dark")
    assert bench.under_way() == {"in_flight": 0, "bytes": 0}


def test_what_the_models_error_was_is_asked_of_the_shadow_too() -> None:
    """Else a shadow that fails less often would look like one that fails as often."""
    bench = ShadowBench()
    _, told = bench.invoke()
    link = bench.link(1)
    link.fail(ModelError("model-error", "No."))
    assert [kind for kind, _ in told.told] == ["error"]
    (copy,) = bench.mirrored()
    assert copy.body == b"body"


def test_what_no_model_answered_is_not_copied() -> None:
    bench = ShadowBench()
    link = bench.link(1)
    bench.invoke()
    link.fail(NotNowError("queue-full", "Later."))
    gone, _ = bench.invoke()
    bench.dispatcher.cancel(gone)
    bench.invoke(variant="nobody")
    bench.invoke(deadline_s=1.0)
    bench.timers.advance(2.0)
    assert bench.outcomes() == []


def test_a_process_that_stops_cancels_copies_and_makes_no_more() -> None:
    bench = ShadowBench()
    bench.call()
    (copy,) = bench.mirrored()
    last, told = bench.invoke()

    async def stop() -> bool:
        waiting = asyncio.ensure_future(bench.dispatcher.drain(5.0))
        await asyncio.sleep(0)
        bench.link(1).reply()
        bench.dispatcher.written(last)
        return await waiting

    assert run(stop)
    assert told.told == [("reply", b"answer")]
    assert bench.shadow.cancelled == [copy]
    assert bench.outcomes() == ["mirrored"]
    assert bench.under_way() == {"in_flight": 0, "bytes": 0}


def test_a_fault_in_copying_costs_the_caller_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ShadowBench()

    def broken(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(bench.shadow, "send", broken)
    bench.call()


def test_a_shadow_that_leaves_the_routes_drains_and_its_books_stay_right() -> None:
    bench = ShadowBench()
    bench.call()
    assert bench.dispatcher.outstanding(2) == 1
    bench.dispatcher.publish(routes(1))
    bench.shadow.reply()
    assert bench.dispatcher.in_flight == 0
    assert bench.dispatcher.outstanding(2) == 0
    bench.dispatcher.publish(shadowed(2))
    bench.call()
    bench.dispatcher.withdraw("echo")
    assert bench.dispatcher.outstanding(2) == 0, "it drains"
    bench.shadow.reply()
    bench.dispatcher.publish(shadowed(2))
    assert bench.under_way() == {"in_flight": 0, "bytes": 0}


def test_the_shadows_calls_are_captured_under_its_name() -> None:
    sink = ScriptedSink()
    bench = ShadowBench(captures=Captures(sink, random.Random(1)))
    spec = CaptureSpec(destination_uri="file:///captured", percentage=100)
    bench.dispatcher.publish(replace(shadowed(2), capture=spec))
    bench.call()
    bench.shadow.reply(b"other")
    assert [(one.variant, one.request, one.answer) for one in sink.records] == [
        ("AllTraffic", b"body", (b"answer",)),
        ("dark", b"body", (b"other",)),
    ]
