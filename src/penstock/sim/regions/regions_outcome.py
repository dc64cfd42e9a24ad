"""What a run of regions came to."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.sim.outcome import percentile


class RegionsOutcome:
    """Counts of one run, by the region of the users."""

    __slots__ = (
        "answered_at", "broken", "first_token_s", "found", "joined", "lost", "queued", "requests",
        "rerouted", "rerouted_s_max", "sent", "steps", "stopped", "tokens", "tokens_read", "told",
    )  # fmt: skip

    def __init__(self, regions: int) -> None:
        self.requests = 0
        #: since the user asked until its first token is back with it, s
        self.first_token_s: list[list[float]] = [[] for _ in range(regions)]
        self.sent: Counter[str] = Counter()  #: "from > to: reason"
        self.told: Counter[str] = Counter()  #: held and refused, by reason
        self.broken = 0  #: answers that had begun when their region was lost
        self.lost = 0  #: requests that got no answer, not even a part
        self.queued = 0  #: had to wait at the copy: sent on news that was too old
        self.rerouted = 0  #: sent again elsewhere
        self.rerouted_s_max = 0.0  #: between the loss of a region and the last of them
        self.answered_at = 0.0
        self.tokens = 0
        self.steps = 0  #: of engines
        self.tokens_read = 0  #: of prompts, those that no cache had
        self.joined = 0  #: prompts that an engine has begun with
        self.found = 0  #: of these, whose prefix was in its cache
        self.stopped = False  #: the promise can't be kept any more, so the run was ended

    def p99_s(self) -> float:
        """Of all users; infinite where the run was stopped or requests were lost."""
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
        """Of prompts, those that found their prefix in the cache of the copy that they came to."""
        return self.found / self.joined if self.joined else 0.0

    def report(self) -> dict[str, Any]:
        """JSON-ready; keys carry their units."""
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
