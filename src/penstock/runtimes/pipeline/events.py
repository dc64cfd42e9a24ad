"""From a step's pieces to typed events: their content, their kind, and their order.

Text can be counted in sentences, for anchors such as "after the second sentence": a piece is then
cut where a sentence ends, so that a card fits in between. A sentence ends after `.`, `!`, `?`, an
ellipsis or a full stop of Chinese and Japanese, and the space that follows; or at the end of a
line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from penstock.core.pipeline.spec import Anchor, PipelineEvent
from penstock.errors import ModelError
from penstock.runtimes.pipeline.templates import Filled, Scope, Template

COUNTS: Final = ("events", "characters", "sentences")

_ENDERS: Final = ".!?…。！？"  # noqa: RUF001 - full-width marks end sentences, too
_CLOSERS: Final = "\"')]”’»"  # noqa: RUF001


class Sentences:
    """Cuts a running text. `cut` gives (part, whether a sentence is complete after it)."""

    __slots__ = ("_begun", "_ended")

    def __init__(self) -> None:
        self._begun = False  #: the sentence has more than white space
        self._ended = False  #: and its last character may end it

    def cut(self, text: str) -> list[tuple[str, bool]]:
        parts: list[tuple[str, bool]] = []
        start = 0
        for at, char in enumerate(text):
            if char.isspace():
                self._ended = self._ended or char == "\n"
                continue
            if self._begun and self._ended and at and text[at - 1].isspace():
                parts.append((text[start:at], True))
                start = at
                self._begun = self._ended = False
            self._ended = char in _ENDERS or (self._ended and self._begun and char in _CLOSERS)
            self._begun = True
        if start < len(text):
            complete = self._begun and self._ended and text[-1].isspace()
            parts.append((text[start:], complete))
            if complete:
                self._begun = self._ended = False
        return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitRule:
    """One line of a step's `emit`."""

    kind: str
    data: Filled
    many: Template | None = None  #: a list: one event for each `$item` of it
    after: str = ""  #: the step after which the event comes
    #: A number in the unit in which that step counts; None: after its end
    position: Template | None = None
    count: str = "events"  #: one of COUNTS


class Emitter:
    """The events of one call. `pass_events`: the pieces are events already."""

    __slots__ = ("_pass_events", "_rules", "_sentences")

    def __init__(self, rules: tuple[EmitRule, ...], *, pass_events: bool) -> None:
        self._rules = rules
        self._pass_events = pass_events
        self._sentences = Sentences()

    def events(self, scope: Scope) -> list[PipelineEvent]:
        """`scope` holds `piece`. Raises PenstockError for a piece that does not fit."""
        if self._pass_events:
            return [event_of(scope["piece"])]
        made: list[PipelineEvent] = []
        for rule in self._rules:
            if rule.many is None:
                self._add(rule, scope, made)
                continue
            items = rule.many.fill(scope)
            for item in items if isinstance(items, list) else []:
                self._add(rule, {**scope, "item": item}, made)
        return made

    def _add(self, rule: EmitRule, scope: Scope, made: list[PipelineEvent]) -> None:
        data = rule.data.fill(scope)
        after = _anchor(rule, scope)
        text = data.get("text") if isinstance(data, dict) else None
        if rule.count == "events" or not isinstance(text, str):
            made.append(PipelineEvent(rule.kind, data, after, 1))
        elif not text:
            return  # the first piece of many streams is empty
        elif rule.count == "characters":
            made.append(PipelineEvent(rule.kind, data, after, len(text)))
        else:
            made += [
                PipelineEvent(rule.kind, data | {"text": part}, after, int(complete))
                for part, complete in self._sentences.cut(text)
            ]


def _anchor(rule: EmitRule, scope: Scope) -> Anchor | None:
    if not rule.after:
        return None
    if rule.position is None:
        return Anchor(rule.after)
    return _at(rule.after, rule.position.fill(scope))


def event_of(piece: Any) -> PipelineEvent:
    """{"event": kind, "data": ..., "after": step or {"step", "position"}, "advance": number}."""
    if not isinstance(piece, dict) or not isinstance(piece.get("event"), str):
        raise ModelError(
            "step-failed",
            'the step says events, and a piece of it is not {"event": kind, "data": ...}',
        )
    after = piece.get("after")
    if isinstance(after, str):
        anchor = Anchor(after)
    elif isinstance(after, dict):
        anchor = _at(str(after.get("step", "")), after.get("position"))
    else:
        anchor = None
    advance = piece.get("advance", 1)
    if not isinstance(advance, int | float) or not advance >= 0:
        raise ModelError("step-failed", f"an event's advance is a number from 0, not {advance!r}")
    return PipelineEvent(piece["event"], piece.get("data"), anchor, advance)


def _at(step: str, position: Any) -> Anchor:
    """The anchor; without a position it is the end of the step."""
    if position is None:
        return Anchor(step)
    if isinstance(position, bool) or not isinstance(position, int | float):
        raise ModelError("step-failed", f"an event's position is a number, not {position!r:.100}")
    return Anchor(step, position)
