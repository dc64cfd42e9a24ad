"""Pairs of answers that another endpoint judges: it is asked as by any caller, and nothing that it
does or fails to do reaches anybody but the counts of the rollout."""

from __future__ import annotations

import json
import logging
import random
from dataclasses import replace
from typing import Any

import pytest
from tests.gateway.test_comparing import ROLLOUT, PairBench, compared
from tests.kit.capture_sink import ScriptedSink
from tests.kit.gateway import MemoryLink, reply, routes, run

from penstock.core.deployment.deployment import CaptureSpec, EndpointRoutes
from penstock.core.rollout.agreement import AgreementSpec
from penstock.errors import CallerError, ModelError, NotNowError
from penstock.gateway.dispatch.capture import Captures
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.mirroring import scoring
from penstock.wire.frames import RequestMeta, decode_request_meta


def judge_routes(*, lanes: int = 2, outstanding_max: int = 4, **model: Any) -> EndpointRoutes:
    """Copy 3 judges."""
    described = {"lanes": lanes} | model
    return routes(3, endpoint="judge", outstanding_max=outstanding_max, model=described)


class ScoreBench(PairBench):
    """The old generation of `echo` answers callers, and `judge` is its rollout's scorer."""

    def __init__(self, share: float = 0.0, *, lanes: int = 2, **more: Any) -> None:
        super().__init__(share, **{"scorer": "judge", "slower_max": 0.0} | more)
        self.judge: MemoryLink = self.connect("i3")
        self.dispatcher.publish(judge_routes(lanes=lanes))

    def pair(self, first: bytes = b"1", other: bytes = b"2") -> None:
        """A request, and both answers to it."""
        self.call(first)
        self.link(self.other).reply(other)

    def said(self) -> list[str]:
        return [outcome for rollout, outcome in self.outcomes() if rollout == ROLLOUT]

    def check_nothing_is_left(self) -> None:
        snapshot = self.dispatcher.snapshot()
        assert snapshot["in_flight"] == 0
        assert [one["in_flight"] for one in snapshot["endpoints"].values()] == [0, 0]
        assert self.dispatcher.outstanding(3) == 0
        scorers = self.dispatcher._scorers
        assert not scorers.live
        assert [gate.snapshot() for gate in scorers._gates.values()] == [
            {"in_flight": 0, "bytes": 0}
        ]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_the_scorer_gets_the_request_and_both_answers(share: float) -> None:
    """Whichever generation the caller's answer was of."""
    bench = ScoreBench(share)
    bench.pair(b'{"score": 1}', b"no JSON")
    ((asked, copy, deadline_ms),) = bench.judge.sent
    answers = [{"score": 1}, "no JSON"] if share < 1 else ["no JSON", {"score": 1}]
    assert json.loads(asked.body) == dict(
        zip(("request", "old", "new"), ["body", *answers], strict=True)
    )
    assert decode_request_meta(asked.meta) == RequestMeta(
        content_type="application/json", accept="application/json"
    )
    assert (asked.endpoint, asked.door, copy, deadline_ms) == ("judge", "scorer", 3, 60_000)
    assert bench.outcomes() == [], "nobody knows yet"
    taken = {"in_flight": 1, "bytes": len(b"body") + len(b'{"score": 1}') + len(b"no JSON")}
    assert bench.dispatcher._scorers._gates["judge"].snapshot() == taken
    assert bench.dispatcher.in_flight == 0, "no caller waits"
    bench.judge.reply(b"true")
    assert bench.said() == ["agree", "scored"]
    bench.check_nothing_is_left()


@pytest.mark.parametrize(
    ("answer", "outcomes"),
    [
        (b"[[0.9]]", ["agree", "scored"]),
        (b'{"agree": false}', ["differ", "scored"]),
        (b"maybe", ["unscored:scorer-answer-invalid"]),
    ],
)
def test_what_it_says_is_counted(answer: bytes, outcomes: list[str]) -> None:
    bench = ScoreBench()
    bench.pair()
    bench.judge.reply(answer)
    assert bench.said() == outcomes
    bench.check_nothing_is_left()


def test_equal_answers_agree_without_a_request() -> None:
    bench = ScoreBench()
    bench.pair(b"same", b"same")
    assert bench.judge.sent == []
    assert bench.said() == ["agree"]
    bench.check_nothing_is_left()


