"""Pipelines: which step runs when, what stands for a late one, and in which order it all leaves.

The timelines are of a shopping assistant: `answer` writes text, `cards` fetches product cards.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.pipeline.pipeline import Pipeline
from penstock.core.pipeline.spec import (
    Action,
    Anchor,
    Done,
    Emit,
    FailPipeline,
    Feed,
    FeedEnd,
    FellBack,
    PipelineEvent,
    PipelineSpec,
    PipelineStepSpec,
    Start,
    Stop,
)
from penstock.errors import CallerError

SORRY = PipelineEvent("notice", "cards are not there")


def made(*steps: PipelineStepSpec, deadline: float | None = None) -> Pipeline:
    return Pipeline(PipelineSpec(steps=steps), deadline=deadline)


def text(words: str) -> PipelineEvent:
    return PipelineEvent("text", words, advance=len(words))


def card(name: str, *, after: float | None = None) -> PipelineEvent:
    return PipelineEvent("product", name, None if after is None else Anchor("answer", after))


def test_a_step_begins_when_all_that_it_needs_has_ended() -> None:
    pipeline = made(
        PipelineStepSpec(name="embed"),
        PipelineStepSpec(name="words"),
        PipelineStepSpec(name="rank", needs=("embed", "words")),
    )
    assert pipeline.start(now=0.0) == [
        Start(1, "embed", None, "needs-met"),
        Start(2, "words", None, "needs-met"),
    ]
    assert pipeline.done(2, now=1.0) == []
    assert pipeline.done(1, now=2.0) == [Start(3, "rank", None, "needs-met")]
    assert pipeline.done(3, now=3.0) == [Done()]


def test_a_step_whose_condition_does_not_hold_is_over_at_once_and_told_as_skipped() -> None:
    pipeline = made(PipelineStepSpec(name="embed"), PipelineStepSpec(name="rank", needs=("embed",)))
    pipeline.start(now=0.0)
    assert pipeline.skipped(1, now=0.0) == [Start(2, "rank", None, "needs-met")]
    assert pipeline.skipped(1, now=0.5) == [], "it is over"
    assert pipeline.done(2, now=1.0) == [Done()]
    assert pipeline.outcomes() == {"embed": "skipped", "rank": "done"}


def test_steps_may_be_declared_before_those_that_they_take_from() -> None:
    pipeline = made(
        PipelineStepSpec(name="rank", needs=("embed",)),
        PipelineStepSpec(name="mentions", follows="embed"),
        PipelineStepSpec(name="embed"),
    )
    assert pipeline.start(now=0.0) == [
        Start(1, "embed", None, "needs-met"),
        Start(2, "mentions", None, "source-began"),
    ]
    assert pipeline.done(1, now=1.0) == [
        FeedEnd(2, "done"),
        Start(3, "rank", None, "needs-met"),
    ]


def test_branches_merge_in_the_order_in_which_they_speak() -> None:
    pipeline = made(PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards"))
    pipeline.start(now=0.0)
    assert pipeline.piece(1, "A", [text("A")], now=0.1) == [Emit("answer", text("A"), "ready")]
    assert pipeline.piece(2, "x", [card("x")], now=0.2) == [Emit("cards", card("x"), "ready")]
    assert pipeline.done(1, [text("B")], now=0.3) == [Emit("answer", text("B"), "ready")]
    assert pipeline.done(2, now=0.4) == [Done()]


def test_a_card_leaves_once_its_sentence_has() -> None:
    pipeline = made(PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards"))
    pipeline.start(now=0.0)
    early, after = card("x", after=6), PipelineEvent("link", "behind x")
    assert pipeline.piece(2, "x", [early, after], now=0.1) == []
    assert pipeline.piece(1, "", [text("Take")], now=0.2) == [Emit("answer", text("Take"), "ready")]
    assert pipeline.piece(1, "", [text(" x.")], now=0.3) == [
        Emit("answer", text(" x."), "ready"),
        Emit("cards", early, "anchor-passed"),
        Emit("cards", after, "ready"),
    ]


def test_what_says_of_no_distance_goes_none() -> None:
    pipeline = made(PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards"))
    pipeline.start(now=0.0)
    pipeline.piece(2, "x", [card("x", after=1)], now=0.1)
    link = PipelineEvent("link", "x")
    assert pipeline.piece(1, "", [link], now=0.2) == [Emit("answer", link, "ready")]


def test_a_card_fits_between_two_sentences_that_came_at_once() -> None:
    pipeline = made(PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards"))
    pipeline.start(now=0.0)
    pipeline.piece(2, "x", [card("x", after=2), PipelineEvent("link", "x")], now=0.1)
    assert pipeline.piece(1, "", [text("A."), text("B.")], now=0.2) == [
        Emit("answer", text("A."), "ready"),
        Emit("cards", card("x", after=2), "anchor-passed"),
        Emit("cards", PipelineEvent("link", "x"), "ready"),
        Emit("answer", text("B."), "ready"),
    ]


def test_a_card_of_a_sentence_that_never_came_leaves_at_the_end_of_the_text() -> None:
    pipeline = made(PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards"))
    pipeline.start(now=0.0)
    pipeline.done(2, [card("x", after=100)], now=0.1)
    assert pipeline.done(1, [text("Hm.")], now=0.2) == [
        Emit("answer", text("Hm."), "ready"),
        Emit("cards", card("x", after=100), "anchor-over"),
        Done(),
    ]


def test_a_slow_branch_is_replaced_by_its_fallback_and_the_text_never_waits() -> None:
    pipeline = made(
        PipelineStepSpec(name="answer"),
        PipelineStepSpec(name="cards", deadline_s=0.5, fallback=(SORRY,)),
    )
    pipeline.start(now=10.0)
    assert pipeline.next_deadline() == 10.5
    assert pipeline.piece(1, "", [text("A")], now=10.1) == [Emit("answer", text("A"), "ready")]
    assert pipeline.on_timer(now=10.4) == []
    assert pipeline.on_timer(now=10.5) == [
        Stop(2, "deadline-passed"),
        FellBack("cards", 2, "deadline-passed"),
        Emit("cards", SORRY, "deadline-passed"),
    ]
    assert pipeline.piece(2, "x", [card("x")], now=10.6) == [], "too late to be heard"
    assert pipeline.failed(2, "connection-lost", now=10.6) == []
    assert pipeline.done(1, now=10.7) == [Done()]
    assert pipeline.outcomes() == {"answer": "done", "cards": "deadline-passed"}


def test_what_a_branch_said_before_it_broke_stays_and_the_fallback_comes_behind() -> None:
    pipeline = made(
        PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards", fallback=(SORRY,))
    )
    pipeline.start(now=0.0)
    pipeline.piece(2, "x", [card("x", after=1)], now=0.1)
    assert pipeline.failed(2, "connection-lost", now=0.2) == [
        FellBack("cards", 2, "connection-lost")
    ]
    assert pipeline.piece(1, "", [text("A")], now=0.3) == [
        Emit("answer", text("A"), "ready"),
        Emit("cards", card("x", after=1), "anchor-passed"),
        Emit("cards", SORRY, "connection-lost"),
    ]


def test_a_step_without_a_fallback_ends_the_pipeline() -> None:
    pipeline = made(PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards", fallback=()))
    pipeline.start(now=0.0)
    assert pipeline.failed(1, "no-copies", now=0.1) == [
        Stop(2, "pipeline-failed"),
        FailPipeline("answer", "no-copies"),
    ]
    assert pipeline.state == "failed"
    assert pipeline.next_deadline() is None


def test_steps_behind_a_fallback_go_on() -> None:
    pipeline = made(
        PipelineStepSpec(name="find", fallback=()), PipelineStepSpec(name="answer", needs=("find",))
    )
    pipeline.start(now=0.0)
    assert pipeline.failed(1, "step-failed", now=0.1) == [
        FellBack("find", 1, "step-failed"),
        Start(2, "answer", None, "needs-met"),
    ]


def test_a_follower_gets_the_pieces_as_they_come_those_before_it_began_included() -> None:
    pipeline = made(
        PipelineStepSpec(name="answer"),
        PipelineStepSpec(name="names"),
        PipelineStepSpec(name="mentions", follows="answer", needs=("names",), deadline_s=1.0),
    )
    pipeline.start(now=0.0)
    assert pipeline.piece(1, "A", now=0.1) == []
    assert pipeline.done(2, now=0.2) == [
        Start(3, "mentions", None, "source-began"),
        Feed(3, "A"),
    ]
    assert pipeline.piece(1, "B", now=0.3) == [Feed(3, "B")]
    assert pipeline.next_deadline() is None, "it waits for others, who have deadlines of their own"
    assert pipeline.done(1, now=9.0) == [FeedEnd(3, "done")]
    assert pipeline.next_deadline() == 10.0


def test_a_follower_waits_for_its_source_to_begin() -> None:
    pipeline = made(
        PipelineStepSpec(name="find"),
        PipelineStepSpec(name="answer", needs=("find",)),
        PipelineStepSpec(name="mentions", follows="answer"),
    )
    assert pipeline.start(now=0.0) == [Start(1, "find", None, "needs-met")]
    assert pipeline.done(1, now=0.1) == [
        Start(2, "answer", None, "needs-met"),
        Start(3, "mentions", None, "source-began"),
    ]


def test_a_follower_that_begins_when_its_source_is_over_gets_it_all_at_once() -> None:
    pipeline = made(
        PipelineStepSpec(name="answer"),
        PipelineStepSpec(name="names"),
        PipelineStepSpec(name="mentions", follows="answer", needs=("names",), deadline_s=1.0),
    )
    pipeline.start(now=0.0)
    assert pipeline.piece(1, "A", now=0.1) == []
    assert pipeline.piece(1, "B", now=0.2) == []
    assert pipeline.done(1, now=0.3) == []
    assert pipeline.done(2, now=5.0) == [
        Start(3, "mentions", None, "source-began"),
        Feed(3, "A"),
        Feed(3, "B"),
        FeedEnd(3, "done"),
    ]
    assert pipeline.next_deadline() == 6.0


def test_what_ended_the_pipeline_is_the_last_word_of_the_timer() -> None:
    """Two are late at once: the first must not be, so the second is stopped, and once."""
    pipeline = made(
        PipelineStepSpec(name="answer", deadline_s=1.0),
        PipelineStepSpec(name="cards", deadline_s=1.0, fallback=(SORRY,)),
    )
    pipeline.start(now=0.0)
    assert pipeline.on_timer(now=1.0) == [
        Stop(1, "deadline-passed"),
        Stop(2, "pipeline-failed"),
        FailPipeline("answer", "deadline-passed"),
    ]
    assert pipeline.on_timer(now=2.0) == []


def test_one_call_for_each_piece_a_few_at_once_and_in_order() -> None:
    pipeline = made(
        PipelineStepSpec(name="mentions"),
        PipelineStepSpec(
            name="cards", follows="mentions", each=True, calls_max=2, fallback=(SORRY,)
        ),
    )
    assert pipeline.start(now=0.0) == [Start(1, "mentions", None, "needs-met")]
    assert pipeline.piece(1, "a", now=0.1) == [Start(2, "cards", "a", "piece")]
    assert pipeline.piece(1, "b", now=0.2) == [Start(3, "cards", "b", "piece")]
    assert pipeline.piece(1, "c", now=0.3) == []
    assert pipeline.done(1, now=0.4) == []
    # b is there first, and waits for a: the calls of one step keep their order.
    assert pipeline.done(3, [card("b")], now=0.5) == [Start(4, "cards", "c", "piece")]
    assert pipeline.failed(2, "unavailable", now=0.6) == [
        FellBack("cards", 2, "unavailable"),
        Emit("cards", SORRY, "unavailable"),
        Emit("cards", card("b"), "ready"),
    ]
    assert pipeline.done(4, [card("c")], now=0.7) == [Emit("cards", card("c"), "ready"), Done()]


def test_unless_said_otherwise_eight_pieces_have_their_calls_at_once() -> None:
    pipeline = made(
        PipelineStepSpec(name="find"), PipelineStepSpec(name="cards", follows="find", each=True)
    )
    pipeline.start(now=0.0)
    started = [pipeline.piece(1, number, now=0.1) for number in range(1, 10)]
    assert started == [
        *([Start(1 + number, "cards", number, "piece")] for number in range(1, 9)),
        [],
    ]


def test_a_piece_goes_to_those_who_take_all_and_to_those_who_take_each() -> None:
    pipeline = made(
        PipelineStepSpec(name="find"),
        PipelineStepSpec(name="cards", follows="find", each=True),
        PipelineStepSpec(name="count", follows="find"),
    )
    assert pipeline.start(now=0.0) == [
        Start(1, "find", None, "needs-met"),
        Start(2, "count", None, "source-began"),
    ]
    assert pipeline.piece(1, "a", now=0.1) == [Feed(2, "a"), Start(3, "cards", "a", "piece")]


def test_for_each_of_no_pieces_nothing_is_called() -> None:
    pipeline = made(
        PipelineStepSpec(name="find"), PipelineStepSpec(name="cards", follows="find", each=True)
    )
    pipeline.start(now=0.0)
    assert pipeline.done(1, now=0.1) == [Done()]


def test_the_first_piece_may_have_a_deadline_of_its_own() -> None:
    pipeline = made(PipelineStepSpec(name="answer", first_s=1.0, deadline_s=30.0, fallback=()))
    pipeline.start(now=0.0)
    assert pipeline.next_deadline() == 1.0
    pipeline.piece(1, "A", now=0.9)
    assert pipeline.next_deadline() == 30.0


def test_a_follower_that_has_spoken_has_no_deadline_for_its_first_piece() -> None:
    pipeline = made(
        PipelineStepSpec(name="answer"),
        PipelineStepSpec(name="mentions", follows="answer", first_s=1.0, deadline_s=5.0),
    )
    pipeline.start(now=0.0)
    pipeline.piece(2, "x", now=1.0)
    assert pipeline.done(1, now=2.0) == [FeedEnd(2, "done")]
    assert pipeline.next_deadline() == 7.0


def test_at_the_requests_deadline_what_has_ended_stays() -> None:
    pipeline = made(
        PipelineStepSpec(name="find"),
        PipelineStepSpec(name="answer", fallback=(text("Sorry."),)),
        PipelineStepSpec(name="rank", needs=("answer",), fallback=()),
        deadline=5.0,
    )
    pipeline.start(now=0.0)
    pipeline.done(1, now=1.0)
    assert pipeline.on_timer(now=5.0) == [
        Stop(2, "deadline-passed"),
        FellBack("answer", 2, "deadline-passed"),
        FellBack("rank", 0, "deadline-passed"),
        Emit("answer", text("Sorry."), "deadline-passed"),
        Done(),
    ]
    assert pipeline.outcomes() == {
        "find": "done",
        "answer": "deadline-passed",
        "rank": "deadline-passed",
    }


@pytest.mark.parametrize("deadline", [5.0, None])
def test_of_what_is_over_no_piece_waits(deadline: float | None) -> None:
    pipeline = made(
        PipelineStepSpec(name="find", fallback=()),
        PipelineStepSpec(name="cards", follows="find", each=True, calls_max=1, fallback=()),
        deadline=deadline,
    )
    pipeline.start(now=0.0)
    pipeline.piece(1, "a", now=1.0)
    pipeline.piece(1, "b", now=1.0)
    assert pipeline.snapshot()["steps"]["cards"]["pieces_waiting"] == 1
    actions = pipeline.on_timer(now=5.0) if deadline else pipeline.cancel()
    assert [action for action in actions if isinstance(action, Stop)] == [
        Stop(1, "deadline-passed" if deadline else "cancelled"),
        Stop(2, "deadline-passed" if deadline else "cancelled"),
    ]
    assert pipeline.snapshot()["steps"]["cards"]["pieces_waiting"] == 0


def test_what_is_over_has_no_deadline() -> None:
    for end in ("done", "failed", "cancelled"):
        pipeline = made(PipelineStepSpec(name="answer"), deadline=5.0)
        pipeline.start(now=0.0)
        if end == "done":
            assert pipeline.done(1, now=1.0) == [Done()]
        elif end == "failed":
            assert pipeline.failed(1, "no-copies", now=1.0) == [FailPipeline("answer", "no-copies")]
        else:
            assert pipeline.cancel() == [Stop(1, "cancelled")]
        assert pipeline.state == end
        assert pipeline.next_deadline() is None
        assert pipeline.on_timer(now=5.0) == []


def test_at_the_requests_deadline_all_that_has_not_ended_falls_back() -> None:
    pipeline = made(
        PipelineStepSpec(name="find", fallback=(SORRY,)),
        PipelineStepSpec(name="answer", needs=("find",), fallback=(text("Sorry."),)),
        deadline=5.0,
    )
    pipeline.start(now=0.0)
    assert pipeline.next_deadline() == 5.0
    assert pipeline.on_timer(now=5.0) == [
        Stop(1, "deadline-passed"),
        FellBack("find", 1, "deadline-passed"),
        FellBack("answer", 0, "deadline-passed"),
        Emit("find", SORRY, "deadline-passed"),
        Emit("answer", text("Sorry."), "deadline-passed"),
        Done(),
    ]


def test_at_the_requests_deadline_a_step_without_a_fallback_ends_it_all() -> None:
    pipeline = made(
        PipelineStepSpec(name="find", fallback=(SORRY,)),
        PipelineStepSpec(name="answer"),
        deadline=5.0,
    )
    pipeline.start(now=0.0)
    assert pipeline.on_timer(now=5.0) == [
        Stop(1, "deadline-passed"),
        Stop(2, "deadline-passed"),
        FailPipeline("answer", "deadline-passed"),
    ]


def test_a_client_that_goes_stops_every_call_once() -> None:
    pipeline = made(PipelineStepSpec(name="answer"), PipelineStepSpec(name="cards"))
    pipeline.start(now=0.0)
    assert pipeline.cancel() == [Stop(1, "cancelled"), Stop(2, "cancelled")]
    assert pipeline.cancel() == []
    assert pipeline.done(1, [text("A")], now=0.1) == []


def test_anchors_that_wait_for_one_another_are_let_go_when_all_has_ended() -> None:
    pipeline = made(PipelineStepSpec(name="left"), PipelineStepSpec(name="right"))
    pipeline.start(now=0.0)
    one = PipelineEvent("text", "1", Anchor("right", 1), advance=1)
    two = PipelineEvent("text", "2", Anchor("left", 1), advance=1)
    pipeline.done(1, [one], now=0.1)
    assert pipeline.done(2, [two], now=0.2) == [
        Emit("left", one, "anchors-crossed"),
        Emit("right", two, "anchor-passed"),
        Done(),
    ]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((PipelineStepSpec(name="a"), PipelineStepSpec(name="a")), "two steps are called 'a'"),
        ((PipelineStepSpec(name="a", needs=("b",)),), "takes what 'b' makes"),
        ((PipelineStepSpec(name="a", follows="b"),), "takes what 'b' makes"),
        ((PipelineStepSpec(name="a", each=True),), "for each piece of no step"),
        ((PipelineStepSpec(name="a", calls_max=0),), "may make no call"),
        (
            (PipelineStepSpec(name="a", needs=("b",)), PipelineStepSpec(name="b", follows="a")),
            "the steps a, b wait for one another",
        ),
        ((PipelineStepSpec(name="a", needs=("a",)),), "the steps a wait for one another"),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused(
    steps: tuple[PipelineStepSpec, ...], words: str
) -> None:
    with pytest.raises(CallerError, match=words) as caught:
        PipelineSpec(steps=steps)
    assert caught.value.hint


# whatever happens, nothing is lost, order is kept, and every step ends once


@st.composite
def specs(draw: st.DrawFn) -> PipelineSpec:
    steps: list[PipelineStepSpec] = []
    for number in range(draw(st.integers(1, 5))):
        before = [step.name for step in steps]
        source = draw(st.sampled_from(["", *before]))
        needs = draw(st.lists(st.sampled_from(before), unique=True, max_size=2)) if before else []
        name = f"s{number}"
        steps.append(
            PipelineStepSpec(
                name=name,
                needs=tuple(needs),
                follows=source,
                each=bool(source) and draw(st.booleans()),
                calls_max=draw(st.integers(1, 3)),
                deadline_s=draw(st.sampled_from([None, 1.0, 3.0])),
                first_s=draw(st.sampled_from([None, None, 0.5])),
                fallback=draw(st.sampled_from([(PipelineEvent("notice", name),)] * 9 + [None])),
            )
        )
    return PipelineSpec(steps=tuple(steps))


class Watched:
    """Plays a driver with random answers and keeps the books."""

    def __init__(self, spec: PipelineSpec, deadline: float | None, rng: random.Random) -> None:
        self.names = [step.name for step in spec.steps]
        self.pipeline = Pipeline(spec, deadline=deadline)
        self.rng = rng
        self.live: dict[int, str] = {}
        self.ended: list[int] = []
        self.said: dict[int, list[PipelineEvent]] = {}
        self.left: list[Emit] = []
        self.finished = 0
        self.failed = ""  #: the step without a fallback that ended it all

    def event(self, call: int) -> PipelineEvent:
        after = None
        if self.rng.random() < 0.4:
            after = Anchor(self.rng.choice([*self.names, "nobody"]), self.rng.randint(0, 5))
        number = len(self.said[call])
        return PipelineEvent("text", (call, number), after, advance=self.rng.randint(0, 2))

    def took(self, actions: list[Action]) -> None:
        for action in actions:
            assert not self.finished, "nothing comes behind the end"
            if isinstance(action, Start):
                self.live[action.call] = action.step
                self.said[action.call] = []
            elif isinstance(action, Stop):
                del self.live[action.call]
                self.ended.append(action.call)
            elif isinstance(action, Emit):
                self.left.append(action)
            elif isinstance(action, Feed | FeedEnd):
                assert action.call in self.live
            elif isinstance(action, Done | FailPipeline):
                self.finished += 1
                self.failed = action.step if isinstance(action, FailPipeline) else ""
        self.pipeline.check_invariants()

    def answer(self, now: float) -> None:
        call = self.rng.choice(list(self.live))
        events = []
        for _ in range(self.rng.randint(0, 2)):
            events.append(self.event(call))
            self.said[call].append(events[-1])
        kind = self.rng.random()
        if kind < 0.6:
            self.took(self.pipeline.piece(call, len(self.left), events, now=now))
            return
        del self.live[call]
        self.ended.append(call)
        if kind < 0.85:
            self.took(self.pipeline.done(call, events, now=now))
        else:
            del self.said[call][len(self.said[call]) - len(events) :]
            self.took(self.pipeline.failed(call, "broken", now=now))


@given(specs(), st.sampled_from([None, 4.0, 40.0]), st.integers(0, 2**32))
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_and_every_call_ends_once(
    spec: PipelineSpec, deadline: float | None, seed: int
) -> None:
    watched = Watched(spec, deadline, random.Random(seed))
    pipeline, rng = watched.pipeline, watched.rng
    now = 0.0
    watched.took(pipeline.start(now=now))
    for _ in range(300):
        if watched.finished:
            break
        due = pipeline.next_deadline()
        if due is not None and rng.random() < 0.1:
            now = max(now, due)
            watched.took(pipeline.on_timer(now=now))
            after = pipeline.next_deadline()
            assert after is None or after > now, "the timer acts or moves"
        elif watched.live:
            now += rng.random() * 0.2
            watched.answer(now)
    while not watched.finished and watched.live:
        call = next(iter(watched.live))
        del watched.live[call]
        watched.ended.append(call)
        watched.took(pipeline.done(call, now=now))
    assert watched.finished == 1
    assert sorted(watched.ended) == sorted(watched.said), "every call that began ended once"
    if watched.failed:
        assert pipeline.state == "failed"
        assert watched.failed in [step.name for step in spec.steps if step.fallback is None]
        return
    assert pipeline.state == "done"
    heard: dict[int, list[Any]] = {call: [] for call in watched.said}
    for each in watched.left:
        if each.event.kind == "text":
            heard[each.event.data[0]].append(each.event)
    assert heard == watched.said, "all that was said has left, each call's events in order"
    fallen = [each for each in watched.left if each.event.kind == "notice"]
    assert all(each.reason in ("broken", "deadline-passed") for each in fallen)
    for name, outcome in pipeline.outcomes().items():
        assert (outcome == "done") == (name not in [each.step for each in fallen])


@given(specs(), st.integers(0, 2**32), st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_after_a_cancel_no_call_is_left(spec: PipelineSpec, seed: int, steps: int) -> None:
    watched = Watched(spec, None, random.Random(seed))
    watched.took(watched.pipeline.start(now=0.0))
    for at in range(steps):
        if watched.live and not watched.finished:
            watched.answer(float(at))
    watched.took(watched.pipeline.cancel())
    assert not watched.live or watched.finished
