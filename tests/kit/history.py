"""What clients saw, written down, and the rules that it must keep: a checker of histories.

A history is a list of facts in the order in which they were seen. Each request has an id that its
model says back, so an answer is known to be its own. The rules:

1. A request has exactly one outcome: `ok`, `fail` (an error that the server gave) or `unknown` (the
   connection ended without saying).
2. An `ok` answer is its own, whole and in order; so is what a stream gave until it failed.
3. Nothing comes behind the outcome.
4. The outcome is there by the request's deadline.
5. Errors come only while a fault is allowed to show, only those that it may show as, and only at
   those doors at which it may. `unknown` needs such a permission as any error does.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

OUTCOMES = ("ok", "fail", "unknown")


@dataclass(frozen=True)
class Fact:
    at: float  #: monotonic s
    ident: str
    kind: str  #: invoke | piece | ok | fail | unknown | late
    door: str
    #: of invoke: the answer that is due. Of piece and ok: what came. Of fail: the error's code.
    detail: tuple[str, ...] = ()


@dataclass(frozen=True)
class Window:
    """From `begin` to `end` (monotonic s) a fault may show as `codes` at `doors`."""

    begin: float
    end: float
    fault: str
    codes: frozenset[str]
    doors: frozenset[str]


class History:
    """Written by many threads."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._lock = threading.Lock()

    def add(self, ident: str, kind: str, door: str, *detail: str) -> None:
        with self._lock:
            self.facts.append(Fact(time.monotonic(), ident, kind, door, detail))

    def count(self, kind: str, door: str | None = None) -> int:
        with self._lock:
            facts = list(self.facts)
        return sum(fact.kind == kind and door in (None, fact.door) for fact in facts)


def problems(
    facts: Iterable[Fact], windows: Iterable[Window], *, deadline_s: float, ended_at: float
) -> list[str]:
    """One line per broken rule; none if the history is as it should be."""
    by_ident: dict[str, list[Fact]] = defaultdict(list)
    for fact in facts:
        by_ident[fact.ident].append(fact)
    windows = list(windows)
    found: list[str] = []
    for ident, story in by_ident.items():
        found += (
            f"{ident} at {story[0].door}: {line}"
            for line in _of_one(story, windows, deadline_s, ended_at)
        )
    return found


def _of_one(
    story: list[Fact], windows: list[Window], deadline_s: float, ended_at: float
) -> Iterable[str]:
    first, *rest = story
    if first.kind != "invoke" or any(fact.kind == "invoke" for fact in rest):
        yield "its story does not begin with the one invoke that it has"
        return
    ends = [fact for fact in rest if fact.kind in OUTCOMES]
    if not ends:
        if ended_at > first.at + deadline_s:
            yield "it has no outcome"
        return
    if len(ends) > 1:
        yield f"it has {len(ends)} outcomes: {[fact.kind for fact in ends]}"
    end = ends[0]
    behind = rest[rest.index(end) + 1 :]
    if behind and len(ends) == 1:
        yield f"something came behind its outcome: {[fact.kind for fact in behind]}"
    if end.at > first.at + deadline_s:
        yield f"its outcome came after {end.at - first.at:.1f} s"
    due = first.detail
    came = tuple(piece for fact in rest if fact.kind == "piece" for piece in fact.detail)
    if came != due[: len(came)]:
        yield f"it was given {came!r}, not the beginning of {due!r}"
    if end.kind == "ok":
        if came + end.detail != due:
            yield f"its answer is {(came + end.detail)!r}, and should be {due!r}"
    elif not _allowed(first, end, windows):
        yield f"{end.kind} {end.detail!r}, which nothing allowed at {end.at - first.at:.2f} s"


def _allowed(first: Fact, end: Fact, windows: list[Window]) -> bool:
    code = end.detail[0] if end.kind == "fail" else end.kind
    return any(
        code in window.codes
        and first.door in window.doors
        and first.at <= window.end
        and end.at >= window.begin
        for window in windows
    )
