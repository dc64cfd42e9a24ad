"""One target model on its host: its loaded parts, its waiting callers, and reports about it."""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Collection, Mapping
from typing import Any

from penstock.core.residency import Footprint, Residency
from penstock.errors import PenstockError
from penstock.instance.copy import Copy
from penstock.instance.loading.load import Prepared
from penstock.instance.loading.loaded import Loaded
from penstock.instance.models.counts import ModelCounts
from penstock.instance.models.loader import Brought
from penstock.instance.models.work_note import Mark
from penstock.instance.request import Request


@dataclasses.dataclass(slots=True, eq=False)
class HostedTarget:
    name: str
    number: int  #: number of its present copy on this host, for logs
    #: Requests that wait for it, oldest first; keyed by identity, because ids are unique per
    #: connection only.
    parked: dict[int, Request] = dataclasses.field(default_factory=dict)
    brought: Brought | None = None
    loaded: Loaded | None = None
    copy: Copy | None = None
    stamp: str | None = None  #: stamp of the content that was fetched or checked last
    digest: str = ""  #: digest of the content that was fetched last
    left_alone: bool = False  #: True: in quarantine, as long as its content is unchanged
    looked_at: float = 0.0  #: when the content was checked last
    looking: bool = False
    error: PenstockError | None = None  #: error of the last attempt to load it
    failed: bool = False  #: that attempt was final; its place is checked before the next
    #: Description from its last load, while its content is unchanged
    described: dict[str, Any] | None = None
    #: Target models of its steps, where it is an ensemble
    steps: tuple[str, ...] = ()
    rested: bool = True  #: True: memory that runs leave was given back since it last ran
    ran_at: float = 0.0  #: when its last request went to it
    taken: Footprint | None = None  #: memory at its last load, or as measured since
    hits: int = 0  #: requests that found it loaded
    misses: int = 0  #: requests that had to wait for a load
    requests: int = 0  #: requests that its former copies have answered
    batches: int = 0
    mark: Mark = dataclasses.field(default_factory=Mark)  #: its entry in the note of models at work
    counts: ModelCounts = dataclasses.field(default_factory=ModelCounts)  #: for metrics and cost

    @property
    def prepared(self) -> Prepared | None:
        return self.brought.model if self.brought is not None else None

    @property
    def run_us(self) -> int:
        """Run time of its present copy; 0 without one."""
        return self.copy.run_us if self.copy is not None else 0

    @property
    def requests_in_all(self) -> int:
        return self.requests + (self.copy.requests if self.copy is not None else 0)

    @property
    def batches_in_all(self) -> int:
        return self.batches + (self.copy.batches if self.copy is not None else 0)

    def keep_counts(self, copy: Copy) -> None:
        """Keeps the counts of a copy that is about to go."""
        self.requests += copy.requests
        self.batches += copy.batches

    @property
    def is_unused(self) -> bool:
        """Whether nothing of it is here and no caller waits for it."""
        return not (self.parked or self.prepared or self.copy or self.looking)

    @property
    def takes_requests(self) -> bool:
        return self.copy is not None and self.copy.state == "ready"

    # Reports

    def describe(self) -> dict[str, Any]:
        """`described` is None before its first load."""
        return {
            "loaded": self.copy is not None,
            "described": self.described,
            "requests": self.requests_in_all,
            "batches": self.batches_in_all,
        }

    async def explain(self) -> dict[str, Any]:
        told: dict[str, Any] = {
            "hits": self.hits,
            "misses": self.misses,
            "waiting": len(self.parked),
            "error": self.error.to_dict() if self.error is not None else None,
        }
        if self.copy is not None and self.loaded is not None:
            told["copy"] = self.copy.explain() | await self.loaded.explain()
        return told


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


def totals_of(targets: Collection[HostedTarget]) -> dict[str, Any]:
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
        "code_metrics": [
            {**series, "target_model": target.name}
            for target in targets
            if target.copy is not None
            for series in target.copy.status().get("code_metrics", ())
        ],
    }


def index_of(
    targets: Mapping[str, HostedTarget], residency: Residency, *, after: str, limit: int, now: float
) -> dict[str, Any]:
    known = (name for name, one in targets.items() if name > after and _is_known(one))
    rows = [
        _row(targets[name], residency.brief(name, now=now))
        for name in heapq.nsmallest(limit, known)
    ]
    return {"models": rows}


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
