"""Which step of a pipeline runs when, and in which order the events of the steps leave.

A pipeline is a graph of named steps. A step begins when the steps that it `needs` have ended, and,
where it `follows` another (its source), once that one has begun. It then gets the source's pieces
as they come, all in one call, or (`each`) with one call per piece. A call has a deadline; one that
fails or is late ends with its step's fallback, or, where the step has none, ends the pipeline.

Calls make typed events. They merge into one stream by these rules, in this order:

1. events of one call keep their order, and calls of one step theirs;
2. an event with an anchor leaves once the step it names has passed the position, or is over;
3. everything else leaves at once. So a slow or dead branch delays only its own events.

A follower's deadline begins when its source is over: before that it waits for others, which have
deadlines of their own. This module knows neither what steps do nor what pieces and events contain.
One machine per request; `spec.py` has its inputs and its actions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.core.pipeline.spec import (
    Action,
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


@dataclass(slots=True, eq=False)
class _Line:
    """The events of one call that have not left yet."""

    #: with the fallback's reason, or ""
    events: deque[tuple[PipelineEvent, str]] = field(default_factory=deque)
    open: bool = True


@dataclass(slots=True, eq=False)
class _Call:
    number: int
    step: _PipelineStep
    deadline: float = math.inf  #: monotonic s; until the first piece, the deadline for that piece
    deadline_whole: float = math.inf
    line: _Line = field(default_factory=_Line)
    spoke: bool = False  #: its first piece has come


@dataclass(slots=True, eq=False)
class _PipelineStep:
    spec: PipelineStepSpec
    source: _PipelineStep | None
    followers: list[_PipelineStep] = field(default_factory=list)
    state: str = "waiting"  #: waiting | running | ended
    fell_back: str = ""  #: reason, if one of its calls ended with the fallback
    skipped: bool = False  #: its condition did not hold for a call
    calls: dict[int, _Call] = field(default_factory=dict)  #: calls under way, by number
    #: pieces of the source that no call has yet
    backlog: deque[Any] = field(default_factory=deque)
    #: in order of the calls; only events of the first one leave
    lines: deque[_Line] = field(default_factory=deque)
    position: float = 0  #: position reached by the events that have left

    def drop_spent(self) -> None:
        """Removes each first line whose call has ended and whose events have all left."""
        while self.lines and not self.lines[0].open and not self.lines[0].events:
            self.lines.popleft()

    @property
    def over(self) -> bool:
        """Whether it has ended, and all its events have left."""
        return self.state == "ended" and not self.lines


class Pipeline:
    """One request's way through the steps. Every method returns the actions, in order."""

    def __init__(self, spec: PipelineSpec, *, deadline: float | None = None) -> None:
        #: a source comes before the steps that follow it
        self._steps: dict[str, _PipelineStep] = {}
        for each in spec.in_order():
            source = self._steps[each.follows] if each.follows else None
            step = self._steps[each.name] = _PipelineStep(each, source)
            if source is not None:
                source.followers.append(step)
        self._ordered = [self._steps[each.name] for each in spec.steps]
        self._deadline = math.inf if deadline is None else deadline
        self._calls: dict[int, _Call] = {}
        self._numbers = 0
        self.state = "running"  #: running | done | failed | cancelled

    # inputs

    def start(self, *, now: float) -> list[Action]:
        actions: list[Action] = []
        self._go_on(actions, now)
        return actions

    def piece(
        self, call: int, piece: Any, events: Iterable[PipelineEvent] = (), *, now: float
    ) -> list[Action]:
        """A part of the call's answer, and its events."""
        running = self._calls.get(call)
        if running is None:
            return []  # stopped in the meantime
        actions: list[Action] = []
        running.spoke = True
        running.deadline = running.deadline_whole
        running.line.events.extend((event, "") for event in events)
        self._hand_on(running.step, piece, actions)
        if any(follower.spec.each for follower in running.step.followers):
            self._go_on(actions, now)
        else:
            self._release(actions)
        return actions

    def done(self, call: int, events: Iterable[PipelineEvent] = (), *, now: float) -> list[Action]:
        """The call has succeeded; `events` are its last ones."""
        running = self._calls.get(call)
        if running is None:
            return []
        actions: list[Action] = []
        running.line.events.extend((event, "") for event in events)
        self._close(running)
        self._go_on(actions, now)
        return actions

    def skipped(self, call: int, *, now: float) -> list[Action]:
        """The call's condition does not hold: it ends without events."""
        running = self._calls.get(call)
        if running is not None:
            running.step.skipped = True
        return self.done(call, now=now)

    def failed(self, call: int, reason: str, *, now: float) -> list[Action]:
        running = self._calls.get(call)
        if running is None:
            return []
        actions: list[Action] = []
        self._fall_back(running, reason, actions)
        self._go_on(actions, now)
        return actions

    def cancel(self) -> list[Action]:
        """The answer is not needed any more: every call is stopped, and held events are dropped."""
        actions: list[Action] = []
        if self.state == "running":
            self._stop_all("cancelled", actions)
            self.state = "cancelled"
        return actions

    def next_deadline(self) -> float | None:
        """When to call `on_timer`, monotonic s; None: nothing has a deadline."""
        if self.state != "running":
            return None
        soonest = min((call.deadline for call in self._calls.values()), default=math.inf)
        soonest = min(soonest, self._deadline)
        return None if soonest == math.inf else soonest

    def on_timer(self, *, now: float) -> list[Action]:
        actions: list[Action] = []
        if self.state != "running":
            return actions
        if now >= self._deadline:
            self._give_up(actions)
        for call in list(self._calls.values()):
            if self.state == "running" and now >= call.deadline:
                actions.append(Stop(call.number, "deadline-passed"))
                self._fall_back(call, "deadline-passed", actions)
        self._go_on(actions, now)
        return actions

    # progress

    def _go_on(self, actions: list[Action], now: float) -> None:
        """Starts and ends steps until nothing changes; then lets events leave."""
        changed = True
        while changed and self.state == "running":
            changed = False
            for step in self._ordered:
                changed |= step.state != "ended" and self._moved(step, actions, now)
        self._release(actions)
        if self.state == "running" and all(step.state == "ended" for step in self._ordered):
            self._uncross(actions)
            self.state = "done"
            actions.append(Done())

    def _moved(self, step: _PipelineStep, actions: list[Action], now: float) -> bool:
        """Whether anything of this step began or ended."""
        spec, source = step.spec, step.source
        moved = False
        if step.state == "waiting":
            if source is not None and source.state == "waiting":
                return False
            if any(self._steps[name].state != "ended" for name in spec.needs):
                return False
            step.state = "running"
            moved = True
            if not spec.each:
                self._begin_whole(step, actions, now)
        if spec.each:
            while step.backlog and len(step.calls) < spec.calls_max:
                self._begin(step, step.backlog.popleft(), "piece", actions, now)
        complete = not step.calls and not step.backlog
        if complete and (not spec.each or source is None or source.state == "ended"):
            self._end(step, actions, now)
            moved = True
        return moved

    def _begin_whole(self, step: _PipelineStep, actions: list[Action], now: float) -> None:
        source = step.source
        reason = "needs-met" if source is None else "source-began"
        call = self._begin(step, None, reason, actions, now)
        while step.backlog:
            actions.append(Feed(call.number, step.backlog.popleft()))
        if source is not None and source.state == "ended":
            self._feed_end(call, source, actions, now)

    def _begin(
        self, step: _PipelineStep, piece: Any, reason: str, actions: list[Action], now: float
    ) -> _Call:
        self._numbers += 1
        call = _Call(self._numbers, step)
        step.calls[call.number] = self._calls[call.number] = call
        step.lines.append(call.line)
        if step.source is None or step.spec.each:
            self._begin_clock(call, now)
        actions.append(Start(call.number, step.spec.name, piece, reason))
        return call

    @staticmethod
    def _begin_clock(call: _Call, now: float) -> None:
        spec = call.step.spec
        if spec.deadline_s is not None:
            call.deadline = call.deadline_whole = now + spec.deadline_s
        if spec.first_s is not None and not call.spoke:
            call.deadline = min(call.deadline_whole, now + spec.first_s)

    def _feed_end(
        self, call: _Call, source: _PipelineStep, actions: list[Action], now: float
    ) -> None:
        actions.append(FeedEnd(call.number, "fell-back" if source.fell_back else "done"))
        self._begin_clock(call, now)

    def _hand_on(self, step: _PipelineStep, piece: Any, actions: list[Action]) -> None:
        for follower in step.followers:
            if follower.spec.each or follower.state == "waiting":
                if follower.state != "ended":
                    follower.backlog.append(piece)
            else:
                actions.extend(Feed(number, piece) for number in follower.calls)

    def _end(self, step: _PipelineStep, actions: list[Action], now: float) -> None:
        step.state = "ended"
        for follower in step.followers:
            if not follower.spec.each:
                for call in follower.calls.values():
                    self._feed_end(call, step, actions, now)

    def _close(self, call: _Call) -> None:
        del self._calls[call.number]
        del call.step.calls[call.number]
        call.line.open = False
        call.step.drop_spent()

    # failures

    def _fall_back(self, call: _Call, reason: str, actions: list[Action]) -> None:
        step = call.step
        fallback = step.spec.fallback
        if fallback is not None:
            call.line.events.extend((event, reason) for event in fallback)
        self._close(call)
        if fallback is None:
            self._stop_all("pipeline-failed", actions)
            self.state = "failed"
            actions.append(FailPipeline(step.spec.name, reason))
            return
        step.fell_back = reason
        actions.append(FellBack(step.spec.name, call.number, reason))

    def _give_up(self, actions: list[Action]) -> None:
        """The request's own deadline has passed: everything that has not ended ends now."""
        late = [step for step in self._ordered if step.state != "ended"]
        for step in late:
            if step.spec.fallback is None:
                self._stop_all("deadline-passed", actions)
                self.state = "failed"
                actions.append(FailPipeline(step.spec.name, "deadline-passed"))
                return
        for step in late:
            calls = list(step.calls.values())
            for call in calls:
                actions.append(Stop(call.number, "deadline-passed"))
                self._fall_back(call, "deadline-passed", actions)
            if not calls:
                self._never_began(step, actions)
            step.backlog.clear()
            step.state = "ended"

    @staticmethod
    def _never_began(step: _PipelineStep, actions: list[Action]) -> None:
        line = _Line(open=False)
        line.events.extend((event, "deadline-passed") for event in step.spec.fallback or ())
        step.lines.append(line)
        step.drop_spent()
        step.fell_back = "deadline-passed"
        actions.append(FellBack(step.spec.name, 0, "deadline-passed"))

    def _stop_all(self, reason: str, actions: list[Action]) -> None:
        actions.extend(Stop(number, reason) for number in self._calls)
        self._calls.clear()
        for step in self._ordered:
            step.calls.clear()
            step.lines.clear()
            step.backlog.clear()

    # the merge

    def _release(self, actions: list[Action]) -> None:
        """Lets events leave one by one: an event that waits for a position leaves as soon as the
        position is passed, before anything after it."""
        step, reason = self._next_to_leave(None)
        while step is not None:
            self._leave(step, reason, actions)
            step, reason = self._next_to_leave(step)

    def _next_to_leave(self, last: _PipelineStep | None) -> tuple[_PipelineStep | None, str]:
        """The step whose first event leaves now, and why: first an event with an anchor; then the
        step that left last; then the first step with an event."""
        plain: _PipelineStep | None = None
        for step in self._ordered:
            if not step.lines or not step.lines[0].events:
                continue
            event = step.lines[0].events[0][0]
            reason = self._why_now(step, event)
            if reason == "ready":
                if plain is None or step is last:
                    plain = step
            elif reason:
                return step, reason
        return plain, "ready"

    def _leave(self, step: _PipelineStep, reason: str, actions: list[Action]) -> None:
        event, fallback = step.lines[0].events.popleft()
        step.position += event.advance
        actions.append(Emit(step.spec.name, event, fallback or reason))
        step.drop_spent()

    def _why_now(self, step: _PipelineStep, event: PipelineEvent) -> str:
        """The reason for which the event may leave; "": it must wait."""
        anchor = event.after
        named = None if anchor is None else self._steps.get(anchor.step)
        if anchor is None or named is None or named is step:
            return "ready"
        if named.position >= anchor.position:
            return "anchor-passed"
        return "anchor-over" if named.over else ""

    def _uncross(self, actions: list[Action]) -> None:
        """Events whose anchors wait for one another would wait for ever: lets one of them leave,
        the first declared step's first, until none is left."""
        while held := next((step for step in self._ordered if step.lines), None):
            self._leave(held, "anchors-crossed", actions)
            self._release(actions)

    # views

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: the state of each step."""
        return {
            "state": self.state,
            "steps": {
                step.spec.name: {
                    "state": step.state,
                    "fell_back": step.fell_back,
                    "calls": len(step.calls),
                    "pieces_waiting": len(step.backlog),
                    "events_held": sum(len(line.events) for line in step.lines),
                    "position": step.position,
                }
                for step in self._ordered
            },
        }

    def outcomes(self) -> dict[str, str]:
        """By step: done, skipped, or the reason for which it fell back."""
        return {
            step.spec.name: step.fell_back or ("skipped" if step.skipped else "done")
            for step in self._ordered
        }

    def check_invariants(self) -> None:
        if self.state != "running":
            assert not self._calls, "a pipeline that is over has no calls"
            assert not any(step.lines for step in self._ordered), "and holds nothing"
        for step in self._ordered:
            assert step.spec.each or len(step.calls) <= 1, f"{step.spec.name}: one call"
            assert len(step.calls) <= step.spec.calls_max, f"{step.spec.name}: too many calls"
            assert step.state == "running" or not step.calls, f"{step.spec.name}: not running"
            for number, call in step.calls.items():
                assert self._calls[number] is call, f"call {number} is known in one place only"
                assert call.line in step.lines, f"call {number} has no line"
                assert call.line.open, f"call {number} is under way"
            first = step.lines[0] if step.lines else None
            assert first is None or first.open or first.events, "an empty closed line is gone"
            if first is not None and first.events:
                event = first.events[0][0]
                assert not self._why_now(step, event), "what may leave has left"
