"""What the page at /metrics shows of a server's offline work."""

from __future__ import annotations

from penstock.metrics.counts.work_counts import WorkCounts


def shown(counts: WorkCounts, name: str) -> dict[tuple[str, ...], float]:
    """Values of the labels -> value, of one family."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in counts.families()
        if family.name == name
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
