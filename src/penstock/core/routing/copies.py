"""What the router knows of one copy, and the results of `pick`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from penstock.core.deployment.deployment import Group


class ModelsObserved:
    """What a gateway knows of the target models of one host."""

    __slots__ = ("asked", "free_bytes", "loaded", "sent")

    def __init__(self) -> None:
        self.loaded: set[str] = set()  #: as reported by the host
        self.free_bytes = 0  #: free part of its budget for models, as reported by the host
        #: model -> when it was last requested here; only models not reported yet
        self.sent: dict[str, float] = {}
        self.asked: dict[str, float] = {}  #: model -> when an additional load was requested here

    def told(self, *, loaded: Collection[str], gone: Collection[str], free_bytes: int) -> None:
        """The host's report of changes."""
        self.loaded.update(loaded)
        self.loaded.difference_update(gone)
        for model in (*loaded, *gone):
            self.sent.pop(model, None)
        self.free_bytes = free_bytes


class CopyState:
    """One loaded copy as its gateway sees it. Only the router changes it; drivers read.

    `outstanding` is the number of reserved slots: requests sent to this copy whose last byte is not
    yet written. `others` is the number of requests that the copy has in flight for other gateways,
    as last reported by its instance; comparisons of copies add the two. With one gateway it is
    always 0.
    """

    __slots__ = (
        "_limit", "answers", "beside", "busy_since", "cache_bytes", "component", "copy",
        "cost", "draining", "ejected", "group", "healthy", "incoming", "instance_id", "kind",
        "life", "missed", "models", "others", "outstanding", "outstanding_max", "paused", "picked",
        "pool", "probed", "sequence_idle_s", "sessions", "took_s_max", "variant",
    )  # fmt: skip

    def __init__(
        self,
        copy: int,
        instance_id: str,
        variant: str,
        outstanding_max: int,
        component: str = "",
    ) -> None:
        self.copy = copy  #: unique in the deployment; the number that INVOKE frames name
        self.instance_id = instance_id
        self.join(Group(variant, component, incoming=False))
        self.outstanding = 0
        self.others = 0
        self._limit = outstanding_max  #: requests that the copy takes from all gateways together
        #: requests that this gateway may send: what others leave
        self.outstanding_max = outstanding_max
        self.healthy = True  #: a new copy gets routes once it is ready, so it starts healthy
        self.paused = False  #: takes no request now, but has lost nothing: picked last
        #: why it is ejected while others of its pool answer; empty: it is not
        self.ejected = ""
        self.probed = False  #: it was ejected, and now may have one request at a time
        self.answers = 0  #: answers so far, pieces of streams included
        self.missed = 0  #: requests since its last answer that timed out on it
        self.took_s_max = 0.0  #: s of the slowest answer since the last outlier check
        self.draining = False  #: no longer in the routes; it finishes its requests
        self.incoming = False  #: of what takes over: a generation, or a revision of a component
        self.picked = 0  #: running number of its last pick: the tie-break
        #: target models; None: it is no host of target models
        self.models: ModelsObserved | None = None
        #: it and all copies with the same queue and engine (a base and its adapters); empty: only
        #: itself
        self.beside: tuple[CopyState, ...] = ()
        self.kind = ""  #: instance type, where the copies of its pool are on several
        self.cost = 1.0  #: relative cost of a request on it; 1 on the fastest kind
        #: s, where its pool has several kinds: its last answer, or its first request after being
        #: idle
        self.busy_since = 0.0
        self.cache_bytes = 0  #: bytes of prompts that its engine caches; 0 = not known
        self.sessions = 0  #: sessions and sequences in this gateway's table that are bound to it
        #: s after which a sequence of its model has ended; 0: its model keeps none
        self.sequence_idle_s = 0.0
        self.life = 0  #: increases when it dies or leaves: earlier sessions and caches are lost

    def join(self, group: Group) -> None:
        """It is one of these copies from now on."""
        self.group = group
        self.variant = group.variant
        self.component = group.component  #: its inference component; empty: the variant's own model
        self.pool = group.pool  #: key of the recorder that counts its requests

    @property
    def limit(self) -> int:
        """Requests that the copy takes from all gateways."""
        return self._limit

    def bound(self, *, limit: int | None = None, others: int | None = None) -> None:
        """Sets the number of requests that the copy takes, or that others have there."""
        self._limit = self._limit if limit is None else limit
        self.others = self.others if others is None else others
        room = self.room
        self.outstanding_max = min(1, room) if self.probed else room

    @property
    def room(self) -> int:
        """Requests that others leave room for, even while it is probed."""
        return max(0, self._limit - self.others)

    def judge(self, ejected: str = "", *, probed: bool = False) -> None:
        """Sets whether it is ejected, probed, or neither."""
        self.ejected, self.probed = ejected, probed
        self.bound()

    def heard(self, took_s: float = 0.0) -> None:
        """It has answered, or a piece of an answer has come. `took_s`: s since the request came,
        where this says something about the copy."""
        self.answers += 1
        self.missed = 0
        if took_s > self.took_s_max:  # noqa: PLR1730 - for each answer: a call of max costs more
            self.took_s_max = took_s

    def __repr__(self) -> str:
        marks = "" if self.healthy else " unhealthy"
        marks += " paused" if self.paused else ""
        marks += f" {self.ejected}" if self.ejected else ""
        marks += " draining" if self.draining else ""
        marks += " incoming" if self.group.incoming else ""
        whose = f"{self.variant}/{self.component}" if self.component else self.variant
        return f"<copy {self.copy} of {whose}: {self.outstanding} outstanding{marks}>"


class Routed(NamedTuple):
    """A copy with a reserved slot: send the request, and `release(state)` exactly once."""

    state: CopyState
    variant: str
    #: only-copy | least-outstanding | least-wait | random | round-robin | prefix-match |
    #: prefix-spill | session | retry | rebalanced | paused-copy | model-loaded | model-loading |
    #: model-cold | fewest-sequences
    reason: str
    outstanding: int  #: requests of this gateway on that copy, this one included
    #: a host that should load the hot target model as well; None: there is none
    helper: CopyState | None = None


class NoRoute(NamedTuple):
    """Nothing was reserved: refuse the request."""

    #: unknown-variant | unknown-component | component-required | component-not-allowed | no-copies
    #: | no-healthy-copy | all-copies-full | session-unknown | session-lost | sessions-full
    #: | target-model-required | target-model-not-allowed | sequence-not-started | sequence-lost
    reason: str
    retry_after_s: float | None  #: None: the same request cannot pass later
