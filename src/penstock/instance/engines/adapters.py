"""An adapter as a copy of its own to everybody outside: its requests are its base's, marked.

It shares the base copy's queue, slots and engine, so what bounds the base bounds all its adapters
together. It counts what is unanswered of its own, so that it drains and ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.instance.copy import Copy
from penstock.instance.engines.sequences import Sequences
from penstock.instance.request import Request


class AdapterCopy:
    """As `Copy`, for connections and the server. A `Rider` to its base."""

    def __init__(self, number: int, base: Copy, work: Sequences) -> None:
        """`work`: the base copy's."""
        self.number = number
        self.key = str(number)  #: unique as copies are, so no adapter is taken for one before
        self.base = base
        self.requests = 0  #: answered
        self.turn: Callable[[float], None] = base.turn
        self._work = work
        self._ending = ""  #: draining | closed
        self._unanswered: dict[Request, None] = {}  #: in the order in which they came
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

    # what the base tells

    def taken(self, request: Request) -> None:
        self._unanswered[request] = None

    def answered(self, request: Request) -> None:
        self._unanswered.pop(request, None)
        self.requests += 1
        if not self._unanswered and self._on_idle is not None:
            self._on_idle()

    # the end

    def drain(self, on_idle: Callable[[], None]) -> None:
        """Takes no more; `on_idle` is called when everything taken is answered (maybe at once)."""
        self._ending = "draining"
        self._on_idle = on_idle
        if not self._unanswered:
            on_idle()

    def close(self) -> None:
        """Whoever has no token yet is given back, other answers are broken off."""
        self._ending = "closed"
        self._on_idle = None
        self._work.end(list(self._unanswered))

    # what is told

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
