"""A LoRA adapter as a copy of its own: its requests go to its base's copy, marked.

It shares the base copy's queue, slots and engine, so limits of the base hold for all its adapters
together. It counts its own unanswered requests, so that it can drain and end alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.instance.copy import Copy
from penstock.instance.engines.sequences import Sequences
from penstock.instance.request import Request


class AdapterCopy:
    """A `Copy` for connections and the server, and a `Rider` for its base."""

    def __init__(self, number: int, base: Copy, work: Sequences) -> None:
        """`work`: the base copy's."""
        self.number = number
        #: Unique like copies' numbers, so that no adapter is taken for an earlier one
        self.key = str(number)
        self.base = base
        self.requests = 0  #: requests that were answered
        self.turn: Callable[[float], None] = base.turn
        self._work = work
        self._ending = ""  #: draining | closed
        self._unanswered: dict[Request, None] = {}  #: in order of arrival
        self._on_idle: Callable[[], None] | None = None

    @property
    def state(self) -> str:
        return self._ending or self.base.state

    @property
    def unanswered(self) -> int:
        return len(self._unanswered)

    def accept(self, request: Request, now: float) -> None:
        if self._ending:
            self.base.turn_back(request, "draining")
            return
        request.by = self
        self.base.accept(request, now)

    def cancel(self, request: Request) -> None:
        self.base.cancel(request)

    # Events from the base

    def taken(self, request: Request) -> None:
        self._unanswered[request] = None

    def answered(self, request: Request) -> None:
        self._unanswered.pop(request, None)
        self.requests += 1
        if not self._unanswered and self._on_idle is not None:
            self._on_idle()

    # The end

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Accepts no more requests; calls `on_idle` when all accepted ones are answered (maybe at
        once)."""
        self._ending = "draining"
        self._on_idle = on_idle
        if not self._unanswered:
            on_idle()

    def close(self) -> None:
        """Gives back requests without a token; cancels other answers."""
        self._ending = "closed"
        self._on_idle = None
        self._work.end(list(self._unanswered))

    # Reports

    def status(self) -> dict[str, Any]:
        return {
            "copy": self.number,
            "state": self.state,
            "base_copy": self.base.number,
            "requests": self.requests,
            "unanswered": self.unanswered,
        }

    def explain(self) -> dict[str, Any]:
        return self.status()
