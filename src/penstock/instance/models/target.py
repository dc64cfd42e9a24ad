"""One target model on its host: its loaded parts, and its waiting callers."""

from __future__ import annotations

import dataclasses
from typing import Any

from penstock.core.residency import Footprint
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
