"""One target model on its host: what is loaded of it, and who waits for it."""

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
    number: int  #: of its copies on this host, for logs
    #: requests that wait for it, oldest first; by identity: ids are unique per connection only
    parked: dict[int, Request] = dataclasses.field(default_factory=dict)
    brought: Brought | None = None
    loaded: Loaded | None = None
    copy: Copy | None = None
    stamp: str | None = None  #: of the content that was fetched last, or was looked at last
    digest: str = ""  #: of the content that was fetched last
    left_alone: bool = False  #: in quarantine, as long as its content is that
    looked_at: float = 0.0  #: when that was
    looking: bool = False
    error: PenstockError | None = None  #: of the last attempt to load it
    failed: bool = False  #: that attempt is the last word; its place is looked at before the next
    described: dict[str, Any] | None = None  #: when it was loaded last, while its content is that
    rested: bool = True  #: since it last ran, what runs leave behind was given back
    ran_at: float = 0.0  #: when a request last went to it
    taken: Footprint | None = None  #: when it was loaded last, as far as known now
    hits: int = 0  #: requests that found it loaded
    misses: int = 0  #: requests that had to wait for a load
    requests: int = 0  #: answered by copies of it that are gone
    batches: int = 0
    mark: Mark = dataclasses.field(default_factory=Mark)  #: in the note of who is at work
    counts: ModelCounts = dataclasses.field(default_factory=ModelCounts)  #: for metrics and cost

    @property
    def prepared(self) -> Prepared | None:
        return self.brought.model if self.brought is not None else None

    @property
    def run_us(self) -> int:
        """Of its present copy, as long as it has one."""
        return self.copy.run_us if self.copy is not None else 0

    @property
    def requests_in_all(self) -> int:
        return self.requests + (self.copy.requests if self.copy is not None else 0)

    @property
    def batches_in_all(self) -> int:
        return self.batches + (self.copy.batches if self.copy is not None else 0)

    def keep_counts(self, copy: Copy) -> None:
        """Of a copy that is about to go."""
        self.requests += copy.requests
        self.batches += copy.batches

    @property
    def is_unused(self) -> bool:
        """Nothing of it is here, and nobody waits for it."""
        return not (self.parked or self.prepared or self.copy or self.looking)

    @property
    def takes_requests(self) -> bool:
        return self.copy is not None and self.copy.state == "ready"
