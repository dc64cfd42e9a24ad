"""What a host tells of its target models: totals, an index, and the story of one."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from typing import Any

from penstock.core.residency import Residency
from penstock.instance.models.target import HostedTarget
from penstock.instance.models.told import is_known, row


def totals(targets: Collection[HostedTarget]) -> dict[str, Any]:
    """Of all models together, as a copy tells them of itself."""
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
    known = (name for name, one in targets.items() if name > after and is_known(one))
    rows = [
        row(targets[name], residency.brief(name, now=now)) for name in heapq.nsmallest(limit, known)
    ]
    return {"models": rows}


def described(target: HostedTarget | None) -> dict[str, Any]:
    """`described` is None before it was first loaded."""
    if target is None:
        return {"loaded": False, "described": None, "requests": 0, "batches": 0}
    return {
        "loaded": target.copy is not None,
        "described": target.described,
        "requests": target.requests_in_all,
        "batches": target.batches_in_all,
    }


async def explained(target: HostedTarget | None, residency: dict[str, Any]) -> dict[str, Any]:
    """`residency`: its story of the model."""
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
