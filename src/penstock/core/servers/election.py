"""Who leads, of several servers on one database: when to wait, to take over, and to step down.

The leader counts up a number in the database (`beat`) and holds a lock there. Everybody else looks
at both again and again. A leader whose lock is gone has ended, or has lost its connection; one that
holds the lock and no longer counts is paused, or cut off: it has to be evicted before the lock can
be had. How long a number has stood still is measured by the looking server's own monotonic clock,
from the first look that showed it: no clock of another machine, and no time of day, takes part, and
what passed while the database could not be asked does not count.

A server that was paused may believe for a while that it still leads. Nothing here prevents that;
its writes are refused by the epoch (`control/leader/`), which each new leader raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WAIT: Final = "wait"
LOCK: Final = "lock"  #: try the lock; with it, lead
EVICT: Final = "evict"  #: end the leader's connections, then as LOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSpec:
    """How long a leader may be silent.

    Four beats fit into the shorter time: a connection that is made anew takes part of one.
    """

    beat_s: float = 0.25  #: the leader counts this often
    look_s: float = 0.25  #: the others look this often
    released_s: float = 1.0  #: without the lock
    silent_s: float = 2.5  #: with it; a takeover is to be over within 5 s, starts included


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderObserved:
    """What the database says of the leader."""

    epoch: int  #: raised by each new leader; 0: there was none yet
    name: str = ""
    address: str = ""  #: where it is called; empty: not yet known
    session: str = ""  #: what its connections are called; empty: it has resigned
    beat: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """What a server that does not lead does now."""

    action: str
    reason: str


class Election:
    """One server's view of the leader."""

    def __init__(self, spec: ElectionSpec) -> None:
        self._spec = spec
        self._since: tuple[tuple[int, int], float] | None = None  #: (epoch, beat), first seen at
        self._seen: LeaderObserved | None = None  #: at the last look
        self._counts = False  #: that leader has counted since the first look that showed it

    def forget(self) -> None:
        """The database could not be asked: what is seen next is seen for the first time."""
        self._since = None

    def look(self, seen: LeaderObserved, *, now: float) -> Candidacy:
        """What follows from one look, which must come after any that led to the one before."""
        before, self._seen = self._seen, seen
        if before is None or before.epoch != seen.epoch:
            self._counts = False
        elif before.beat != seen.beat:
            self._counts = True
        counted = seen.epoch, seen.beat
        if self._since is None or self._since[0] != counted:
            self._since = counted, now
        since = self._since[1]
        if not seen.session:
            return Candidacy(action=LOCK, reason="nobody-leads")
        if now >= since + self._spec.silent_s:
            return Candidacy(action=EVICT, reason="leader-silent")
        if now >= since + self._spec.released_s:
            return Candidacy(action=LOCK, reason="leader-gone")
        return Candidacy(action=WAIT, reason="leader-lives")

    def shares_address(self, address: str) -> bool:
        """Whether the leader of the last look is another server that others reach where they reach
        this one. It was seen to count: a record that stands still may be this server's own, of
        before it was started anew."""
        seen = self._seen
        return self._counts and seen is not None and bool(address) and seen.address == address