@pytest.mark.parametrize("answer", [b"0.2", None])
def test_times_count_where_the_scorer_has_judged(answer: bytes | None) -> None:
    """The time is that of both models: what the scorer takes is in no figure of them."""
    bench = ScoreBench(slower_max=1.5)
    for took_s, beside in ((0.14, []), (0.16, ["slower"])):
        bench.counting.told.clear()
        invocation, _ = bench.invoke()
        bench.timers.advance(0.1)
        bench.link(1).reply(b"1")
        bench.dispatcher.written(invocation)
        bench.timers.advance(took_s)
        bench.link(2).reply(b"2")
        bench.timers.advance(9.0)
        if answer is None:
            bench.judge.fail(ModelError("model-raised", "it raised"))
            assert bench.said() == ["unscored:model-raised"]
        else:
            bench.judge.reply(answer)
            assert bench.said() == ["differ", "scored", *beside]


def test_only_pairs_that_both_answered_are_judged() -> None:
    bench = ScoreBench()
    bench.call(b"1")
    assert bench.dispatcher.in_flight == 0
    bench.link(2).fail(ModelError("model-raised", "it raised"))
    assert bench.said() == ["new-failed"]
    assert bench.judge.sent == []


def test_an_error_of_the_scorer_counts_against_neither_generation() -> None:
    for error in (ModelError("model-raised", "it raised"), CallerError("body-invalid", "what?")):
        bench = ScoreBench()
        bench.pair()
        bench.judge.fail(error)
        assert bench.said() == [f"unscored:{error.code}"]
        bench.check_nothing_is_left()


def test_a_scorer_that_does_not_answer_has_as_long_as_any_request() -> None:
    bench = ScoreBench()
    bench.pair()
    bench.timers.advance(59.9)
    assert bench.said() == []
    bench.timers.advance(0.2)
    assert bench.said() == ["unscored:deadline-passed"]
    bench.check_nothing_is_left()


def test_a_request_to_it_is_tried_again_as_any_is() -> None:
    bench = ScoreBench()
    bench.pair()
    bench.judge.give_back("copy-draining")
    assert bench.said() == []
    bench.timers.advance(1.0)
    bench.judge.reply(b"true")
    assert bench.said() == ["agree", "scored"]


def test_an_answer_in_pieces_says_nothing() -> None:
    bench = ScoreBench()
    bench.pair()
    asked = bench.judge.take()
    bench.judge.events.on_chunk(asked, b"tr", b"")
    bench.judge.events.on_end(asked, reply(b""))
    assert bench.said() == ["unscored:scorer-answer-invalid"]
    bench.check_nothing_is_left()


def test_a_scorer_that_was_deleted_fails(caplog: pytest.LogCaptureFixture) -> None:
    bench = ScoreBench()
    bench.dispatcher.withdraw("judge")
    with caplog.at_level(logging.WARNING):
        bench.pair()
        bench.pair()
    assert bench.said() == 2 * ["unscored:endpoint-not-found"]
    told = "the scorer judge failed for a pair of answers: Endpoint judge not found."
    assert [record.getMessage() for record in caplog.records] == [told], "once for each rollout"
    assert bench.dispatcher.in_flight == 0


def test_it_is_asked_while_it_has_an_idle_lane_and_no_pair_waits() -> None:
    """Equal answers are dropped as well: else the part of those that differ would shrink whenever
    the scorer is busy."""
    bench = ScoreBench(lanes=2)
    for _ in range(2):
        bench.pair()
    assert len(bench.judge.sent) == 2
    bench.pair()
    bench.pair(b"same", b"same")
    assert bench.said() == ["unpaired", "unpaired"]
    bench.judge.reply(b"true")
    bench.pair(b"same", b"same")
    assert bench.said()[2:] == ["agree", "scored", "agree"]


def test_requests_of_its_own_callers_come_first() -> None:
    bench = ScoreBench(lanes=1)
    call, _ = bench.invoke(endpoint="judge")
    bench.pair()
    assert bench.said() == ["unpaired"]
    bench.judge.reply()
    bench.dispatcher.written(call)
    bench.pair()
    ((asked, _, _),) = bench.judge.sent
    assert asked.priority == 255


