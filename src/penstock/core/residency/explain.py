"""A host's state in words and figures, and whether it contradicts itself."""

from __future__ import annotations

from math import inf
from typing import Any

from penstock.core.residency.account import Account
from penstock.core.residency.evictor import Evictor, may_go
from penstock.core.residency.loads import Loads
from penstock.core.residency.model import State, TargetModel
from penstock.core.residency.table import Table

_RIVALS = 3  #: shown: those that would go first


def host(table: Table, account: Account, loads: Loads) -> dict[str, Any]:
    known = table.models.values()
    return {
        "memory": account.snapshot(),
        "loaded": sorted(table.recency),
        "loading": sorted(model.name for model in known if model.state is State.LOADING),
        "leaving": sorted(model.name for model in known if model.state is State.LEAVING),
        "queue": [model.name for model in loads.in_order()],
        "waiting": {name: len(model.parked) for name, model in sorted(table.waiting.items())},
        "known": len(table.models),
        "loads": sum(model.loads for model in known),
        "hits": sum(model.hits for model in known),
        "misses": sum(model.misses for model in known),
        "eviction": table.contest.snapshot(),
    }


def model(table: Table, evictor: Evictor, name: str, *, now: float) -> dict[str, Any]:
    known = table.models.get(name)
    if known is None:
        return {"model": name, "state": "unknown", "story": []}
    history = known.history
    return {
        "model": name,
        "state": "draining" if known.drains else str(known.state),
        "loaded_because": known.load_reason if known.state is State.LOADED else "",
        "drains_because": known.drains,
        "unloaded_because": "" if known.state is State.LOADED else known.unload_reason,
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
        "called_ago_s": None if history.last is None else now - history.last,
        "calls_per_hour": _calls_per_hour(table, known, now),
        "regular_gap_s": history.period_s or None,
        "value": evictor.candidate(known, now=now).loss if known.size else None,
        "value_of": evictor.reason,
        "rivals": _rivals(table, evictor, known, now),
        "refused_because": known.failed_reason if now < known.failed_until else "",
        "refused_for_s": _refused_for_s(known, now),
        "message": known.failed_text if now < known.failed_until else "",
        "story": known.story.told(now=now),
    }


def brief(table: Table, name: str, *, now: float) -> dict[str, Any]:
    """A line of a list of thousands; looks at no other model."""
    known = table.models.get(name)
    if known is None:
        return {"state": "unknown", "pinned": False, "called_ago_s": None, "last_event": None}
    last = known.history.last
    events = known.story.told(now=now)
    return {
        "state": "draining" if known.drains else str(known.state),
        "pinned": known.pinned,
        "called_ago_s": None if last is None else now - last,
        "last_event": events[-1] if events else None,
    }


def _footprint(known: TargetModel) -> dict[str, Any] | None:
    size = known.size
    if size is None:
        return None
    measured = known.taken is not None or known.need_measured
    return size.snapshot() | {"basis": "measured" if measured else "estimated"}


def _calls_per_hour(table: Table, known: TargetModel, now: float) -> float:
    if known.history.last is None:
        return 0.0
    return 3600.0 / known.history.expected_wait_s(now, table.population)


def _refused_for_s(known: TargetModel, now: float) -> float | None:
    """None: until its artifact changes."""
    return None if known.failed_until == inf else max(0.0, known.failed_until - now)


def _rivals(table: Table, evictor: Evictor, known: TargetModel, now: float) -> list[dict[str, Any]]:
    others = [
        evictor.candidate(other, now=now)
        for other in table.recency.values()
        if other is not known and may_go(other)
    ]
    others.sort(key=lambda one: (one.loss, one.last, one.name))
    return [{"model": one.name, "value": one.loss} for one in others[:_RIVALS]]


def check(table: Table, account: Account, loads: Loads) -> None:
    """Raises AssertionError if the state contradicts itself."""
    account.check_invariants()
    states: dict[State, set[str]] = {state: set() for state in State}
    for name, known in table.models.items():
        known.check_invariants()
        states[known.state].add(name)
    queued = states[State.QUEUED] | states[State.PREPARING] | states[State.PREPARED]
    assert set(loads.queue) == queued, "the queue is not what waits in it"
    assert loads.preparing == len(states[State.PREPARING]), "preparations were miscounted"
    assert len(loads.running) == len(states[State.LOADING]), "loads were miscounted"
    assert set(table.recency) == states[State.LOADED], "loaded models were miscounted"
    assert table.ready <= states[State.LOADED], "a model takes requests and is not loaded"
    there = states[State.LOADED] | states[State.LEAVING]
    assert account.charged() == there, "memory is charged to others than those who hold it"
    parked = {name for name, known in table.models.items() if known.parked}
    assert set(table.waiting) == parked, "waiting requests were miscounted"
