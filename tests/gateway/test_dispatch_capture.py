"""Data capture at the dispatcher: which calls become records, and when."""

from __future__ import annotations

import random
from dataclasses import replace

import orjson
import pytest
from tests.kit.capture_sink import ScriptedSink
from tests.kit.gateway import Bench, reply, routes

from penstock.core.deployment.deployment import CaptureSpec
from penstock.errors import InternalError, ModelError, PenstockError
from penstock.gateway.channel.messages import decode, encode, routes_from
from penstock.gateway.dispatch import capture_records
from penstock.gateway.dispatch.capture import Captures
from penstock.gateway.dispatch.capture_records import CaptureRecord
from penstock.gateway.dispatch.invocation import Invocation
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.wire import frames

ALL = CaptureSpec(destination_uri="s3://b/p", percentage=100)
META = frames.encode_reply_meta(frames.ReplyMeta("text/csv"))


def bench(sink: ScriptedSink, spec: CaptureSpec | None = ALL) -> Bench:
    made = Bench(1, captures=Captures(sink, random.Random(7)))
    made.dispatcher.publish(replace(routes(1), capture=spec))
    return made


def stream(made: Bench, *parts: bytes) -> Invocation:
    invocation, _ = made.invoke()
    for number, part in enumerate(parts):
        made.link(1).events.on_chunk(invocation, part, None if number else META)
    return invocation


def test_a_call_is_a_record_once_it_is_answered() -> None:
    """The door lets go of the body with the answer; the record still has it."""
    sink = ScriptedSink()
    made = bench(sink)
    invocation, recording = made.invoke(body=b"rows")
    seen: list[int] = []

    def answer(one: Invocation, told: frames.Reply) -> None:
        seen.append(len(sink.records))
        one.body = b""

    recording.on_reply = answer  # type: ignore[method-assign]
    made.link(1).events.on_reply(invocation, reply(b"scores", META))
    [record] = sink.records
    assert seen == [0]
    assert (record.endpoint, record.variant) == ("echo", "AllTraffic")
    assert (record.request, record.answer, record.reply_meta) == (b"rows", (b"scores",), META)
    assert record.size == len(b"[]" + META + b"rows" + b"scores")


def test_only_the_wanted_halves_and_the_wanted_share_are_captured() -> None:
    sink = ScriptedSink()
    for spec, captured in (
        (replace(ALL, outputs=False), (b"body", None)),
        (replace(ALL, inputs=False), (None, (b"answer",))),
    ):
        made = bench(sink, spec)
        made.invoke()
        made.link(1).reply()
        assert sink.bodies().pop() == captured
    sink.records.clear()
    made = bench(sink, replace(ALL, percentage=30))
    for _ in range(1000):
        invocation, _ = made.invoke()
        made.link(1).reply()
        made.dispatcher.written(invocation)
    assert 250 < len(sink.records) < 350


def test_an_endpoint_without_capture_draws_no_number() -> None:
    sink = ScriptedSink()
    made = bench(sink, None)
    made.dispatcher._captures._rng = None  # type: ignore[union-attr, assignment]
    made.invoke()
    made.link(1).reply()
    assert sink.records == []


@pytest.mark.parametrize(
    "error", [ModelError("no", "No.", original_status=400), InternalError("bug", "B.")]
)
def test_calls_that_fail_are_not_captured(error: PenstockError) -> None:
    sink = ScriptedSink()
    made = bench(sink)
    invocation, recording = made.invoke()
    made.link(1).events.on_error(invocation, reply(orjson.dumps(error.to_dict())))
    assert recording.told == [("error", error.code)]
    assert sink.records == []


def test_a_call_whose_answer_the_door_refuses_is_not_captured() -> None:
    sink = ScriptedSink()
    made = bench(sink)
    invocation, recording = made.invoke()

    def refuse(one: Invocation, told: frames.Reply) -> None:
        raise InternalError("no", "No.")

    recording.on_reply = refuse  # type: ignore[method-assign]
    made.link(1).events.on_reply(invocation, reply())
    assert (recording.told, sink.records) == ([("error", "no")], [])


