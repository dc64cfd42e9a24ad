"""What is known of one target model of a host."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from enum import StrEnum
from math import inf

from penstock.core.residency import actions as why
from penstock.core.residency.history import CallHistory
from penstock.core.residency.spec import Footprint
from penstock.core.residency.story import ResidencyStory

LOADS_KEPT = 5  #: of the last ones it is known when they were
_LEARNED = 0.5  #: weight of the newest load in what a load is expected to take


class State(StrEnum):
    """Where a model is on its way; `drains` says more of a loaded one."""

    UNLOADED = "unloaded"
    QUEUED = "queued"  #: to be prepared
    PREPARING = "preparing"
    PREPARED = "prepared"  #: its artifact is here; it waits for a place among the loads, and room
    LOADING = "loading"
    LOADED = "loaded"
    LEAVING = "leaving"  #: being unloaded


#: Who calls it now waits for a load that was asked for before.
ON_ITS_WAY = (State.QUEUED, State.PREPARING, State.PREPARED, State.LOADING)


class TargetModel:
    """One model: its state, who waits for it, what it takes, what became of it before."""

    __slots__ = (
        "admitted", "artifact", "blocked", "busy", "crashes", "dismissed", "drains", "evictions",
        "failed_reason", "failed_text", "failed_until", "failures", "foreseen_at", "guessed_hits",
        "held_until", "history", "hits", "load_deaths", "load_reason", "load_s", "loaded_at",
        "loads", "loads_at", "misguesses", "misses", "name", "need", "need_known", "need_measured",
        "overtaken", "parked", "phase_at", "pinned", "prefetched", "prepare_s", "promised",
        "retry_expected", "since", "stale", "state", "story", "taken", "unload_reason", "wished",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.UNLOADED
        self.story = ResidencyStory()
        self.history = CallHistory()

        # loaded
        self.busy = False  #: requests are in flight
        self.admitted = 0  #: of parked requests that may go, those not begun yet
        self.pinned = False
        self.drains = ""  #: why it takes no more requests and is unloaded once idle
        self.loaded_at = 0.0
        self.loads_at: deque[float] = deque(maxlen=LOADS_KEPT)  #: when its last loads were over
        self.load_reason = ""  #: why it was loaded last
        self.unload_reason = ""  #: why it left last

        # on its way
        self.parked: list[float] = []  #: deadlines of the parked requests, ascending; inf = none
        self.wished = False
        self.retry_expected = False  #: loads on for callers that were told to come again
        self.prefetched = False
        self.since = 0.0  #: when it was first asked for
        self.phase_at = 0.0  #: when it began to be prepared, or to load
        self.stale = False  #: replaced while it was prepared or loaded
        self.dismissed = False  #: not to be loaded before it is asked for again
        self.promised = False  #: others were, or are, unloaded for it
        self.blocked = False  #: what may go is not enough for it
        self.overtaken = 0  #: loads that began before it though it waited longer
        self.held_until: float | None = None  #: until then none of those begins

        # guesses
        self.foreseen_at: float | None = None  #: when it is to be prefetched
        self.guessed_hits: int | None = None  #: its hits when it was prefetched
        self.misguesses = 0  #: prefetches in a row after which nobody called it

        # what it takes
        self.artifact = ""
        self.need: Footprint | None = None
        self.need_measured = False
        self.need_known = False  #: it was measured, or others of its kind and size were
        self.taken: Footprint | None = None  #: when it was loaded last, as measured
        self.load_s: float | None = None
        self.prepare_s: float | None = None

        # what became of it
        self.loads = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self.failures = 0  #: in a row
        self.failed_until = -inf  #: until then requests are refused with
        self.failed_reason = ""
        self.failed_text = ""
        self.load_deaths = 0  #: of processes that prepared or loaded it, in a row
        self.crashes = 0  #: of processes that had loaded it, in a row

    @property
    def wanted(self) -> bool:
        """Somebody waits for it, or will come."""
        return bool(self.parked) or self.wished or self.retry_expected or self.prefetched

    @property
    def urgency(self) -> int:
        """0 callers wait, 1 wished, 2 callers may come again, 3 a guess."""
        if self.parked:
            return 0
        if self.wished:
            return 1
        return 2 if self.retry_expected else 3

    @property
    def cause(self) -> str:
        """Why it is prepared and loaded."""
        called = why.CALLED_AGAIN if self.loads else why.FIRST_CALL
        return (called, why.WISHED, why.RETRY_EXPECTED, why.PREFETCH)[self.urgency]

    @property
    def size(self) -> Footprint | None:
        """What it takes, or is expected to; None before it was prepared."""
        return self.taken or self.need

    @property
    def reload_s(self) -> float:
        """What having it back costs, by the loads before; a moment where none is known."""
        return max((self.load_s or 0.0) + (self.prepare_s or 0.0), 1e-3)

    def learn_prepare(self, seconds: float) -> None:
        self.prepare_s = _learned(self.prepare_s, seconds)

    def learn_load(self, seconds: float) -> None:
        self.load_s = _learned(self.load_s, seconds)

    def ready_at(self, now: float, load_s: float) -> float:
        """When it may be loaded if nothing stands in its way; `load_s`: of the load, expected."""
        if self.state is State.LOADING:
            return max(now, self.phase_at + load_s)
        if self.state is State.PREPARED:
            return now + load_s
        prepare_s = self.prepare_s or 0.0
        if self.state is State.PREPARING:
            return max(now, self.phase_at + prepare_s) + load_s
        return now + prepare_s + load_s

    def given_up_at(self, load_s: float) -> float:
        """From when on the earliest deadline can't be met any more; inf: there is none."""
        if not self.parked:
            return inf
        if self.state is State.LOADING:
            return self.parked[0]
        if self.state in (State.PREPARED, State.PREPARING):
            return self.parked[0] - load_s
        return self.parked[0] - load_s - (self.prepare_s or 0.0)

    def park(self, deadline: float | None) -> None:
        insort(self.parked, inf if deadline is None else deadline)

    def unpark(self, deadline: float | None) -> None:
        """One is gone; one with this deadline if there is any, else the first to go."""
        if not self.parked:
            return
        wanted = inf if deadline is None else deadline
        at = bisect_left(self.parked, wanted)
        found = at < len(self.parked) and self.parked[at] == wanted
        self.parked.pop(at if found else 0)

    def forget_failures(self) -> None:
        self.failures = self.load_deaths = self.crashes = 0
        self.failed_until, self.failed_reason, self.failed_text = -inf, "", ""

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself."""
        assert self.parked == sorted(self.parked), f"{self.name}: parked out of order"
        assert not (self.busy and self.state is not State.LOADED), f"{self.name}: busy, not loaded"
        if self.drains:
            assert self.state is State.LOADED, f"{self.name}: drains, not loaded"
            assert self.busy, f"{self.name}: drains without a request in flight"
        if self.wanted:
            moving = self.state not in (State.UNLOADED, State.LOADED)
            assert moving or self.drains, f"{self.name}: is waited for and nothing happens"


def _learned(known: float | None, seconds: float) -> float:
    return seconds if known is None else known + (seconds - known) * _LEARNED
