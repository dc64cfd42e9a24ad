"""In how large batches a server answered, from its own metrics."""

from __future__ import annotations

import urllib.request

_METRIC = "penstock_batch_rows"


def batch_counts(base_url: str) -> tuple[float, float]:
    """Sum and count of `penstock_batch_rows` so far, over requests and endpoints."""
    with urllib.request.urlopen(f"{base_url}/metrics") as answer:
        return counts_in(answer.read().decode())


def counts_in(exposition: str) -> tuple[float, float]:
    """(sum, count) in the text of a `/metrics` page."""
    values = {"_sum": 0.0, "_count": 0.0}
    for line in exposition.splitlines():
        for suffix in values:
            if line.startswith(f"{_METRIC}{suffix}"):
                values[suffix] += float(line.rsplit(" ", 1)[1])
    return values["_sum"], values["_count"]


def mean_rows(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Mean rows of the batch that a request was answered in; 0 if none was."""
    return (after[0] - before[0]) / max(1.0, after[1] - before[1])
