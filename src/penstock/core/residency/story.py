"""The last events of one target model: what, why, for which other model, at what cost."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

_EVENTS_KEPT = 16


class ResidencyEvent(NamedTuple):
    at: float
    what: str  #: prepare | load | loaded | unload | unloaded | refused | failed | crashed | ...
    why: str
    made_room_for: str = ""
    cost_s: float = 0.0  #: s that it took
    text: str = ""


class ResidencyStory:
    """The last events; when it is full, the oldest one is dropped."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: deque[ResidencyEvent] = deque(maxlen=_EVENTS_KEPT)

    def tell(
        self,
        what: str,
        why: str,
        *,
        now: float,
        made_room_for: str = "",
        cost_s: float = 0.0,
        text: str = "",
    ) -> None:
        """Records an event. Of refusals in a row for the same reason only the last is kept."""
        newest = self._events[-1] if self._events else None
        if newest is not None and what == "refused" == newest.what and newest.why == why:
            self._events.pop()
        self._events.append(ResidencyEvent(now, what, why, made_room_for, cost_s, text))

    def told(self, *, now: float) -> list[dict[str, Any]]:
        """The events, oldest first, JSON-ready; empty fields are left out."""
        return [
            {"ago_s": now - event.at, "what": event.what, "why": event.why}
            | ({"made_room_for": event.made_room_for} if event.made_room_for else {})
            | ({"cost_s": event.cost_s} if event.cost_s else {})
            | ({"message": event.text} if event.text else {})
            for event in self._events
        ]
