"""The result of a run of regions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.sim.outcome import percentile


class RegionsOutcome:
    """Counts of one run, by the users' region where they are lists."""

    __slots__ = (
        "answered_at", "broken", "first_token_s", "found", "joined", "lost", "queued", "requests",
        "rerouted", "rerouted_s_max", "sent", "steps", "stopped", "tokens", "tokens_read", "told",
    )  # fmt: skip

    def __init__(self, regions: int) -> None:
        self.requests = 0
        #: s from a user's request until its first token is back
        self.first_token_s: list[list[float]] = [[] for _ in range(regions)]
        self.sent: Counter[str] = Counter()  #: "from > to: reason"
        self.told: Counter[str] = Counter()  #: held and refused requests, by reason
        self.broken = 0  #: answers that had begun when their region was lost
        self.lost = 0  #: requests that got no part of an answer
        #: requests that waited at the copy, because they were sent on an old report
        self.queued = 0
        self.rerouted = 0  #: requests sent again elsewhere
        self.rerouted_s_max = 0.0  #: from the loss of a region to the last of them, s
        self.answered_at = 0.0
        self.tokens = 0
        self.steps = 0
        self.tokens_read = 0  #: tokens of prompts that no cache had
        self.joined = 0  #: prompts that an engine has begun with
        self.found = 0  #: those of them whose prefix was in the engine's cache
        self.stopped = False  #: the run was ended because it can't keep the promise any more

    def p99_s(self) -> float:
        """P99 of the first token of all users; infinite if the run was stopped or lost requests."""
        return self.percentile_s(0.99)

    def percentile_s(self, fraction: float) -> float:
        if self.stopped or self.lost or self.broken:
            return float("inf")
        return percentile(sorted(each for one in self.first_token_s for each in one), fraction)

    def region_p99_s(self, region: int) -> float:
        return (
            float("inf") if self.stopped else percentile(sorted(self.first_token_s[region]), 0.99)
        )

    def found_share(self) -> float:
        """Share of prompts whose prefix was in the cache of the copy that they reached."""
        return self.found / self.joined if self.joined else 0.0

    def report(self) -> dict[str, Any]:
        """JSON-ready; names of keys have their units."""
        everyone = sorted(each for one in self.first_token_s for each in one)
        return {
            "requests": self.requests,
            "first_token_ms": {
                name: round(1000.0 * percentile(everyone, part), 1)
                for name, part in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
            },
            "sent": dict(sorted(self.sent.items())),
            "told": dict(sorted(self.told.items())),
            "prefix_found": round(self.found_share(), 3),
            "broken": self.broken,
            "lost": self.lost,
            "queued": self.queued,
            "rerouted": self.rerouted,
            "rerouted_s_max": round(self.rerouted_s_max, 3),
            "stopped": self.stopped,
        }
