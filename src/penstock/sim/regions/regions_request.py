"""A request of a user of one region, wherever it is."""

from __future__ import annotations

from penstock.core.routing import CopyState
from penstock.sim.workload import Arrival


class RegionsRequest:
    """Written by the run and the senders."""

    __slots__ = ("arrival", "at", "attempt", "begun", "copy", "failed", "front", "prompt", "region")

    def __init__(self, arrival: Arrival, at: float, front: int, prompt: bytes) -> None:
        self.arrival = arrival
        self.at = at
        self.front = front  #: the region of its user
        self.prompt = prompt
        self.attempt = 0  #: by which copies know it
        self.region = -1  #: it was sent to
        self.copy: CopyState | None = None  #: chosen for it
        self.begun = False  #: its user has seen a token
        self.failed: tuple[int, ...] = ()  #: regions that did not answer it
