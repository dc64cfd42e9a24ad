"""Who ended an instance that is gone, by the notes of what was at work there.

A library that crashes takes its whole instance with it, and leaves no word of whose work did it. So
it is noted in a file that outlives the instance what is at work, and of a crash it is known who may
be to blame. Two things accuse a suspect:

    alone           nothing else was at work
    in every crash  it was there each time, so it may be to blame for all of them

Models of a host can't be run again to find out which of them it was: crashes come as they come, and
`blamed_models` judges those that there have been. Records of a transform job can, in groups that
get smaller: `CrashCase` says what is run next.

Knows neither instances nor jobs, and no clock: `now` is in the seconds of the crashes.
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

#: SIGTERM, SIGKILL, SIGINT, SIGHUP: whoever sends them is outside, and says nothing of a model.
_SENT: Final = frozenset({1, 2, 9, 15})
#: Stands for the reading of the span, before any record of it was at work.
_READING: Final = -1
_QUARANTINE: Final = Backoff(QUARANTINE_S, CRASHES_REMEMBERED_S)


def is_crash(exit_code: int) -> bool:
    """Whether a process that nobody had asked to end crashed; the code as `subprocess` gives it.

    A signal that processes send each other is no crash: an operator, or the kernel when memory runs
    out, ended it. An exit by another status is one: libraries that give up call `exit` or `abort`.
    """
    return exit_code > 0 or (exit_code < 0 and -exit_code not in _SENT)


class CommonSuspects(NamedTuple, Generic[T]):
    """Crashes in a row that have suspects in common: one of these may be to blame for all."""

    crashes: int = 0
    suspects: frozenset[T] = frozenset()

    def after(self, at_work: frozenset[T]) -> CommonSuspects[T]:
        """With one more. Where nothing was there each time the row begins anew with it."""
        left = self.suspects & at_work
        return CommonSuspects(self.crashes + 1, left) if left else CommonSuspects(1, at_work)


# Models of hosts


@dataclass(frozen=True, slots=True)
class Crash:
    """One instance that ended by itself."""

    at: float  #: s
    working: frozenset[str]  #: models that were loading or computing


@dataclass(frozen=True, slots=True)
class BlamedModel:
    """A model that is to be left alone."""

    model: str
    until: float  #: s
    reason: str  #: ALONE or IN_EVERY_CRASH
    crashes: int  #: that accuse it


def blamed_models(crashes: Iterable[Crash], *, now: float) -> list[BlamedModel]:
    """Those that are to be left alone at `now`, in the order of their names.

    A crash at which a model was at work that is blamed for others is explained by it, and accuses
    nobody else. One at which nothing was at work accuses nobody: it was not a target model. Nothing
    here is proof: so a model is left alone for a while, twice as long after each further crash, and
    never for longer than crashes are remembered.
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

    A span that was there when an instance ended is run again with notes. What was at work at the
    next death is suspected and run apart from all others, in parts one after the other, which is
    bisection with more than two parts: a death names one part.

        a death             -> the whole span again, noted
        a death, noted      -> what was at work is suspected, and run apart
        a death, apart      -> the part that was at work is suspected
        of one record       -> it is run first, by itself; at the third death it is refused
        nobody died         -> the whole span again, without those that are refused

    Only a run of the whole span is committed, with the batches that it always has. So outputs do
    not depend on how the guilty were found, and an instance that is killed by chance costs time
    alone: who was suspected is run apart, nobody dies, and the whole is run again.

    What no record does alone comes back in whole runs: two that end an instance together, or the
    reading of the span. Then something was at work at each of these deaths, and they are counted.
    Chance strikes where it likes: as soon as no record was there every time, nobody can be to blame
    for all of them, and the count begins anew. What ends a span nevertheless is how many deaths it
    has had.
    """

    deaths: int = 0  #: of whole runs, one after the other, that have something in common
    common: tuple[int, ...] = ()  #: what was at work at each of these, ascending
    tries: int = 0  #: deaths of any kind, since a record was refused last
    suspects: tuple[int, ...] = ()  #: to be run apart, in this order; none: the whole span is run
    first_deaths: int = 0  #: of the first suspect, while nothing else was at work
    refused: tuple[tuple[int, str], ...] = ()  #: (record, how its last instance ended), ascending

    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The suspects, as they are run: one part after the other, with no other beside it."""
        if self.first_deaths:
            return (self.suspects[:1], *cut(self.suspects[1:], SUSPECT_PARTS_MAX))
        return cut(self.suspects, SUSPECT_PARTS_MAX)

    def died(self, at_work: tuple[int, ...] | None, story: str) -> CrashCase:
        """An instance ended while it had the span.

        Args:
            at_work: records that were; empty: none was yet; None: nothing was noted.
            story: how it ended.
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
        """All suspects were run apart and nobody died."""
        return replace(self, suspects=(), first_deaths=0)

    def _known(self, at_work: tuple[int, ...]) -> tuple[int, ...]:
        """Those of them that may be to blame, ascending."""
        cleared = {record for record, _ in self.refused}
        found = set(at_work) - cleared
        return tuple(sorted(found & set(self.suspects) if self.suspects else found))