def test_a_sink_that_fails_does_not_harm_the_call() -> None:
    sink = ScriptedSink()
    sink.broken = True
    made = bench(sink)
    _, recording = made.invoke()
    made.link(1).reply()
    assert recording.told == [("reply", b"answer")]


def test_a_stream_is_captured_as_its_parts_in_a_row() -> None:
    sink = ScriptedSink()
    made = bench(sink)
    invocation = stream(made, b"one", b"two")
    assert (sink.reserved, sink.records) == (6, [])
    made.link(1).events.on_end(invocation, reply(b""))
    made.dispatcher.written(invocation)
    assert sink.bodies() == [(b"body", (b"one", b"two"))]
    assert sink.records[0].reply_meta == META
    assert sink.reserved == 0
    assert invocation.stream is not None
    assert invocation.stream.captured is None, "the ring of requests would keep it"


def test_a_stream_without_parts_is_captured_too() -> None:
    sink = ScriptedSink()
    made = bench(sink)
    invocation = stream(made)
    made.link(1).events.on_end(invocation, reply(b"", META))
    assert sink.bodies() == [(b"body", ())]


def test_of_a_stream_that_is_too_long_only_the_request_is_captured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture_records, "STREAM_BYTES_MAX", 5)
    for sink in (ScriptedSink(), ScriptedSink(bytes_max=3)):
        for spec, captured in ((ALL, [(b"body", None)]), (replace(ALL, inputs=False), [])):
            sink.records.clear()
            made = bench(sink, spec)
            invocation = stream(made, b"one", b"two", b"three")
            made.link(1).events.on_end(invocation, reply(b""))
            assert (sink.bodies(), sink.reserved) == (captured, 0)
            dropped = ("captured", "dropped", "answer-too-long")
            counted = [row[2:] for row in made.counting.told if row[2:] == dropped]
            assert counted == ([] if captured else [dropped])


def test_the_room_of_a_stream_is_that_of_the_parts_that_it_keeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capture_records, "STREAM_BYTES_MAX", 5)
    sink = ScriptedSink()
    captures = Captures(sink, random.Random(7))
    record = CaptureRecord(ALL, "echo", "blue", VariantRecorder("echo", "blue"), b"", b"", b"in")
    kept = captures.stream(record)
    for part in (b"on", b"two"):
        kept.add(part)
    assert (sink.reserved, kept.answer) == (5, (b"on", b"two"))
    kept.add(b"!")
    assert (sink.reserved, kept.answer, kept._parts) == (0, None, [])
    kept.add(b"more")
    assert (sink.reserved, kept._parts) == (0, [])
    other = captures.stream(record)
    other.add(b"abc")
    captures.ended(other)
    assert (sink.reserved, sink.bodies()) == (0, [(b"in", (b"abc",))])
    only = captures.stream(record._replace(spec=replace(ALL, outputs=False)))
    only.add(b"abc")
    assert (sink.reserved, only._parts) == (0, [])


def test_a_stream_that_breaks_or_whose_client_goes_gives_its_room_back() -> None:
    sink = ScriptedSink()
    made = bench(sink)
    invocation = stream(made, b"one")
    made.dispatcher.cancel(invocation)
    assert (sink.reserved, sink.records) == (0, [])
    invocation = stream(made, b"one")
    made.link(1).lose()
    made.dispatcher.written(invocation)
    assert (sink.reserved, sink.records) == (0, [])


def test_gateways_of_their_own_are_told_the_very_spec() -> None:
    spec = replace(ALL, csv_types=("text/csv", "text/x"), inputs=False)
    for told in (replace(routes(1), capture=spec), routes(1)):
        fields, _ = decode(encode(64, 0, {"routes": told})[frames.HEAD.size :])
        assert routes_from(fields["routes"]) == told
