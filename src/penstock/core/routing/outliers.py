"""Which copies are ejected for a while, because they answer nothing while others of their pool do.

A copy can hang and keep its connection. Its requests time out one by one, and as each timeout frees
a place there, it is chosen before all others. So it is *ejected*: new requests go to the other
copies. Later it is *probed* with one request at a time, and is readmitted with the first answer.
Three signs count against a copy, each only if others of its pool have answered meanwhile:

    instance-silent    its instance does not answer at all when asked whether it lives
    deadlines-missed   requests timed out there one after the other, with no answer in between
    answers-nothing    it has had requests for much longer than any recent answer of the pool took

The first sign is certain: an instance answers that question whatever its models do. Its copies'
requests are sent elsewhere at once. The other two are not: the copy may be computing something
long. Requests that have not begun there are taken back, those that have begun stay, and the first
answer readmits the copy. So a slow model is not ejected where its answers are as slow as usual,
each piece of a stream counts as an answer, and one long request has no other effect than that
others do not wait behind it. Copies that load models on request (multi-model) are never judged by
such times.

Not all copies can be ejected: one must have answered. By times alone at most half of a pool is
ejected, but always at least one. Where more copies have a sign than may be ejected, those of silent
instances go first, then those that have been quiet for longest, then by number.

After Envoy's outlier detection and gRPC's (proposal A50): each further ejection is longer by
`EJECT_S`, and the time shrinks again while the copy is healthy; probing is our addition.

The module knows neither connections nor requests. Its driver calls it each `LOOK_EVERY_S` while
something is in flight. After a pause between looks (nothing was in flight, or the driver itself
could not run) earlier observations do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

LOOK_EVERY_S: Final = 0.25
_PAUSE_S: Final = 4 * LOOK_EVERY_S

#: After the first look with waiting requests and no message, the instance is asked whether it
#: lives; after this many more it is silent. A busy machine may block an event loop for some tenths
#: of a second.
SILENT_LOOKS: Final = 4

#: Timeouts in a row; a single one may be due to its caller's short deadline.
MISSED_MAX: Final = 3
#: s without an answer, at least; and this many times the slowest recent answer.
_MISSED_S_MIN: Final = 1.0
_MISSED_TIMES: Final = 1.5
QUIET_S_MIN: Final = 2.0
QUIET_TIMES: Final = 3.0
#: s. Recent means: in this period or the one before it.
_PERIOD_S: Final = 300.0

#: s of the first ejection; a worker that hangs or restarts needs some seconds.
EJECT_S: Final = 5.0
EJECT_S_MAX: Final = 60.0
#: s without trouble after which one ejection is forgotten.
_FORGET_S: Final = 30.0

INSTANCE_SILENT: Final = "instance-silent"
DEADLINES_MISSED: Final = "deadlines-missed"
ANSWERS_NOTHING: Final = "answers-nothing"
REASONS: Final = (INSTANCE_SILENT, DEADLINES_MISSED, ANSWERS_NOTHING)

#: Errors by which an instance says that a request never reached the model: no sign of life of that.
NO_ANSWER: Final = frozenset(
    {"queue-full", "queue-timeout", "deadline-passed", "deadline-cannot-be-met", "too-many-rows"}
)


class CopyAnswersObserved(NamedTuple):
    """A copy that is healthy as far as its instance reports."""

    copy: int
    outstanding: int
    answers: int  #: so far, pieces of streams included
    missed: int = 0  #: requests since its last answer that timed out there
    silent: bool = False  #: its instance did not answer in time when asked whether it lives


class Eject(NamedTuple):
    """Eject the copy. `begun`: take back requests that it has begun too, unless a part of the
    answer was sent; otherwise take back only waiting ones."""

    copy: int
    reason: str
    until: float  #: monotonic s
    begun: bool


class Probe(NamedTuple):
    """The copy may have one request at a time."""

    copy: int
    reason: str = "time-is-over"


class Readmit(NamedTuple):
    """The copy is like any other again."""

    copy: int
    reason: str = "answers-again"  #: or only-copy, where the others are gone


Action = Eject | Probe | Readmit

_IN, _OUT, _PROBED = "in", "out", "probed"


@dataclass(slots=True)
class _Record:
    """What is known of one copy."""

    answers: int  #: answers at the last look
    state: str = _IN
    #: it has or had requests, and has answered none since; None: it is not quiet
    quiet_since: float | None = None
    answered: int = 0  #: answers of the whole pool at that time: later ones are from other copies
    reason: str = ""  #: reason of its last ejection
    until: float = 0.0
    times: int = 0  #: ejections, as far as they are remembered
    back_at: float = 0.0


class Outliers:
    """The outliers of one pool. `by_times`: False where answers take as long as loading a model."""

    __slots__ = ("_answered", "_by_times", "_looked_at", "_period_at", "_records", "_slowest_s")

    def __init__(self, *, by_times: bool = True) -> None:
        self._by_times = by_times
        self._records: dict[int, _Record] = {}
        self._answered = 0  #: answers of all copies, including copies that have left
        self._looked_at = float("-inf")
        self._period_at = float("-inf")
        self._slowest_s = (0.0, 0.0)  #: slowest answers of the previous period and of this one

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
        """The copy died: its replacement has a clean record."""
        self._records.pop(copy, None)

    def snapshot(self, copy: int) -> dict[str, Any]:
        """JSON-ready, for `explain`; empty for a copy that was never ejected."""
        record = self._records.get(copy)
        if record is None or not record.times:
            return {}
        return {"state": record.state, "reason": record.reason, "times": record.times}

    def _let_all_in(self, seen: Sequence[CopyAnswersObserved], now: float) -> list[Action]:
        """Readmits all: a single copy has none that could replace it."""
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
        """Updates the record of one copy by this look."""
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
    """Whether one instance still sends anything. Looks are counted, not seconds: where the looking
    process could not run itself, silence says nothing."""

    __slots__ = ("_asked", "_heard", "_looks")

    def __init__(self, heard: int) -> None:
        self._heard = heard
        self._asked = False
        self._looks = 0  #: looks since it was asked

    def look(self, *, heard: int, waits: bool) -> bool:
        """True: ask the instance now whether it lives.

        Args:
            heard: number of messages from it so far.
            waits: an answer from it is expected.
        """
        if heard != self._heard or not waits:
            self._heard, self._asked, self._looks = heard, False, 0
            return False
        if self._asked:
            self._looks += 1
            return self._looks % SILENT_LOOKS == 0  # another connection may work
        self._asked = True
        return True

    @property
    def silent(self) -> bool:
        """It did not answer in time when asked."""
        return self._looks >= SILENT_LOOKS
