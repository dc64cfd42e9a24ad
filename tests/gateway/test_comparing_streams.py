"""Streams of both sides of a rollout: what their parts come to is compared, wherever they were cut,
and gathering them costs the caller nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.test_comparing import ROLLOUT, PairBench, RevisionBench, revisions
from tests.gateway.test_dispatch_targets import TargetBench
from tests.gateway.test_dispatch_targets import compared as compared_target
from tests.gateway.test_scoring import ScoreBench
from tests.kit.gateway import Bench, MemoryLink, Recording, reply, run

from penstock.core.rollout.agreement import AgreementSpec
from penstock.errors import ModelError
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.mirroring import comparing
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.wire.frames import RequestMeta, encode_request_meta

WORDS = (b'data: {"text": "one "}\n\n', b'data: {"text": "two"}\n\n')
LETTERS = tuple(b'data: {"text": "%c"}\n\n' % letter for letter in b"one two")
#: The first cut in the middle of an event.
ODD = (WORDS[0][:9], WORDS[0][9:] + WORDS[1])
OTHER = (WORDS[0], b'data: {"text": "three"}\n\n')
RAISED = ModelError("model-raised", "it raised")


def parts(link: MemoryLink, *those: bytes) -> Invocation:
    invocation = link.sent[0][0]
    for number, part in enumerate(those):
        link.events.on_chunk(invocation, part, None if number else b"")
    return invocation


def stream(link: MemoryLink, *those: bytes, queue_us: int = 0) -> Invocation:
    """The oldest request at an instance is answered in these parts."""
    invocation = parts(link, *those)
    link.take()
    link.events.on_end(invocation, reply(b"")._replace(queue_us=queue_us))
    return invocation


class StreamBench(PairBench):
    """Calls that are answered in parts."""

    def ask(self, *those: bytes, **asked: Any) -> tuple[Invocation, Recording]:
        invocation, told = self.invoke(**asked)
        invocation.stream = StreamObserved()
        parts(self.link(self.first), *those)
        return invocation, told

    def call_stream(self, *those: bytes, **asked: Any) -> Invocation:
        invocation, told = self.ask(*those, **asked)
        stream(self.link(self.first))
        assert told.told == [*(("chunk", part) for part in those), ("end", None)]
        self.dispatcher.written(invocation)
        return invocation

    def said(self) -> list[str]:
        assert {rollout for rollout, _ in self.outcomes()} <= {ROLLOUT}
        return [outcome for _, outcome in self.outcomes()]

    def check_nothing_is_left(self) -> None:
        assert self.pairs_under_way() == {"in_flight": 0, "bytes": 0}
        assert taken(self) == 0
        assert self.dispatcher.in_flight == 0
        assert self.dispatcher.outstanding(1) == self.dispatcher.outstanding(2) == 0


def taken(bench: Bench) -> int:
    """Bytes of all parts that are gathered now."""
    return bench.dispatcher._comparisons.room.taken


@pytest.mark.parametrize("share", [0.0, 1.0])
@pytest.mark.parametrize(
    ("other", "outcome"),
    [(WORDS, "agree"), (LETTERS, "agree"), (ODD, "agree"), (OTHER, "differ"), ((), "differ")],
)
def test_the_same_text_in_other_parts_agrees(
    share: float, other: tuple[bytes, ...], outcome: str
) -> None:
    bench = StreamBench(share, slower_max=0.0)
    bench.call_stream(*WORDS)
    (asked, *_), *_ = bench.link(bench.other).sent
    assert (asked.body, asked.door) == (b"body", "shadow")
    assert asked.stream is not None, "it has the time of a stream"
    stream(bench.link(bench.other), *other)
    assert bench.said() == [outcome]
    bench.check_nothing_is_left()


def test_what_streams_nothing_that_is_known_is_compared_as_a_whole_answer_is() -> None:
    bench = StreamBench(kind="exact", slower_max=0.0)
    for other, outcome in (((b"\xff1", b"23"), "agree"), ((b"\xff1", b"24"), "differ")):
        bench.counting.told.clear()
        bench.call_stream(b"\xff", b"123")
        stream(bench.link(2), *other)
        assert bench.said() == [outcome]


def test_a_whole_answer_to_a_stream_is_one_part() -> None:
    bench = StreamBench(slower_max=0.0)
    bench.call_stream(*WORDS)
    bench.link(2).reply(b'{"text": "one two"}')
    bench.call(b'{"text": "one two"}')
    stream(bench.link(2), *LETTERS)
    assert bench.said() == ["agree", "agree"]


@pytest.mark.parametrize(
    ("share", "first_fails", "other_fails", "outcome"),
    [
        (0.0, False, True, "new-failed"),
        (0.0, True, False, "old-failed"),
        (0.0, True, True, "both-failed"),
        (1.0, True, False, "new-failed"),
        (1.0, False, True, "old-failed"),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
def test_a_stream_that_ends_with_its_models_error_has_failed(
    share: float, first_fails: bool, other_fails: bool, outcome: str, before: int
) -> None:
    """Before its first part and behind it."""
    bench = StreamBench(share, slower_max=0.0)
    invocation, _ = bench.invoke()
    for copy, fails in ((bench.first, first_fails), (bench.other, other_fails)):
        if fails:
            parts(bench.link(copy), *WORDS[:before])
            bench.link(copy).fail(RAISED)
        else:
            stream(bench.link(copy), *WORDS)
    bench.dispatcher.written(invocation)
    assert bench.said() == [outcome]
    bench.check_nothing_is_left()


def test_a_stream_whose_instance_is_lost_says_nothing_of_a_model() -> None:
    bench = StreamBench(slower_max=0.0)
    invocation, told = bench.ask(*WORDS)
    bench.link(1).lose()
    assert told.final == [("error", "stream-broken")]
    bench.dispatcher.written(invocation)
    assert bench.link(2).sent == []
    assert bench.said() == []
    bench.link(1).come_back()
    bench.call_stream(*WORDS)
    parts(bench.link(2), *WORDS)
    bench.link(2).lose()
    assert bench.said() == ["unpaired"]
    bench.check_nothing_is_left()


def test_a_caller_that_leaves_in_the_middle_is_no_pair() -> None:
    bench = StreamBench()
    invocation, _ = bench.ask(*WORDS)
    assert taken(bench) == len(b"".join(WORDS))
    bench.dispatcher.cancel(invocation)
    assert bench.link(2).sent == []
    assert bench.said() == []
    bench.check_nothing_is_left()


def test_a_stream_that_breaks_while_it_waits_for_its_caller_has_not_failed() -> None:
    bench = StreamBench()
    invocation, _ = bench.ask(*WORDS)
    invocation.pace(waits=True)
    bench.link(1).fail(ModelError("stream-unread", "the responses were not read"))
    bench.dispatcher.written(invocation)
    assert bench.link(2).sent == []
    assert bench.said() == []


def test_parts_of_what_is_too_long_are_let_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "ANSWER_MAX", 4)
    bench = StreamBench(slower_max=0.0)
    invocation, _ = bench.ask(b"12", b"34")
    assert taken(bench) == 4
    parts(bench.link(1), b"5")
    assert taken(bench) == 0
    stream(bench.link(1), b"6")
    bench.dispatcher.written(invocation)
    assert bench.link(2).sent == [], "no model computes for nothing"
    assert bench.said() == ["unpaired"]
    bench.call_stream(b"12", b"34")
    stream(bench.link(2), b"1234", b"5")
    assert bench.said()[1:] == ["unpaired"]
    bench.check_nothing_is_left()


def test_all_parts_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "PARTS_MAX", 6)
    bench = StreamBench(slower_max=0.0)
    first, _ = bench.ask(b"1234")
    second, _ = bench.invoke()
    link = bench.link(1)
    link.events.on_chunk(second, b"1234", b"")
    assert taken(bench) == 4
    stream(link, b"56")
    bench.dispatcher.written(first)
    stream(link)
    bench.dispatcher.written(second)
    stream(bench.link(2), b"123456")
    assert sorted(bench.said()) == ["agree", "unpaired"]
    bench.check_nothing_is_left()


def test_only_sampled_streams_are_gathered() -> None:
    bench = StreamBench(mirror=0.25, outstanding_max=1000, slower_max=0.0)
    gathered = 0
    for _ in range(200):
        invocation, _ = bench.ask(*WORDS)
        gathered += taken(bench) > 0
        stream(bench.link(1))
        bench.dispatcher.written(invocation)
    assert 30 <= gathered <= 70
    assert len(bench.link(2).sent) == gathered


@pytest.mark.parametrize("before", [0, 1])
def test_of_broken_streams_as_many_are_copied_as_of_others(before: int) -> None:
    """Not the square of the share: they are sampled once."""
    bench = StreamBench(mirror=0.25, outstanding_max=1000)
    for _ in range(400):
        invocation, _ = bench.ask(*WORDS[:before])
        bench.link(1).fail(RAISED)
        bench.dispatcher.written(invocation)
    assert 60 <= len(bench.link(2).sent) <= 140


def test_only_streams_of_what_is_in_the_rollout_are_gathered() -> None:
    bench = RevisionBench(2)
    for component, copy, gathered in (("rank", 3, 0), ("chat", 1, len(b"".join(WORDS)))):
        _, told = bench.invoke(component=component)
        parts(bench.link(copy), *WORDS)
        assert told.told == [("chunk", part) for part in WORDS]
        assert taken(bench) == gathered


@pytest.mark.parametrize(
    "asked",
    [
        {"affinity": Affinity(session="s")},
        {"meta": encode_request_meta(RequestMeta(door="oip-grpc"))},
    ],
)
def test_streams_of_sessions_and_over_grpc_are_not_compared(asked: dict[str, Any]) -> None:
    bench = StreamBench()
    invocation, _ = bench.invoke()
    invocation.meta = asked.get("meta", invocation.meta)
    invocation.affinity = asked.get("affinity")
    parts(bench.link(1), *WORDS)
    assert taken(bench) == 0
    stream(bench.link(1))
    bench.dispatcher.written(invocation)
    assert bench.link(2).sent == []
    assert bench.said() == []


@pytest.mark.parametrize(
    ("first_s", "rest_s", "paced", "outcomes"),
    [
        (0.14, 1.0, False, ["agree"]),
        (0.16, 0.1, False, ["agree", "slower"]),
        (0.1, 1.6, False, ["agree", "slower"]),
        (0.1, 1.6, True, ["agree"]),
        (0.16, 0.1, True, ["agree", "slower"]),
    ],
)
def test_the_first_part_has_a_time_and_the_end_where_the_caller_kept_up(
    first_s: float, rest_s: float, paced: bool, outcomes: list[str]
) -> None:
    """The old one takes 0.1 s to its first part, and a second to its last."""
    bench = StreamBench(slower_max=1.5)
    invocation, _ = bench.invoke()
    bench.timers.advance(0.1)
    parts(bench.link(1), WORDS[0])
    if paced:
        invocation.pace(waits=True)
        invocation.pace(waits=False)
    bench.timers.advance(1.0)
    stream(bench.link(1), WORDS[1])
    bench.dispatcher.written(invocation)
    bench.timers.advance(first_s)
    parts(bench.link(2), WORDS[0])
    bench.timers.advance(rest_s)
    stream(bench.link(2), WORDS[1])
    assert bench.said() == outcomes


@pytest.mark.parametrize(("queue_ms", "outcomes"), [(0, ["agree", "slower"]), (150, ["agree"])])
def test_of_a_component_the_wait_of_a_stream_is_no_time_of_its_model(
    queue_ms: int, outcomes: list[str]
) -> None:
    bench = RevisionBench(2)
    bench.dispatcher.publish(revisions(2, spec=AgreementSpec(slower_max=1.5)))
    invocation, _ = bench.invoke(component="chat")
    bench.timers.advance(0.1)
    stream(bench.link(1), *WORDS)
    bench.dispatcher.written(invocation)
    bench.timers.advance(0.2)
    stream(bench.link(2), *LETTERS, queue_us=queue_ms * 1000)
    assert bench.outcomes() == [("chat", ROLLOUT, one) for one in outcomes]


@pytest.mark.parametrize(("other", "outcome"), [(LETTERS, "agree"), (OTHER, "differ")])
def test_the_artifacts_of_a_target_model_are_compared_by_their_streams(
    other: tuple[bytes, ...], outcome: str
) -> None:
    bench = TargetBench(compared_target(0.001))
    invocation = bench.call()
    stream(bench.link(1), *WORDS)
    bench.dispatcher.written(invocation)
    assert bench.asked() == ["b-2"]
    stream(bench.link(1), *other)
    assert bench.outcomes() == [(ROLLOUT, outcome)]
    assert taken(bench) == 0


def test_a_scorer_gets_what_the_parts_come_to() -> None:
    bench = ScoreBench()
    invocation, _ = bench.invoke()
    stream(bench.link(1), *WORDS)
    bench.dispatcher.written(invocation)
    stream(bench.link(2), *OTHER)
    ((asked, *_),) = bench.judge.sent
    answers = {"old": {"text": "one two"}, "new": {"text": "one three"}}
    assert json.loads(asked.body) == {"request": "body"} | answers
    bench.judge.reply(b"true")
    assert bench.said() == ["agree", "scored"]
    bench.check_nothing_is_left()


def test_what_a_scorer_streams_is_not_gathered() -> None:
    """Its endpoint may be in a rollout itself."""
    bench = ScoreBench()
    judge, echo = bench.dispatcher.routes("judge"), bench.dispatcher.routes("echo")
    assert judge is not None
    assert echo is not None
    bench.dispatcher.publish(replace(judge, compared=echo.compared))
    bench.pair()
    parts(bench.judge, b"tr")
    assert taken(bench) == 0


def test_a_server_that_stops_lets_go_of_what_it_gathered() -> None:
    bench = StreamBench()
    bench.call_stream(*WORDS)
    parts(bench.link(2), *LETTERS)
    assert taken(bench) > 0
    assert run(lambda: bench.dispatcher.drain(5.0))
    bench.check_nothing_is_left()
