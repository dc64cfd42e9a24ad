"""Reports of a host about its target models: totals, an index, and details of one."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import Any

from penstock.core.residency import Residency
from penstock.instance.models.target import HostedTarget

LOADED, LOADING, UNLOADED, FAILED = "loaded", "loading", "unloaded", "failed"

#: States of the residency -> states for callers that only want to know whether it answers.
_STATES = {
    "queued": LOADING,
    "preparing": LOADING,
    "prepared": LOADING,
    "loading": LOADING,
    "leaving": "unloading",
}
#: With these errors there is nothing under the name, so it is no model of this host.
_NO_MODEL = ("target-model-not-found", "target-model-invalid")


def totals(targets: Collection[HostedTarget]) -> dict[str, Any]:
    """Totals of all models, in the form of a copy's report."""
    copies = [target.copy for target in targets if target.copy is not None]
    return {
        "queue_rows": sum(len(target.parked) for target in targets)
        + sum(copy.driver.queue_rows for copy in copies),
        "running": sum(copy.driver.running for copy in copies),
        "batches": sum(target.batches_in_all for target in targets),
        "requests": sum(target.requests_in_all for target in targets),
        "models_loaded": len(copies),
        "model_hits": sum(target.hits for target in targets),
        "model_misses": sum(target.misses for target in targets),
        "digests": [target.prepared.digest for target in targets if target.prepared],
    }


def index(
    targets: Mapping[str, HostedTarget], residency: Residency, *, after: str, limit: int, now: float
) -> dict[str, Any]:
    known = (name for name, one in targets.items() if name > after and _is_known(one))
    rows = [
        _row(targets[name], residency.brief(name, now=now))
        for name in heapq.nsmallest(limit, known)
    ]
    return {"models": rows}


def described(target: HostedTarget | None) -> dict[str, Any]:
    """`described` is None before its first load."""
    if target is None:
        return {"loaded": False, "described": None, "requests": 0, "batches": 0}
    return {
        "loaded": target.copy is not None,
        "described": target.described,
        "requests": target.requests_in_all,
        "batches": target.batches_in_all,
    }


async def explained(target: HostedTarget | None, residency: dict[str, Any]) -> dict[str, Any]:
    """`residency`: its details of the model."""
    told: dict[str, Any] = {"residency": residency}
    if target is None:
        return told
    told |= {
        "hits": target.hits,
        "misses": target.misses,
        "waiting": len(target.parked),
        "error": target.error.to_dict() if target.error is not None else None,
    }
    if target.copy is not None and target.loaded is not None:
        told["copy"] = target.copy.explain() | await target.loaded.explain()
    return told


def _is_known(target: HostedTarget) -> bool:
    if target.copy is not None or target.parked or target.error is None:
        return True
    return target.error.code not in _NO_MODEL


def _row(target: HostedTarget, brief: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the list of models, JSON-ready. `brief`: the residency's data about it."""
    copy = target.copy
    return {
        "model": target.name,
        "state": _state(target, brief),
        "taken": target.taken.snapshot() if copy is not None and target.taken else None,
        "hits": target.hits,
        "misses": target.misses,
        "waiting": len(target.parked),
        "unanswered": copy.unanswered if copy is not None else 0,
        "error": target.error.to_dict() if target.error is not None else None,
        **{name: brief[name] for name in ("pinned", "called_ago_s", "last_event")},
    }


def _state(target: HostedTarget, brief: Mapping[str, Any]) -> str:
    if target.copy is not None:
        return LOADED
    state = _STATES.get(str(brief.get("state", "")))
    if state is not None:
        return state
    return FAILED if target.error is not None else UNLOADED
