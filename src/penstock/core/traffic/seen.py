"""What a region tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSeen:
    """One endpoint in one region, at one moment.

    `said_at` is on the listener's clock, never on the region's: requests sent until then are
    counted in what is told, later ones are not. That is the moment at which the news came, less
    the time that a message takes there and back.
    """

    name: str
    room: int  #: slots that are free now: a request would begin at once
    said_at: float  #: s
    waiting: int = 0  #: requests in the region's own queues
    in_flight: int = 0  #: requests, those that wait included
    p50_s: float = 0.0  #: of the time to the first byte, over the last seconds; 0: no answers
    p99_s: float = 0.0
    error_share: float = 0.0  #: of its answers, 0 to 1: failures that are not the caller's
    capacity_rps: float = 0.0  #: answers a second with all slots busy; 0: not known
    cache_tokens: int = 0  #: of prompts that its engines keep; 0: not known
