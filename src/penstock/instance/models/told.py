"""One target model of a host, as the list of them shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.instance.models.target import HostedTarget

LOADED, LOADING, UNLOADED, FAILED = "loaded", "loading", "unloaded", "failed"

#: States of the residency -> what they are to whoever only wants to know whether it answers.
_STATES = {
    "queued": LOADING,
    "preparing": LOADING,
    "prepared": LOADING,
    "loading": LOADING,
    "leaving": "unloading",
}
#: A name under which there is nothing is no model of this host.
_NO_MODEL = ("target-model-not-found", "target-model-invalid")


def is_known(target: HostedTarget) -> bool:
    if target.copy is not None or target.parked or target.error is None:
        return True
    return target.error.code not in _NO_MODEL


def row(target: HostedTarget, brief: Mapping[str, Any]) -> dict[str, Any]:
    """JSON-ready. `brief`: what the residency says of it."""
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
