"""The target models that a host knows, each with its state and its last events.

`TargetModel` alone writes its fields: each method is one event. `NEXT` says which state may follow
which, and only `Table.move` changes the state.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from penstock.core.learned_times import OutlierFilter
from penstock.core.residency import actions as why
from penstock.core.residency.actions import ResidencyStory
from penstock.core.residency.spec import Footprint

_LEARNED = 0.5  #: weight of the newest load in the expected time of a load


class State(StrEnum):
    UNLOADED = "unloaded"
    QUEUED = "queued"  #: is to be prepared
    PREPARING = "preparing"
    PREPARED = "prepared"  #: its artifact is here; it waits for its turn to load, and for room
    LOADING = "loading"
    LOADED = "loaded"  #: requests may go to it
    DRAINING = "draining"  #: loaded; is unloaded once the requests in flight are answered
    LEAVING = "leaving"  #: being unloaded


#: State -> states that may follow. The death of a process, and a failure, lead to UNLOADED from
#: every state with a process.
NEXT: Final = {
    State.UNLOADED: {State.QUEUED},
    State.QUEUED: {State.PREPARING, State.UNLOADED},
    State.PREPARING: {State.PREPARED, State.UNLOADED},
    State.PREPARED: {State.LOADING, State.QUEUED, State.UNLOADED},
    State.LOADING: {State.LOADED, State.UNLOADED},
    State.LOADED: {State.DRAINING, State.LEAVING, State.UNLOADED},
    State.DRAINING: {State.DRAINING, State.LOADED, State.LEAVING, State.UNLOADED},
    State.LEAVING: {State.UNLOADED},
}
#: States in which it waits for its load to begin.
IN_QUEUE: Final = frozenset({State.QUEUED, State.PREPARING, State.PREPARED})
#: States in which memory is charged to it, and it can answer.
RESIDENT: Final = frozenset({State.LOADED, State.DRAINING})


class RoomState(StrEnum):
    """What is known of the room for a model that waits to be loaded."""

    UNKNOWN = "unknown"
    PROMISED = "promised"  #: other models were, or are being, evicted for it
    BLOCKED = "blocked"  #: the models that may be evicted are not enough for it


class Failure(NamedTuple):
    """Why requests are refused, and until when."""

    until: float  #: s; inf: until the artifact changes
    reason: str
    message: str


@dataclass(slots=True, eq=False)
class TargetModel:
    """One model: its state, its waiting requests, its memory, and its history."""

    name: str
    state: State = State.UNLOADED
    story: ResidencyStory = field(default_factory=ResidencyStory)
    called_at: float | None = None
    pinned: bool = False

    # loaded
    busy: bool = False  #: requests are in flight
    admitted: int = 0  #: parked requests that may be sent and were not sent yet
    loaded_at: float = 0.0
    load_reason: str = ""  #: reason of the last load
    leaves_because: str = ""  #: reason for which it drains or leaves, or left last

    # while it is being loaded
    #: deadlines of the parked requests, ascending; inf = none
    parked: list[float] = field(default_factory=list)
    #: (deadline, callers) of the parked calls by other models of the host, which keep their memory
    calls: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    wished: bool = False
    #: why it is loaded though nobody waits: retry-expected, replaced; empty: it is not
    expected: str = ""
    since: float = 0.0  #: when it was first requested
    phase_at: float = 0.0  #: when its preparation or its load began
    stale: bool = False  #: its artifact was replaced while it was prepared or loaded
    dismissed: bool = False  #: not to be loaded before the next request for it
    room: RoomState = RoomState.UNKNOWN
    overtaken: int = 0  #: number of loads that began before it though it had waited longer
    #: s; no other load overtakes it until then; None: they may
    held_until: float | None = None

    # its memory
    artifact: str = ""
    need: Footprint | None = None
    need_measured: bool = False
    need_known: bool = False  #: the need was measured, or taken from models of its kind and size
    taken: Footprint | None = None  #: measured when it was loaded last
    load_s: float | None = None
    prepare_s: float | None = None
    load_outliers: OutlierFilter = field(default_factory=OutlierFilter)
    prepare_outliers: OutlierFilter = field(default_factory=OutlierFilter)

    # its history
    loads: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    failure: Failure | None = None  #: the last failure, even if it is over
    failures: int = 0  #: failures in a row
    load_deaths: int = 0  #: deaths in a row of processes that prepared or loaded it
    crashes: int = 0  #: deaths in a row of processes in which it was loaded

    # views

    @property
    def asked(self) -> bool:
        """Whether callers wait for it, or a load was requested explicitly."""
        return bool(self.parked) or self.wished

    @property
    def wanted(self) -> bool:
        """Whether somebody waits for it, or is expected to."""
        return self.asked or bool(self.expected)

    @property
    def urgency(self) -> int:
        """0: callers wait; 1: explicitly requested; 2: callers may come again."""
        if self.parked:
            return 0
        return 1 if self.wished else 2

    @property
    def cause(self) -> str:
        """Why it is prepared and loaded."""
        if self.parked:
            return why.CALLED_AGAIN if self.loads else why.FIRST_CALL
        return why.WISHED if self.wished else self.expected or why.RETRY_EXPECTED

    @property
    def size(self) -> Footprint | None:
        """Its memory, measured or expected; None before it was prepared."""
        return self.taken or self.need

    @property
    def reload_s(self) -> float:
        """Expected s of a reload, by earlier loads; a moment where there was none."""
        return max((self.load_s or 0.0) + (self.prepare_s or 0.0), 1e-3)

    @property
    def may_go(self) -> bool:
        """Whether it may be evicted: no request is in flight, and it is not pinned."""
        return self.state is State.LOADED and not (self.busy or self.pinned)

    @property
    def is_replaced(self) -> bool:
        """Whether the loaded or loading version is no longer its artifact."""
        replaced = self.state is State.DRAINING and self.leaves_because == why.REPLACED
        return self.stale or replaced

    def refused(self, now: float) -> Failure | None:
        """The failure for which requests are refused now."""
        return self.failure if self.failure is not None and now < self.failure.until else None

    def ready_at(self, now: float, load_s: float) -> float:
        """When it may be loaded if nothing delays it; `load_s`: expected s of the load."""
        if self.state is State.LOADING:
            return max(now, self.phase_at + load_s)
        if self.state is State.PREPARED:
            return now + load_s
        prepare_s = self.prepare_s or 0.0
        if self.state is State.PREPARING:
            return max(now, self.phase_at + prepare_s) + load_s
        return now + prepare_s + load_s

    def given_up_at(self, load_s: float) -> float:
        """When the earliest deadline can't be met any more; inf: there is none."""
        if not self.parked:
            return inf
        if self.state is State.LOADING:
            return self.parked[0]
        if self.state in (State.PREPARED, State.PREPARING):
            return self.parked[0] - load_s
        return self.parked[0] - load_s - (self.prepare_s or 0.0)

    # requests

    def called(self, now: float) -> None:
        """A request for it came, wherever it goes."""
        self.called_at = now

    def hit(self, now: float) -> None:
        """A request goes to it without having been parked."""
        self.hits += 1
        self.called(now)

    def missed(self, now: float) -> None:
        self.misses += 1
        self.called(now)

    def begin(self) -> bool:
        """A request goes to it. Returns whether it was parked, and so counted, before."""
        self.busy = True
        if self.admitted:
            self.admitted -= 1
            return True
        return False

    def idle(self) -> None:
        self.busy, self.admitted = False, 0

    def admit(self, requests: int) -> None:
        """So many parked requests may be sent to it; from now on it is busy."""
        self.busy = True
        self.admitted += requests

    def park(self, deadline: float | None, callers: tuple[str, ...] = ()) -> None:
        ends_at = inf if deadline is None else deadline
        insort(self.parked, ends_at)
        if callers:
            self.calls.append((ends_at, callers))

    def unpark(self, deadline: float | None, callers: tuple[str, ...] = ()) -> None:
        """A parked request is gone: one with this deadline if there is any, else the first."""
        wanted = inf if deadline is None else deadline
        if (wanted, callers) in self.calls:
            self.calls.remove((wanted, callers))
        at = bisect_left(self.parked, wanted)
        found = at < len(self.parked) and self.parked[at] == wanted
        self.parked.pop(at if found else 0)

    def unpark_late(self, now: float, load_s: float) -> list[float]:
        """Removes requests whose deadline can't be met any more; their deadlines, ascending."""
        late: list[float] = []
        while now >= self.given_up_at(load_s):
            late.append(self.parked.pop(0))
        if late:
            self.calls = [one for one in self.calls if one[0] > late[-1]]
        return late

    def unpark_all(self) -> int:
        """Removes all parked requests; returns their number."""
        count = len(self.parked)
        self.parked.clear()
        self.calls.clear()
        return count

    # requests to load or unload it

    def ask(self, now: float) -> None:
        """It is requested; the first request sets the time since which it waits."""
        if not self.wanted:
            self.since = now

    def undismiss(self) -> None:
        self.dismissed = False

    def wish(self) -> None:
        self.wished = True

    def expect(self, reason: str) -> None:
        """It is loaded though nobody waits for it, for this reason; empty: it is not."""
        self.expected = reason

    def take_wish(self) -> bool:
        """Ends an explicit request to load it; returns whether there was one."""
        wished, self.wished = self.wished, False
        return wished

    def unwant(self) -> None:
        """Ends explicit requests and expectations; parked requests stay."""
        self.wished, self.expected = False, ""

    def dismiss(self) -> None:
        self.unwant()
        self.dismissed = True

    def pin(self, pinned: bool) -> None:
        self.pinned = pinned

    # its artifact

    def replace(self) -> None:
        """Its artifact changed: nothing known of the old one holds for the new one."""
        self.forget_failures()
        self.artifact, self.need, self.taken = "", None, None
        self.need_measured = self.need_known = False
        if self.state in (State.PREPARING, State.PREPARED, State.LOADING):
            self.stale = True

    def measure(self, taken: Footprint | None) -> None:
        """Its memory in the last load; None: that was another artifact."""
        self.taken = taken

    def fresh(self) -> None:
        """The next loaded version is its current artifact."""
        self.stale = False

    def prepared(self, need: Footprint, *, artifact: str, measured: bool, sized: bool) -> Footprint:
        """Its artifact is here. Measured need counts more than an estimate; returns the result."""
        if artifact != self.artifact:
            self.artifact, self.taken = artifact, None
        self.need_measured = measured or self.taken is not None
        self.need_known = self.need_measured or sized
        self.need = self.taken if self.taken and not (measured or sized) else need
        return self.need

    def resized(self, taken: Footprint) -> None:
        """Its memory was measured while it is loaded."""
        if not self.is_replaced:
            self.taken = taken

    def learn_prepare(self, seconds: float) -> None:
        self.prepare_s, _ = _learned(self.prepare_s, seconds, self.prepare_outliers)

    def learn_load(self, seconds: float) -> float:
        """Returns what the time counts as."""
        self.load_s, counted_s = _learned(self.load_s, seconds, self.load_outliers)
        return counted_s

    # changes of state

    def enter(self, state: State, *, now: float, reason: str = "") -> None:
        """Only `Table.move` calls this. `reason`: why it is loaded, drains or leaves."""
        if state not in NEXT[self.state]:
            raise ValueError(f"model {self.name}: {state} can't follow {self.state}")
        if state in (State.QUEUED, State.UNLOADED, State.LOADING):
            self.room = RoomState.UNKNOWN
        match state:
            case State.UNLOADED:
                self.busy, self.admitted = False, 0
            case State.QUEUED if self.state is State.UNLOADED:
                self.overtaken, self.held_until = 0, None
            case State.PREPARING:
                self.phase_at, self.stale = now, False
            case State.LOADING:
                self.phase_at, self.load_reason = now, reason
            case State.LOADED if self.state is State.LOADING:
                self.loaded_at = now
                self.loads += 1
                self.failures = self.load_deaths = 0
            case State.LOADED:
                self.leaves_because = ""
            case State.DRAINING | State.LEAVING:
                self.leaves_because = reason
        self.state = state

    def has_room(self, room: RoomState) -> None:
        """Sets what was found out about room for it."""
        self.room = room

    def passed(self) -> None:
        """A load began before it though it had waited longer."""
        self.overtaken += 1

    def hold(self, until: float | None) -> None:
        """No other load overtakes it until then; None: that is over, and the count begins anew."""
        self.held_until = until
        if until is None:
            self.overtaken = 0

    def evicted(self) -> None:
        self.evictions += 1

    # failures

    def load_failed(self) -> int:
        """Returns the number of failures in a row."""
        self.failures += 1
        return self.failures

    def died_on_its_way(self, *, counts: bool) -> int:
        """Its process died before it was loaded; returns the number of such deaths in a row."""
        self.load_deaths += counts
        return self.load_deaths

    def died_loaded(self, *, counts: bool, ran_long: bool) -> int:
        """Its process died; returns the deaths in a row. A model that ran long begins a new row."""
        self.crashes = (0 if ran_long else self.crashes) + counts
        return self.crashes

    def fail(self, failure: Failure) -> None:
        """From now on requests for it are refused with this failure."""
        self.failure = failure

    def forget_failures(self) -> None:
        self.failures = self.load_deaths = self.crashes = 0
        self.failure = None

    def check_invariants(self) -> None:
        """Raises AssertionError if the state contradicts itself."""
        assert self.parked == sorted(self.parked), f"{self.name}: parked out of order"
        assert not self.busy or self.state in RESIDENT, f"{self.name}: busy, not loaded"
        if self.state is State.DRAINING:
            assert self.busy, f"{self.name}: drains without a request in flight"
        if self.wanted:
            still = self.state in (State.UNLOADED, State.LOADED)
            assert not still, f"{self.name}: is waited for and nothing happens"


