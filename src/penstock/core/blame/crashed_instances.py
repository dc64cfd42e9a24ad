"""What ended an instance that is gone, by notes of what was at work there.

A library that crashes takes its whole instance with it, and leaves no trace of whose work did it.
So a file that outlives the instance notes what is at work, and after a crash it names the suspects.
Two things count against a suspect:

    alone           nothing else was at work
    in every crash  it was there each time, so it may be the cause of all of them

Models of a host can't be run again to find the cause: `blamed_models` judges the crashes that have
happened. Records of a transform job can be run again, in groups that get smaller: `CrashCase` says
what to run next.

This module knows neither instances nor jobs, and no clock: `now` is in the seconds of the crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, NamedTuple, TypeVar

from penstock.core.backoff import Backoff
from penstock.core.blame.bisection import cut
from penstock.core.blame.death_limits import (
    CRASHES_REMEMBERED_S,
    MODEL_CRASHES_MAX,
    QUARANTINE_S,
    RECORD_DEATHS_MAX,
    SUSPECT_PARTS_MAX,
    deaths_needed,
)

T = TypeVar("T")

ALONE: Final = "crashed-alone"
IN_EVERY_CRASH: Final = "in-every-crash"

#: SIGTERM, SIGKILL, SIGINT, SIGHUP come from outside the process, and say nothing about a model.
_SENT: Final = frozenset({1, 2, 9, 15})
#: Stands for the reading of the span, before any of its records was at work.
_READING: Final = -1
_QUARANTINE: Final = Backoff(QUARANTINE_S, CRASHES_REMEMBERED_S)


def is_crash(exit_code: int) -> bool:
    """Whether a process crashed that was not asked to end; the code as `subprocess` gives it.

    A signal that processes send each other is no crash: an operator, or the kernel when memory runs
    out, ended it. An exit with another status is a crash: libraries give up by `exit` or `abort`.
    """
    return exit_code > 0 or (exit_code < 0 and -exit_code not in _SENT)


class CommonSuspects(NamedTuple, Generic[T]):
    """Crashes in a row that have suspects in common: one of these may be the cause of all."""

    crashes: int = 0
    suspects: frozenset[T] = frozenset()

    def after(self, at_work: frozenset[T]) -> CommonSuspects[T]:
        """Adds a crash. If it has no suspect in common with the others, a new row begins."""
        left = self.suspects & at_work
        return CommonSuspects(self.crashes + 1, left) if left else CommonSuspects(1, at_work)


# Models of hosts


@dataclass(frozen=True, slots=True)
class Crash:
    """An instance that ended by itself."""

    at: float  #: s
    working: frozenset[str]  #: models that were loading or computing


@dataclass(frozen=True, slots=True)
class BlamedModel:
    """A model in quarantine."""

    model: str
    until: float  #: end of the quarantine, s
    reason: str  #: ALONE or IN_EVERY_CRASH
    crashes: int  #: crashes that count against it


def blamed_models(crashes: Iterable[Crash], *, now: float) -> list[BlamedModel]:
    """The models that are in quarantine at `now`, sorted by name.

    If a model is blamed for other crashes, it also explains every crash at which it was at work,
    and that crash counts against no other model. A crash at which nothing was at work counts
    against none: a target model did not do it. Nothing here is proof, so the quarantine is limited:
    it doubles after each further crash, and is never longer than crashes are remembered.
    """
    recent = [one for one in crashes if one.working and now < one.at + CRASHES_REMEMBERED_S]
    recent.sort(key=lambda one: one.at)
    found = _alone(recent)
    known = {one.model for one in found}
    found += _in_every_one([one for one in recent if not one.working & known])
    return sorted((one for one in found if now < one.until), key=lambda one: one.model)


def _alone(recent: Sequence[Crash]) -> list[BlamedModel]:
    by_model: dict[str, list[Crash]] = {}
    for crash in recent:
        if len(crash.working) == 1:
            by_model.setdefault(min(crash.working), []).append(crash)
    return [
        _blamed(model, theirs, ALONE)
        for model, theirs in by_model.items()
        if len(theirs) >= MODEL_CRASHES_MAX
    ]


def _in_every_one(recent: Sequence[Crash]) -> list[BlamedModel]:
    seen: CommonSuspects[str] = CommonSuspects()
    for crash in recent:
        seen = seen.after(crash.working)
    needed = deaths_needed(MODEL_CRASHES_MAX, only_suspect=len(seen.suspects) == 1)
    if seen.crashes < max(needed, len(recent)):
        return []
    return [_blamed(model, recent, IN_EVERY_CRASH) for model in sorted(seen.suspects)]


def _blamed(model: str, theirs: Sequence[Crash], reason: str) -> BlamedModel:
    left_alone_s = _QUARANTINE.pause_s(len(theirs) - MODEL_CRASHES_MAX + 1)
    return BlamedModel(model, theirs[-1].at + left_alone_s, reason, len(theirs))


# Records of transform jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashCase:
    """What is known of one span whose instance ended. Records are numbered within it, from 0.

    A span whose instance ended is run again with notes. The records at work at the next death
    become suspects. They are run apart from all others, in parts one after the other. This is
    bisection with more than two parts: a death names one part.

        a death                -> the whole span again, with notes
        a death, noted         -> the records at work become suspects, and run apart
        a death, apart         -> the records of the part become suspects
        a death of one record  -> it runs first, by itself; at the third death it is refused
        no death               -> the whole span again, without the refused records

    Only a run of the whole span is committed, with the batches that it always has. So outputs do
    not depend on how the records to blame were found. An instance that is killed by chance costs
    only time: the suspects run apart, no instance dies, and the whole span runs again.

    Some deaths come back only in whole runs: two records that end an instance together, or the
    reading of the span. Then something was at work at each of these deaths, and they are counted.
    Chance kills at any moment: as soon as no record was there every time, none can be the cause of
    all the deaths, and the count begins anew. In the end the number of all its deaths ends the
    span.
    """

    deaths: int = 0  #: whole runs in a row that died with something in common at work
    common: tuple[int, ...] = ()  #: what was at work at each of these deaths, ascending
    tries: int = 0  #: deaths of any kind since a record was refused last
    suspects: tuple[int, ...] = ()  #: run apart, in this order; empty: the whole span is run
    first_deaths: int = 0  #: deaths of the first suspect while nothing else was at work
    refused: tuple[tuple[int, str], ...] = ()  #: (record, how its last instance ended), ascending

    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The suspects in parts, which run one after the other, with no other work beside."""
        if self.first_deaths:
            return (self.suspects[:1], *cut(self.suspects[1:], SUSPECT_PARTS_MAX))
        return cut(self.suspects, SUSPECT_PARTS_MAX)

    def died(self, at_work: tuple[int, ...] | None, story: str) -> CrashCase:
        """An instance ended while it had the span.

        Args:
            at_work: the records at work; empty: none yet; None: nothing was noted.
            story: how the instance ended, for people.
        """
        case = replace(self, tries=self.tries + 1)
        if at_work is None:
            return case
        known = self._known(at_work)
        if not self.suspects:
            return case._died_whole(known)
        if not known:
            return case
        if len(known) > 1:
            return replace(case, suspects=known, first_deaths=0)
        record = known[0]
        before = self.first_deaths if record == self.suspects[0] else 0
        rest = tuple(one for one in self.suspects if one != record)
        if before + 1 < RECORD_DEATHS_MAX:
            return replace(case, suspects=(record, *rest), first_deaths=before + 1)
        refused = tuple(sorted((*self.refused, (record, story))))
        return CrashCase(suspects=rest, refused=refused)

    def _died_whole(self, known: tuple[int, ...]) -> CrashCase:
        before = CommonSuspects(self.deaths, frozenset(self.common))
        seen = before.after(frozenset(known or (_READING,)))
        return replace(
            self,
            deaths=seen.crashes,
            common=tuple(sorted(seen.suspects)),
            suspects=known,
            first_deaths=int(len(known) == 1),
        )

    def passed(self) -> CrashCase:
        """All suspects were run apart and no instance died."""
        return replace(self, suspects=(), first_deaths=0)

    def _known(self, at_work: tuple[int, ...]) -> tuple[int, ...]:
        """The records among `at_work` that may be the cause, ascending."""
        cleared = {record for record, _ in self.refused}
        found = set(at_work) - cleared
        return tuple(sorted(found & set(self.suspects) if self.suspects else found))
