"""The statistics extension's fields of one model.

All that Triton gives is there. Some of it is not measured here, and 0 or empty: the times of
`compute_input` and `compute_output`, which are part of `compute_infer`, `response_stats` and
`memory_usage`. Requests that were refused or cancelled are failures, as in Triton.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.metrics.counts.inference_counts import InferenceCounts
from penstock.metrics.models.model_delta import ModelDelta
from penstock.metrics.utilization.instances import CacheCounts

_NS_PER_S: Final = 1e9
_MS_PER_S: Final = 1e3


def statistics_of(
    name: str, version: str, counts: InferenceCounts, cache: CacheCounts | None
) -> dict[str, Any]:
    """`cache`: of its response cache; None: it has none."""
    caught = cache or CacheCounts()
    return {
        "name": name,
        "version": version,
        "last_inference": int(counts.ran_at * _MS_PER_S),
        "inference_count": counts.inferences,
        "execution_count": counts.executions,
        "inference_stats": {
            "success": _duration(counts.succeeded, counts.succeeded_s),
            "fail": _duration(sum(counts.failed.values()), counts.failed_s),
            "queue": _duration(counts.ran, counts.queue_s),
            "compute_input": _duration(counts.ran),
            "compute_infer": _duration(counts.ran, counts.run_s),
            "compute_output": _duration(counts.ran),
            "cache_hit": _duration(caught.hits, caught.hit_s),
            "cache_miss": _duration(caught.misses, caught.miss_s),
        },
        "response_stats": {},
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": _duration(round(executions)),
                "compute_infer": _duration(round(executions), lanes_s),
                "compute_output": _duration(round(executions)),
            }
            for rows, (executions, lanes_s) in sorted(counts.runs.items())
        ],
        "memory_usage": [],
    }


def target_statistics(row: dict[str, Any], delta: ModelDelta) -> dict[str, Any]:
    """Those of a target model: its hosts' counts in `row`, and what they have reported of it."""
    latency_s = delta.latency_us.total / 1e6 if delta.latency_us is not None else 0.0
    counts = InferenceCounts(
        succeeded=delta.answered,
        succeeded_s=latency_s,
        ran=delta.answered - delta.cache_hits,
        queue_s=delta.queue_s,
        run_s=delta.model_s,
    )
    counts.failed["BACKEND"] = delta.model_errors
    counts.failed["OTHER"] = delta.other_errors
    cache = CacheCounts(delta.cache_hits, delta.cache_misses)
    # The row is newer, and counts a request once, however many rows it has.
    inferences = max(int(row["inference_count"]), round(delta.inferences))
    told = statistics_of(row["name"], row["version"], counts, cache)
    return {**told, **row, "inference_count": inferences}


def _duration(count: int, seconds: float = 0.0) -> dict[str, int]:
    return {"count": count, "ns": int(seconds * _NS_PER_S)}
