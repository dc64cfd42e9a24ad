"""Which step of a pipeline runs when, and in which order what the steps make leaves.

A pipeline is a graph of named steps. A step begins when the steps that it `needs` have ended, and,
where it `follows` another, once that one has begun: it is then handed its pieces as they come, all
to one call, or (`each`) one call per piece. A call has a deadline; one that fails or is late ends
with its step's fallback, or, where the step has none, ends the pipeline.

What calls make are typed events. They merge into one stream by these rules, in this order:

1. events of one call keep their order, and calls of one step theirs;
2. an event with an anchor leaves once the step it names has gone past the position, or is over;
3. everything else leaves at once. So a slow or dead branch holds up its own events alone.

A follower's deadline begins when its source is over: before that it waits for others, and they
have deadlines of their own. Knows neither what steps do nor what pieces and events hold. One
machine per request: `pipeline_spec` has what it is told, `pipeline_actions` what it answers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
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


class _Line:
    """What one call has made and what of it has not left yet."""

    __slots__ = ("events", "open")

    def __init__(self) -> None:
        self.events: deque[tuple[PipelineEvent, str]] = (
            deque()
        )  #: with the fallback's reason, or ""
        self.open = True


class _Call:
    __slots__ = ("deadline", "deadline_whole", "line", "number", "spoke", "step")

    def __init__(self, number: int, step: _PipelineStep) -> None:
        self.number = number
        self.step = step
        self.deadline = math.inf  #: monotonic s; that of the first piece until it is there
        self.deadline_whole = math.inf
        self.line = _Line()
        self.spoke = False  #: a piece has come


class _PipelineStep:
    __slots__ = (
        "backlog", "calls", "fell_back", "followers", "lines", "position", "skipped", "source",
        "spec", "state",
    )  # fmt: skip

    def __init__(self, spec: PipelineStepSpec, source: _PipelineStep | None) -> None:
        self.spec = spec
        self.source = source
        self.followers: list[_PipelineStep] = []
        self.state = "waiting"  #: waiting | running | ended
        self.fell_back = ""  #: the reason, if a call of it did
        self.skipped = False  #: its condition did not hold for a call
        self.calls: dict[int, _Call] = {}  #: under way
        self.backlog: deque[Any] = deque()  #: pieces of the source that no call has yet
        self.lines: deque[_Line] = deque()  #: in order of the calls; only the first one flows
        self.position: float = 0  #: how far what has left has come

    def drop_spent(self) -> None:
        """A line whose call has ended, and from which all has left, makes way for the next."""
        while self.lines and not self.lines[0].open and not self.lines[0].events:
            self.lines.popleft()

    @property
    def over(self) -> bool:
        """It has ended, and all that it made has left."""
        return self.state == "ended" and not self.lines


class Pipeline:
    """One request's way through the steps. Every method returns what to do now, in order."""

    def __init__(self, spec: PipelineSpec, *, deadline: float | None = None) -> None:
        self._steps: dict[str, _PipelineStep] = {}  #: a source comes before those that follow it
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
        """A part of the call's answer, and the events that it makes."""
        running = self._calls.get(call)
        if running is None:
            return []  # stopped meanwhile
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
        """The call has ended well; `events` come last."""
        running = self._calls.get(call)
        if running is None:
            return []
        actions: list[Action] = []
        running.line.events.extend((event, "") for event in events)
        self._close(running)
        self._go_on(actions, now)
        return actions

    def skipped(self, call: int, *, now: float) -> list[Action]:
        """The call's condition does not hold: it is over, and says nothing."""
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
        """Nobody wants the answer: every call is stopped, and what is held is gone."""
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

    # how it goes on

    def _go_on(self, actions: list[Action], now: float) -> None:
        """Starts and ends what can be, until nothing changes; then lets events leave."""
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
        """Whether anything began or ended here."""
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

    # how it goes wrong

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
        """The request's own deadline: what has not ended ends now."""
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
        line = _Line()
        line.open = False
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
        """Every event that may leave leaves, one by one: what waited for a place goes as soon as
        the place is passed, and before more is said behind it."""
        step, reason = self._next_to_leave(None)
        while step is not None:
            self._leave(step, reason, actions)
            step, reason = self._next_to_leave(step)

    def _next_to_leave(self, last: _PipelineStep | None) -> tuple[_PipelineStep | None, str]:
        """Whose first event leaves now, and why: one with an anchor; else the step that spoke last
        goes on; else the first that has something to say."""
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
        """The reason for which the event may leave; "": it is held."""
        anchor = event.after
        named = None if anchor is None else self._steps.get(anchor.step)
        if anchor is None or named is None or named is step:
            return "ready"
        if named.position >= anchor.position:
            return "anchor-passed"
        return "anchor-over" if named.over else ""

    def _uncross(self, actions: list[Action]) -> None:
        """Anchors that wait for one another would wait for ever: one event is let go, until none
        is left, the first declared step's first."""
        while held := next((step for step in self._ordered if step.lines), None):
            self._leave(held, "anchors-crossed", actions)
            self._release(actions)

    # seen from outside

    def snapshot(self) -> dict[str, Any]:
        """JSON-ready: where each step stands."""
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
        """Of each step: done, skipped, or the reason for which it fell back."""
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
