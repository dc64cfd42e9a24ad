"""The result of a run, of one endpoint or of regions: counted during it, reported after it."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999))


def percentile(ascending: list[float], fraction: float) -> float:
    """The smallest value that a share `fraction` of all do not exceed (nearest rank); 0 if
    empty."""
    if not ascending:
        return 0.0
    return ascending[max(0, math.ceil(fraction * len(ascending)) - 1)]


class RunOutcome:
    """Counts of one run. The twin writes them on its hot path, so they are plain fields."""

    def __init__(self, priorities: int) -> None:
        self.requests = 0
        self.events = 0  #: handled events: arrivals, answers, ended batches, timers, faults
        #: latencies of answers, by priority
        self.latencies_s: list[list[float]] = [[] for _ in range(priorities)]
        self.first_token_s: list[float] = []  #: time to first token, from the request's arrival
        self.tokens = 0  #: tokens of complete generated answers
        self.answered_at = 0.0  #: time of the last answer, s
        self.cancelled = 0
        self.retries = 0  #: requests sent again to another copy
        self.ends: Counter[str] = Counter()  #: "who: reason" of unanswered requests
        self.batches: Counter[int] = Counter()  #: batches by rows; an engine's steps by sequences
        self.reasons: Counter[str] = Counter()  #: for which batches left
        self.busy_s = 0.0  #: summed over lanes

    def report(self, *, lanes: int, length_s: float) -> dict[str, Any]:
        """JSON-ready; names of keys have their units."""
        everyone = sorted(latency for level in self.latencies_s for latency in level)
        span_s = max(length_s, self.answered_at)
        rows = sum(rows * count for rows, count in self.batches.items())
        batches = sum(self.batches.values())
        report: dict[str, Any] = {
            "requests": self.requests,
            "answered": len(everyone),
            "answered_rps": len(everyone) / span_s,
            "cancelled": self.cancelled,
            "retries": self.retries,
            "not_answered": dict(sorted(self.ends.items())),
            "latency_ms": _latency_ms(everyone),
            "batches": batches,
            "batch_rows_mean": rows / batches if batches else 0.0,
            "batch_rows": {str(size): count for size, count in sorted(self.batches.items())},
            "batch_reasons": dict(sorted(self.reasons.items())),
            "utilisation": self.busy_s / (lanes * span_s),
            "events": self.events,
        }
        if self.first_token_s:
            report["first_token_ms"] = _latency_ms(sorted(self.first_token_s))
            report["tokens_per_s"] = self.tokens / span_s
        if len(self.latencies_s) > 1:
            report["latency_ms_by_priority"] = [
                _latency_ms(sorted(level)) for level in self.latencies_s
            ]
        return report


def _latency_ms(ascending: list[float]) -> dict[str, float]:
    return {name: percentile(ascending, part) * 1000.0 for name, part in PERCENTILES}


class RegionsOutcome:
    """Counts of one run, by the users' region where they are lists."""

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