def _learned(known: float | None, seconds: float, outliers: OutlierFilter) -> tuple[float, float]:
    """(the estimate now, what the time counted as)."""
    counted_s, anew = outliers.cut(seconds, known or 0.0)
    if known is None or anew:
        return counted_s, counted_s
    return known + (counted_s - known) * _LEARNED, counted_s


#: Number of models remembered; above it, those not called for longest are forgotten.
KNOWN_MAX = 4096


class Table:
    """Find a model here by name; call `move` to change its state."""

    def __init__(self) -> None:
        self.models: dict[str, TargetModel] = {}
        self.queue: dict[str, TargetModel] = {}  #: models that wait for their loads to begin
        self.loading: dict[str, TargetModel] = {}
        #: loaded models, draining ones included; longest unused first
        self.resident: OrderedDict[str, TargetModel] = OrderedDict()
        self.waiting: dict[str, TargetModel] = {}  #: models with parked requests

    def of(self, name: str) -> TargetModel:
        """The model's record; a new one for an unknown name."""
        model = self.models.get(name)
        if model is None:
            if len(self.models) >= KNOWN_MAX:
                self._forget()
            model = self.models[name] = TargetModel(name)
        return model

    def is_loaded(self, name: str) -> bool:
        """Whether requests may go to it."""
        model = self.resident.get(name)
        return model is not None and model.state is State.LOADED

    def in_state(self, *states: State) -> Iterable[TargetModel]:
        return (model for model in self.models.values() if model.state in states)

    def move(self, model: TargetModel, to: State, *, now: float, reason: str = "") -> None:
        """Raises ValueError where `to` can't follow. `reason`: why it is loaded, drains, leaves."""
        model.enter(to, now=now, reason=reason)
        for index, states in (
            (self.queue, IN_QUEUE),
            (self.loading, frozenset({State.LOADING})),
            (self.resident, RESIDENT),
        ):
            if to in states:
                index.setdefault(model.name, model)
            else:
                index.pop(model.name, None)

    def used(self, model: TargetModel) -> None:
        """It is now the most recently used model."""
        if model.name in self.resident:
            self.resident.move_to_end(model.name)

    def park(
        self, model: TargetModel, deadline: float | None, callers: tuple[str, ...] = ()
    ) -> None:
        model.park(deadline, callers)
        self.waiting[model.name] = model

    def look_waiting(self, model: TargetModel) -> None:
        """Updates the table after some of its parked requests are gone."""
        if not model.parked:
            self.waiting.pop(model.name, None)

    def _forget(self) -> None:
        """Drops an eighth at once, so that the cost per name is low."""
        idle = [model for model in self.in_state(State.UNLOADED) if not model.pinned]
        idle.sort(
            key=lambda model: (-inf if model.called_at is None else model.called_at, model.name)
        )
        for model in idle[: KNOWN_MAX // 8]:
            del self.models[model.name]
