"""Which target models end the instances that they run in, and for how long they are left alone.

A native model runs in its host's own process: if its library crashes, the instance ends, with all
that it had loaded, and nobody says whose fault it was. What is known of each such crash is which
models were at work, loading or computing. Two things accuse a model:

    alone           nothing else was at work, at `crashes_min` crashes
    in every crash  it was at work at all that those do not explain, of which there are as many; if
                    several models were, at twice as many, for then nothing will tell them apart

A crash at which a culprit was at work is explained by it, and accuses nobody else. One at which
nothing was at work accuses nobody: it was not a target model. Nothing here is proof: so a model is
left alone for a while, twice as long after each further crash, and never for longer than crashes
are remembered.

Knows neither instances nor hosts, and no clock: `now` is in the seconds of the crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.core.backoff import Backoff

ALONE: Final = "crashed-alone"
IN_EVERY_CRASH: Final = "in-every-crash"

#: SIGTERM, SIGKILL, SIGINT, SIGHUP: whoever sends them is outside, and says nothing of a model.
_SENT: Final = frozenset({1, 2, 9, 15})


@dataclass(frozen=True, slots=True, kw_only=True)
class CulpritSpec:
    crashes_min: int = 2  #: as many as end a worker's model (`ResidencySpec.crashes_max` is as low)
    remembered_s: float = 3600.0  #: crashes longer ago say nothing of now
    quarantine_s: float = 300.0  #: of the first; as `ResidencySpec.quarantine_s`


@dataclass(frozen=True, slots=True)
class Crash:
    """One instance that ended by itself."""

    at: float  #: s
    working: frozenset[str]  #: models that were loading or computing


@dataclass(frozen=True, slots=True)
class Culprit:
    """A model that is to be left alone."""

    model: str
    until: float  #: s
    reason: str  #: ALONE or IN_EVERY_CRASH
    crashes: int  #: that accuse it


def is_crash(exit_code: int) -> bool:
    """Whether a process that nobody had asked to end crashed; the code as `subprocess` gives it.

    A signal that processes send each other is no crash: an operator, or the kernel when memory runs
    out, ended it. An exit by another status is one: libraries that give up call `exit` or `abort`.
    """
    return exit_code > 0 or (exit_code < 0 and -exit_code not in _SENT)


def culprits(crashes: Iterable[Crash], spec: CulpritSpec, *, now: float) -> list[Culprit]:
    """Those that are to be left alone at `now`, in the order of their names."""
    recent = [one for one in crashes if one.working and now < one.at + spec.remembered_s]
    recent.sort(key=lambda one: one.at)
    found = _alone(recent, spec)
    known = {one.model for one in found}
    found += _in_every_one([one for one in recent if not one.working & known], spec)
    return sorted((one for one in found if now < one.until), key=lambda one: one.model)


def _alone(recent: Sequence[Crash], spec: CulpritSpec) -> list[Culprit]:
    by_model: dict[str, list[Crash]] = {}
    for crash in recent:
        if len(crash.working) == 1:
            by_model.setdefault(min(crash.working), []).append(crash)
    return [
        _culprit(model, theirs, ALONE, spec)
        for model, theirs in by_model.items()
        if len(theirs) >= spec.crashes_min
    ]


def _in_every_one(recent: Sequence[Crash], spec: CulpritSpec) -> list[Culprit]:
    if len(recent) < spec.crashes_min:
        return []
    common = frozenset.intersection(*(one.working for one in recent))
    if len(common) > 1 and len(recent) < 2 * spec.crashes_min:
        return []
    return [_culprit(model, recent, IN_EVERY_CRASH, spec) for model in sorted(common)]


def _culprit(model: str, theirs: Sequence[Crash], reason: str, spec: CulpritSpec) -> Culprit:
    quarantine = Backoff(spec.quarantine_s, spec.remembered_s)
    left_alone_s = quarantine.pause_s(len(theirs) - spec.crashes_min + 1)
    return Culprit(model, theirs[-1].at + left_alone_s, reason, len(theirs))
