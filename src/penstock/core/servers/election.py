"""Which of several servers on one database leads: when to wait, to take over, and to step down.

The leader counts up a number in the database (`beat`) and holds a lock there. All other servers
check both again and again. A leader whose lock is gone has ended, or has lost its connection. One
that holds the lock and no longer counts is paused, or cut off: it must be evicted before another
can get the lock. The checking server's own monotonic clock measures how long a number has not
changed, from the first check that showed it. No other machine's clock and no time of day takes
part, and time in which the database could not be reached does not count.

A server that was paused may believe for a while that it still leads. Nothing here prevents that;
its writes are refused by the epoch (`control/leader/`), which each new leader raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WAIT: Final = "wait"
LOCK: Final = "lock"  #: try to get the lock, and lead with it
EVICT: Final = "evict"  #: end the leader's connections, then as LOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionSpec:
    """How long a leader may be silent.

    Four beats fit into the shorter time: a reconnection takes part of one.
    """

    beat_s: float = 0.25  #: s between two beats of the leader
    look_s: float = 0.25  #: s between two checks by the others
    released_s: float = 1.0  #: s of silence before a takeover, where the lock is free
    #: s of silence, where the lock is held; a takeover must end within 5 s, starts included
    silent_s: float = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderObserved:
    """The leader's state as the database shows it."""

    epoch: int  #: each new leader raises it; 0: there was no leader yet
    name: str = ""
    address: str = ""  #: address for requests to it; empty: not known yet
    session: str = ""  #: name of its connections; empty: it has resigned
    beat: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """What a server that does not lead should do now."""

    action: str
    reason: str


class Election:
    """One server's view of the leader."""

    def __init__(self, spec: ElectionSpec) -> None:
        self._spec = spec
        #: (epoch, beat), and when they were first seen
        self._since: tuple[tuple[int, int], float] | None = None
        self._seen: LeaderObserved | None = None  #: result of the last check
        self._counts = False  #: the leader has counted since the first check that showed it

    def forget(self) -> None:
        """The database could not be reached: the next state counts as seen for the first time."""
        self._since = None

    def look(self, seen: LeaderObserved, *, now: float) -> Candidacy:
        """Handles one check; checks must come in the order in which they were made."""
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
        """Whether the leader of the last check is another server with the same address as this one.

        Its count must have changed: a record that does not change may be this server's own, from
        before its restart.
        """
        seen = self._seen
        return self._counts and seen is not None and bool(address) and seen.address == address
