"""What the router knows of one copy, and what it answers to `pick`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class ModelsObserved:
    """What a gateway knows of the target models of one host."""

    __slots__ = ("asked", "free_bytes", "loaded", "sent")

    def __init__(self) -> None:
        self.loaded: set[str] = set()  #: as the host says
        self.free_bytes = 0  #: of its budget for models, as the host says
        self.sent: dict[str, float] = {}  #: requested here, not heard of yet -> when
        self.asked: dict[str, float] = {}  #: to be loaded here as well -> when

    def told(self, *, loaded: Collection[str], gone: Collection[str], free_bytes: int) -> None:
        """The host's word: what has changed."""
        self.loaded.update(loaded)
        self.loaded.difference_update(gone)
        for model in (*loaded, *gone):
            self.sent.pop(model, None)
        self.free_bytes = free_bytes


class CopyState:
    """One loaded copy as its gateway sees it. The router alone changes it; drivers read.

    `outstanding` is the reserved slots: requests sent to this copy whose last byte is not yet
    written. `others` is what the copy has in flight for other gateways, as its instance said last;
    whoever compares copies adds the two. With one gateway it is 0 for ever.
    """

    __slots__ = (
        "_limit", "answers", "beside", "busy_since", "cache_bytes", "component", "copy",
        "cost", "draining", "ejected", "healthy", "instance_id", "kind", "life", "missed",
        "models", "others", "outstanding", "outstanding_max", "paused", "picked", "pool", "probed",
        "took_s_max", "variant",
    )  # fmt: skip

    def __init__(
        self,
        copy: int,
        instance_id: str,
        variant: str,
        outstanding_max: int,
        component: str = "",
    ) -> None:
        self.copy = copy  #: unique in the deployment; what INVOKE frames name
        self.instance_id = instance_id
        self.variant = variant
        self.component = component  #: that it is a copy of; none: of the variant's own model
        self.pool = component or variant  #: by which metrics tell what it is a copy of
        self.outstanding = 0
        self.others = 0
        self._limit = outstanding_max  #: of the copy, for all gateways together
        self.outstanding_max = outstanding_max  #: for this one: what others leave of it
        self.healthy = True  #: a new copy is routed to once it is ready, so it starts healthy
        self.paused = False  #: takes no request right now, and has lost nothing: picked last
        #: why it is left out while others of its pool answer; none: it is not
        self.ejected = ""
        self.probed = False  #: it was, and may have one request at a time
        self.answers = 0  #: so far, pieces of streams included
        self.missed = 0  #: requests that ran out of time on it since its last answer
        self.took_s_max = 0.0  #: the slowest answer since outliers were looked for last
        self.draining = False  #: no longer in the routes; finishes what it has
        self.picked = 0  #: running number of its last pick: the tie-break
        self.models: ModelsObserved | None = None  #: of a host of target models
        #: it and all that share its queue and engine: a base and its adapters; none: it alone
        self.beside: tuple[CopyState, ...] = ()
        self.kind = ""  #: of its instance, where copies of its pool are on several kinds
        self.cost = 1.0  #: of a request on it; 1 on the fastest kind
        self.busy_since = 0.0  #: of such a copy: its last answer, or its first request after none
        self.cache_bytes = 0  #: of prompts that its engine keeps; 0 = it does not say
        self.life = 0  #: raised when it dies or leaves: sessions and caches of before are lost

    @property
    def limit(self) -> int:
        """Requests that the copy takes in all."""
        return self._limit

    def bound(self, *, limit: int | None = None, others: int | None = None) -> None:
        """The copy takes another number of requests, or others have another number there."""
        self._limit = self._limit if limit is None else limit
        self.others = self.others if others is None else others
        room = self.room
        self.outstanding_max = min(1, room) if self.probed else room

    @property
    def room(self) -> int:
        """What others leave of it, probed or not."""
        return max(0, self._limit - self.others)

    def judge(self, ejected: str = "", *, probed: bool = False) -> None:
        """It is left out, probed, or neither."""
        self.ejected, self.probed = ejected, probed
        self.bound()

    def heard(self, took_s: float = 0.0) -> None:
        """It has answered, or a piece of an answer has come. `took_s`: from the request's coming,
        where that says something of the copy."""
        self.answers += 1
        self.missed = 0
        if took_s > self.took_s_max:  # noqa: PLR1730 - for each answer: a call of max costs more
            self.took_s_max = took_s

    def __repr__(self) -> str:
        marks = "" if self.healthy else " unhealthy"
        marks += " paused" if self.paused else ""
        marks += f" {self.ejected}" if self.ejected else ""
        marks += " draining" if self.draining else ""
        whose = f"{self.variant}/{self.component}" if self.component else self.variant
        return f"<copy {self.copy} of {whose}: {self.outstanding} outstanding{marks}>"


class Routed(NamedTuple):
    """A copy whose slot is now reserved: send the request, and `release(state)` exactly once."""

    state: CopyState
    variant: str
    #: only-copy | least-outstanding | least-wait | random | round-robin | prefix-match |
    #: prefix-spill | session | retry | rebalanced | paused-copy | model-loaded | model-loading |
    #: model-cold
    reason: str
    outstanding: int  #: of this gateway on that copy, this request included
    helper: CopyState | None = None  #: is to load the target model as well: it is hot


class NoRoute(NamedTuple):
    """Nothing was reserved: refuse the request."""

    #: unknown-variant | unknown-component | component-required | component-not-allowed | no-copies
    #: | no-healthy-copy | all-copies-full | session-unknown | session-lost | sessions-full
    #: | target-model-required | target-model-not-allowed
    reason: str
    retry_after_s: float | None  #: None: the same request cannot pass later
