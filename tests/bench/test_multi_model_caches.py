"""How turns of a trace are added up and compared."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from bench.multi_model_caches import compared, merged, textbook


def seen(reloads: int, p99_ms: float) -> dict[str, Any]:
    return {
        "reloads": reloads,
        "reloads_per_hour": reloads * 180,
        "hit_ratio": 0.5,
        "p50_ms": 10.0,
        "p99_ms": p99_ms,
    }


def test_turns_are_shown_by_their_mean_with_the_reloads_of_each() -> None:
    assert merged([seen(9, 100.0), seen(12, 200.0)]) == {
        "reloads": 10.5,
        "reloads_each": [9, 12],
        "reloads_per_hour": 1890,
        "hit_ratio": 0.5,
        "p50_ms": 10.0,
        "p99_ms": 150.0,
        "p99_ms_each": [100.0, 200.0],
    }


def test_reloads_are_judged_by_the_textbook_and_latency_by_the_best_of_the_peer() -> None:
    found = {
        "zipf-shifting": {
            "ours": merged([seen(90, 300.0), seen(95, 500.0)]),
            "Ray Serve, one": seen(185, 800.0),
            "Ray Serve, two": seen(200, 500.0),
        }
    }
    figures: dict[str, Any] = {}
    compared(found, {"zipf-shifting": 100}, figures)
    assert figures == {
        "reloads_zipf_shifting_vs_lru": 0.925,
        "reloads_zipf_shifting_vs_ray": 0.5,
        "p99_zipf_shifting_vs_ray": 0.8,
    }


def test_the_textbook_begins_each_trace_with_what_the_one_before_has_left() -> None:
    options = Namespace(models=4, rate=1.0, seconds=8.0)
    assert textbook(options, held=4) == {"zipf": 0, "zipf-shifting": 0, "cyclic": 0}
    assert textbook(options, held=1)["cyclic"] == 8
