"""A host's state in words and figures, and a check that it is consistent."""

from __future__ import annotations

from itertools import islice
from math import inf
from typing import Any

from penstock.core.residency.account import Account
from penstock.core.residency.evictor import Evictor
from penstock.core.residency.loads import Loads
from penstock.core.residency.model import RESIDENT, Failure, State, TargetModel
from penstock.core.residency.table import Table

_RIVALS = 3  #: number of models shown that would be evicted first


def host(table: Table, account: Account, loads: Loads) -> dict[str, Any]:
    known = table.models.values()
    return {
        "memory": account.snapshot(),
        "loaded": sorted(table.resident),
        "loading": sorted(table.loading),
        "leaving": sorted(model.name for model in table.in_state(State.LEAVING)),
        "queue": [model.name for model in loads.in_order()],
        "waiting": {name: len(model.parked) for name, model in sorted(table.waiting.items())},
        "known": len(table.models),
        "loads": sum(model.loads for model in known),
        "hits": sum(model.hits for model in known),
        "misses": sum(model.misses for model in known),
    }


def model(table: Table, evictor: Evictor, name: str, *, now: float) -> dict[str, Any]:
    known = table.models.get(name)
    if known is None:
        return {"model": name, "state": "unknown", "story": []}
    loaded, draining = known.state in RESIDENT, known.state is State.DRAINING
    failure = known.refused(now)
    stays_s = max(0.0, evictor.stays_until(known) - now) if loaded else 0.0
    return {
        "model": name,
        "state": str(known.state),
        "loaded_because": known.load_reason if loaded else "",
        "drains_because": known.leaves_because if draining else "",
        "unloaded_because": "" if loaded else known.leaves_because,
        "pinned": known.pinned,
        "busy": known.busy,
        "waiting": len(known.parked),
        "artifact": known.artifact,
        "footprint": _footprint(known),
        "load_s": known.load_s,
        "prepare_s": known.prepare_s,
        "loads": known.loads,
        "evictions": known.evictions,
        "hits": known.hits,
        "misses": known.misses,
        "called_ago_s": _called_ago_s(known, now),
        "minimum_residency_left_s": stays_s,
        "rivals": _rivals(evictor, known, now),
        "refused_because": failure.reason if failure else "",
        "refused_for_s": _refused_for_s(failure, now),
        "message": failure.message if failure else "",
        "story": known.story.told(now=now),
    }


def brief(table: Table, name: str, *, now: float) -> dict[str, Any]:
    """One line of a list of thousands; looks at no other model."""
    known = table.models.get(name)
    if known is None:
        return {"state": "unknown", "pinned": False, "called_ago_s": None, "last_event": None}
    events = known.story.told(now=now)
    return {
        "state": str(known.state),
        "pinned": known.pinned,
        "called_ago_s": _called_ago_s(known, now),
        "last_event": events[-1] if events else None,
    }


def _footprint(known: TargetModel) -> dict[str, Any] | None:
    size = known.size
    if size is None:
        return None
    measured = known.taken is not None or known.need_measured
    return size.snapshot() | {"basis": "measured" if measured else "estimated"}


def _called_ago_s(known: TargetModel, now: float) -> float | None:
    return None if known.called_at is None else now - known.called_at


def _refused_for_s(failure: Failure | None, now: float) -> float | None:
    """s until requests are accepted again; None: until its artifact changes."""
    if failure is None:
        return 0.0
    return None if failure.until == inf else failure.until - now


def _rivals(evictor: Evictor, known: TargetModel, now: float) -> list[dict[str, Any]]:
    first = islice(evictor.first_to_go(now=now, besides=known), _RIVALS)
    return [{"model": one.name, "called_ago_s": _called_ago_s(one, now)} for one in first]


def check(table: Table, account: Account) -> None:
    """Raises AssertionError if the state contradicts itself."""
    account.check_invariants()
    states: dict[State, set[str]] = {state: set() for state in State}
    for name, known in table.models.items():
        known.check_invariants()
        states[known.state].add(name)
    queued = states[State.QUEUED] | states[State.PREPARING] | states[State.PREPARED]
    assert set(table.queue) == queued, "the queue is not what waits in it"
    assert set(table.loading) == states[State.LOADING], "loads were miscounted"
    resident = states[State.LOADED] | states[State.DRAINING]
    assert set(table.resident) == resident, "loaded models were miscounted"
    there = resident | states[State.LEAVING]
    assert account.charged() == there, "memory is charged to others than those who hold it"
    parked = {name for name, known in table.models.items() if known.parked}
    assert set(table.waiting) == parked, "waiting requests were miscounted"