def test_a_scorer_without_a_copy_is_asked_so_that_one_starts() -> None:
    """As many pairs wait for it as the bound allows."""
    bench = ScoreBench()
    bench.dispatcher.publish(
        replace(
            judge_routes(),
            variants=(replace(judge_routes().variants[0], copies=(), zero_capacity="hold"),),
        )
    )
    for _ in range(scoring.PAIRS.count_max + 1):
        bench.pair()
    assert bench.said() == ["unpaired"]
    assert ("judge", "AllTraffic", "", 1) in bench.wanted
    bench.dispatcher.publish(judge_routes())
    bench.judge.reply(b"true")
    assert bench.said()[1:] == ["agree", "scored"]


def test_a_scorer_without_a_copy_that_refuses_has_failed() -> None:
    bench = ScoreBench()
    bench.judge.lose()
    bench.pair()
    assert bench.said() == ["unscored:no-healthy-copy"]


def test_bodies_that_are_too_large_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor counted where the answers are equal, as for one without room."""
    bench = ScoreBench()
    monkeypatch.setattr(scoring, "REQUEST_MAX", 4)
    bench.pair()
    bench.judge.reply(b"true")
    monkeypatch.setattr(scoring, "REQUEST_MAX", 3)
    bench.pair()
    bench.pair(b"same", b"same")
    assert bench.said() == ["agree", "scored", "unpaired", "unpaired"]


@pytest.mark.parametrize("told", ["all-copies-full", "stopping"])
def test_a_scorer_without_room_has_not_failed(told: str, caplog: pytest.LogCaptureFixture) -> None:
    bench = ScoreBench()
    bench.pair()
    bench.judge.fail(NotNowError(told, "not now"))
    assert bench.said() == ["unpaired"]
    assert caplog.records == []


@pytest.mark.parametrize(("kept", "told"), [(2, ["a", "b"]), (1, ["a", "b", "a"])])
def test_each_kind_of_failure_is_told_once_while_it_is_remembered(
    kept: int,
    told: list[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scoring, "_LOGGED_MAX", kept)
    bench = ScoreBench()
    for code in "aba":
        bench.pair()
        bench.judge.fail(ModelError(code, code))
    assert [record.getMessage()[-1] for record in caplog.records] == told


def test_its_requests_are_in_no_capture_and_no_comparison_of_the_scorers_own() -> None:
    """A scorer that is in a rollout itself, with the first endpoint as its scorer, would else ask
    for ever."""
    sink = ScriptedSink()
    bench = ScoreBench(captures=Captures(sink, random.Random(1)))
    bench.connect("i4")
    spec = CaptureSpec(destination_uri="file:///c", percentage=100)
    of_judge = compared(0.0, AgreementSpec(scorer="echo"))
    variants = (
        judge_routes().variants[0],
        replace(of_judge.variants[1], copies=routes(4).variants[0].copies),
    )
    made = replace(of_judge, endpoint="judge", variants=variants, capture=spec)
    bench.dispatcher.publish(made)
    bench.pair()
    ((asked, _, _),) = bench.judge.sent
    bench.judge.reply(b"true")
    assert bench.said() == ["agree", "scored"]
    assert sink.records == []
    assert bench.link(4).sent == []
    finished = [
        row for row in bench.counting.told if row[:3] == ("judge", "AllTraffic", "finished")
    ]
    assert [row[8] for row in finished] == ["scorer"], "counted as what it is"
    assert asked.context is not None


def test_an_answer_in_pieces_is_in_no_capture_either() -> None:
    sink = ScriptedSink()
    bench = ScoreBench(captures=Captures(sink, random.Random(1)))
    spec = CaptureSpec(destination_uri="file:///c", percentage=100)
    bench.dispatcher.publish(replace(judge_routes(), capture=spec))
    bench.pair()
    asked = bench.judge.take()
    bench.judge.events.on_chunk(asked, b"tr", b"")
    bench.judge.events.on_end(asked, reply(b""))
    assert sink.records == []


def test_a_server_that_stops_waits_for_no_scorer() -> None:
    bench = ScoreBench()
    bench.pair()
    ((asked, _, _),) = bench.judge.sent
    assert run(lambda: bench.dispatcher.drain(5.0))
    assert bench.judge.cancelled == [asked]
    assert bench.said() == []
    bench.check_nothing_is_left()


def test_what_comes_twice_is_counted_once() -> None:
    bench = ScoreBench()
    bench.pair()
    asked: Invocation = bench.judge.sent[0][0]
    bench.judge.reply(b"true")
    asked.responder.on_error(asked, ModelError("model-raised", "late"))
    assert bench.said() == ["agree", "scored"]
    bench.check_nothing_is_left()
