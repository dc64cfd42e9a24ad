"""Outcomes: percentiles by nearest rank, and a report whose keys carry their units."""

from __future__ import annotations

from penstock.sim.outcome import RunOutcome, percentile


def test_a_percentile_is_a_value_that_occurred() -> None:
    values = [float(value) for value in range(1, 1001)]
    assert [percentile(values, part) for part in (0.5, 0.9, 0.99, 0.999, 1.0)] == [
        500.0, 900.0, 990.0, 999.0, 1000.0
    ]  # fmt: skip
    assert percentile([7.0], 0.01) == 7.0
    assert percentile([], 0.5) == 0.0


def test_a_report_counts_everything_once() -> None:
    outcome = RunOutcome(priorities=2)
    outcome.requests = 5
    outcome.latencies_s[0] += [0.25, 0.5]
    outcome.latencies_s[1] += [1.0]
    outcome.answered_at = 4.0
    outcome.cancelled = 1
    outcome.ends["router: no-copies"] += 1
    outcome.batches.update({1: 1, 2: 1})
    outcome.reasons.update({"lane-free": 2})
    outcome.busy_s = 2.0
    outcome.events = 9
    first = {"p50": 250.0, "p90": 500.0, "p99": 500.0, "p99_9": 500.0}
    assert outcome.report(lanes=2, length_s=3.0) == {
        "requests": 5,
        "answered": 3,
        "answered_rps": 0.75,
        "cancelled": 1,
        "retries": 0,
        "not_answered": {"router: no-copies": 1},
        "latency_ms": {"p50": 500.0, "p90": 1000.0, "p99": 1000.0, "p99_9": 1000.0},
        "latency_ms_by_priority": [first, dict.fromkeys(first, 1000.0)],
        "batches": 2,
        "batch_rows_mean": 1.5,
        "batch_rows": {"1": 1, "2": 1},
        "batch_reasons": {"lane-free": 2},
        "utilisation": 0.25,
        "events": 9,
    }


def test_a_run_without_requests_has_a_report() -> None:
    report = RunOutcome(priorities=1).report(lanes=1, length_s=1.0)
    assert (report["answered_rps"], report["batch_rows_mean"], report["utilisation"]) == (0, 0, 0)
    assert "latency_ms_by_priority" not in report
