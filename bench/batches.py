"""In how large batches a server answered, from its own metrics."""

from __future__ import annotations

import time
import urllib.request

_METRIC = "penstock_batch_rows"
_REPORT_S = 0.7  #: instances tell their gateway twice a second
_SETTLE_S_MAX = 60.0


def batch_counts(base_url: str) -> tuple[float, float]:
    """Sum and count of `penstock_batch_rows` so far, over requests and endpoints.

    Waits until all that was asked before is answered and counted: a generator that stops leaves
    requests behind, which would be taken for those of the next run. TimeoutError if it never ends.
    """
    deadline = time.monotonic() + _SETTLE_S_MAX
    before, since = None, 0.0
    while True:
        with urllib.request.urlopen(f"{base_url}/metrics") as answer:
            page = answer.read().decode()
        now = time.monotonic()
        if in_flight_in(page) or before != counts_in(page):
            before, since = counts_in(page), now
        elif now - since >= _REPORT_S:
            return before
        if now > deadline:
            raise TimeoutError(f"{base_url} still answers what was asked before")
        time.sleep(0.1)


def in_flight_in(exposition: str) -> float:
    """Requests that are not answered, in the text of a `/metrics` page."""
    lines = (line for line in exposition.splitlines() if line.startswith("penstock_in_flight"))
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


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
