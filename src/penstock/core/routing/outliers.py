"""Which copies are left out for a while, because they answer nothing while others of their pool do.

A copy can hang and keep its connection. Its requests run out of time one by one, and as each that
does frees a place there it is chosen before all others. So it is *ejected*: new requests go to the
other copies. Later it is *probed*, with one request at a time, and is let back with the first
answer. What accuses a copy, each time only if others of its pool have answered meanwhile:

    instance-silent    its instance was asked whether it lives, and says nothing at all
    deadlines-missed   requests ran out of time there one after the other, none answered in between
    answers-nothing    it has had requests for much longer than any answer of the pool took lately

The first is certain: an instance answers that question whatever its models do. Its copies' requests
are sent elsewhere at once. The other two are not: the copy may be computing something long. What
has not begun there is asked back, what it has begun stays, and its first answer lets it back. So a
slow model is not ejected where its answers are as slow as usual, a stream that flows is an answer
each time, and one long request costs nothing but that others do not wait behind it. Copies that
load models as they are asked for (multi-model) are never accused by such times.

Not all can go: somebody must have answered. By times alone at most half of a pool is ejected, and
one at least. Where more are accused than may go, those of silent instances go first, then those
that have been quiet for longest, then by number.

After Envoy's outlier detection and gRPC's (proposal A50): the time that a copy is left out grows by
`EJECT_S` with each further time and shrinks again while it is well, probing is ours.

Knows neither links nor requests. Whoever drives it looks each `LOOK_EVERY_S` while something is in
flight. After a pause in looking (nothing was in flight, or the driver itself could not run) nothing
that was seen before counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

LOOK_EVERY_S: Final = 0.25
_PAUSE_S: Final = 4 * LOOK_EVERY_S

#: A look without a word after one with waiting requests: it is asked. So many more: it is silent.
#: A busy machine may keep an event loop from running for some tenths of a second.
SILENT_LOOKS: Final = 4

#: In a row; each may be its caller's impatience.
MISSED_MAX: Final = 3
#: Quiet for this long, and this often as long as the slowest answer of late.
_MISSED_S_MIN: Final = 1.0
_MISSED_TIMES: Final = 1.5
QUIET_S_MIN: Final = 2.0
QUIET_TIMES: Final = 3.0
#: "Of late": in this period or the one before it.
_PERIOD_S: Final = 300.0

#: The first time out; a worker that hangs or starts anew needs some seconds.
EJECT_S: Final = 5.0
EJECT_S_MAX: Final = 60.0
#: One time fewer is remembered for each such time that it was well.
_FORGET_S: Final = 30.0

INSTANCE_SILENT: Final = "instance-silent"
DEADLINES_MISSED: Final = "deadlines-missed"
ANSWERS_NOTHING: Final = "answers-nothing"
REASONS: Final = (INSTANCE_SILENT, DEADLINES_MISSED, ANSWERS_NOTHING)

#: Errors by which an instance says that a request never met the model: no sign of life of that.
NO_ANSWER: Final = frozenset(
    {"queue-full", "queue-timeout", "deadline-passed", "deadline-cannot-be-met", "too-many-rows"}
)


class CopyAnswersObserved(NamedTuple):
    """A copy that is well as far as its instance says."""

    copy: int
    outstanding: int
    answers: int  #: so far, pieces of streams included
    missed: int = 0  #: requests that ran out of time there since its last answer
    silent: bool = False  #: its instance was asked whether it lives, and did not answer in time


class Eject(NamedTuple):
    """Leave it out. `begun`: what it has begun is taken back as well, unless a part of the answer
    has gone out; else only what waits there."""

    copy: int
    reason: str
    until: float  #: monotonic s
    begun: bool


class Probe(NamedTuple):
    """It may have one request at a time."""

    copy: int
    reason: str = "time-is-over"


class Readmit(NamedTuple):
    """It is a copy like any other."""

    copy: int
    reason: str = "answers-again"  #: or only-copy: the others are gone


Action = Eject | Probe | Readmit

_IN, _OUT, _PROBED = "in", "out", "probed"


@dataclass(slots=True)
class _Record:
    """What is known of one copy."""

    answers: int  #: at the last look
    state: str = _IN
    quiet_since: float | None = None  #: it has or had requests, and has not answered any since
    answered: int = 0  #: what the pool had answered then: more since is by others
    reason: str = ""  #: of its last ejection
    until: float = 0.0
    times: int = 0  #: it was ejected, as far as that is remembered
    back_at: float = 0.0


class Outliers:
    """Of one pool. `by_times`: False where answers take as long as a model takes to load."""

    __slots__ = ("_answered", "_by_times", "_looked_at", "_period_at", "_records", "_slowest_s")

    def __init__(self, *, by_times: bool = True) -> None:
        self._by_times = by_times
        self._records: dict[int, _Record] = {}
        self._answered = 0  #: by all, those that have left since among them
        self._looked_at = float("-inf")
        self._period_at = float("-inf")
        self._slowest_s = (0.0, 0.0)  #: answers of the last period, and of this one

    def look(
        self, seen: Sequence[CopyAnswersObserved], *, took_s_max: float, now: float
    ) -> list[Action]:
        """Carry the actions out. `took_s_max`: the slowest answer of the pool since the last look,
        in s; 0 = there was none."""
        self._remember(took_s_max, now)
        rested, self._looked_at = now >= self._looked_at + _PAUSE_S, now
        if len(seen) < 2:
            return self._let_all_in(seen, now)
        before, self._records = self._records, {}
        self._answered += sum(
            one.answers - before[one.copy].answers for one in seen if one.copy in before
        )
        actions: list[Action] = []
        accused: list[tuple[int, float, int, CopyAnswersObserved, str]] = []
        for one in seen:
            record = before.get(one.copy) or _Record(one.answers)
            self._records[one.copy] = record
            if rested:
                record.quiet_since = None
            actions += self._note(one, record, now)
            reason = self._accusation(one, record, now)
            if reason is not None and record.quiet_since is not None:
                rank = REASONS.index(reason) > 0
                accused.append((rank, record.quiet_since, one.copy, one, reason))
        for _, _, _, one, reason in sorted(accused):
            actions += self._eject(one, reason, len(seen), now)
        return actions

    def forget(self, copy: int) -> None:
        """It died: what comes back in its place is another."""
        self._records.pop(copy, None)

    def snapshot(self, copy: int) -> dict[str, Any]:
        """JSON-ready, for `explain`: empty for a copy that was never ejected."""
        record = self._records.get(copy)
        if record is None or not record.times:
            return {}
        return {"state": record.state, "reason": record.reason, "times": record.times}

    def _let_all_in(self, seen: Sequence[CopyAnswersObserved], now: float) -> list[Action]:
        """A copy alone has nobody to stand in for it."""
        actions: list[Action] = []
        for one in seen:
            record = self._records.setdefault(one.copy, _Record(one.answers))
            record.answers, record.quiet_since = one.answers, None
            if record.state != _IN:
                record.state, record.back_at = _IN, now
                actions.append(Readmit(one.copy, "only-copy"))
        return actions

    def _remember(self, took_s_max: float, now: float) -> None:
        before, current = self._slowest_s
        if now >= self._period_at + _PERIOD_S:
            self._period_at, before, current = now, current, 0.0
        self._slowest_s = before, max(current, took_s_max)

    def _note(self, one: CopyAnswersObserved, record: _Record, now: float) -> list[Action]:
        """What this look says of one copy by itself."""
        if one.answers != record.answers:
            record.answers, record.quiet_since = one.answers, None
            if record.state != _IN:
                record.state, record.back_at = _IN, now
                return [Readmit(one.copy)]
        elif not one.outstanding and not one.missed:
            record.quiet_since = None
        elif record.quiet_since is None:
            record.quiet_since, record.answered = now, self._answered
        if record.state == _OUT and now >= record.until and not one.silent:
            record.state, record.quiet_since = _PROBED, None
            return [Probe(one.copy)]
        return []

    def _accusation(self, one: CopyAnswersObserved, record: _Record, now: float) -> str | None:
        since = record.quiet_since
        if since is None or record.state == _OUT or self._answered == record.answered:
            return None
        if one.silent:
            return INSTANCE_SILENT
        if not self._by_times:
            return None
        slowest_s = max(self._slowest_s)
        if one.missed >= MISSED_MAX and now >= since + max(
            _MISSED_S_MIN, _MISSED_TIMES * slowest_s
        ):
            return DEADLINES_MISSED
        if one.outstanding and now >= since + max(QUIET_S_MIN, QUIET_TIMES * slowest_s):
            return ANSWERS_NOTHING
        return None

    def _eject(
        self, one: CopyAnswersObserved, reason: str, copies: int, now: float
    ) -> list[Action]:
        out = sum(record.state == _OUT for record in self._records.values())
        certain = reason == INSTANCE_SILENT
        if out >= (copies - 1 if certain else max(1, copies // 2)):
            return []
        record = self._records[one.copy]
        forgotten = int((now - record.back_at) / _FORGET_S) if record.state == _IN else 0
        begun = certain or record.state == _PROBED
        record.times = max(0, record.times - forgotten) + 1
        record.until = now + min(EJECT_S_MAX, EJECT_S * record.times)
        record.state, record.reason, record.quiet_since = _OUT, reason, None
        return [Eject(one.copy, reason, record.until, begun)]


class InstanceLooks:
    """Whether one instance still says anything. Looks are counted and not seconds: where the one
    who looks could not run itself, nobody's silence says anything."""

    __slots__ = ("_asked", "_heard", "_looks")

    def __init__(self, heard: int) -> None:
        self._heard = heard
        self._asked = False
        self._looks = 0  #: since it was asked

    def look(self, *, heard: int, waits: bool) -> bool:
        """True: ask it now whether it lives.

        Args:
            heard: how often it said anything so far.
            waits: something is expected of it.
        """
        if heard != self._heard or not waits:
            self._heard, self._asked, self._looks = heard, False, 0
            return False
        if self._asked:
            self._looks += 1
            return self._looks % SILENT_LOOKS == 0  # on another connection, perhaps
        self._asked = True
        return True

    @property
    def silent(self) -> bool:
        """It was asked, and did not answer in time."""
        return self._looks >= SILENT_LOOKS
