"""The metrics that a Python model's code makes, over all of its processes.

A process tells its series as a whole, as they stand since its start. A counter goes on where the
process before it ended; a gauge is the value that was told last. What a process tells is checked
and bounded: it runs the model's code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from penstock.runtimes.python.pb_utils.metrics import SERIES_MAX

_KINDS: Final = ("counter", "gauge", "histogram")
Key = tuple[str, tuple[tuple[str, str], ...]]


class CodeMetrics:
    def __init__(self) -> None:
        self._series: dict[Key, dict[str, Any]] = {}  #: of all processes together
        self._told: dict[int, dict[Key, dict[str, Any]]] = {}  #: lane -> what its process told last

    def hear(self, lane: int, payload: bytes) -> None:
        """Adds what a process tells. Raises an Exception for bytes that are no series."""
        told = self._told.setdefault(lane, {})
        for each in orjson.loads(payload):
            series = _checked(each)
            key = (series["name"], tuple((name, value) for name, value in series["labels"]))
            whole = self._series.get(key)
            if whole is None:
                if len(self._series) >= SERIES_MAX:
                    continue
                whole = self._series[key] = {**series, "value": 0.0}
                whole["counts"] = [0] * len(series["counts"])
            before = told.get(key)
            told[key] = series
            _add(whole, series, before)

    def ended(self, lane: int) -> None:
        """The lane's process has ended: the next one begins with 0."""
        self._told.pop(lane, None)

    def to_list(self) -> list[dict[str, Any]]:
        return list(self._series.values())


def _add(whole: dict[str, Any], now: dict[str, Any], before: Mapping[str, Any] | None) -> None:
    if whole["kind"] != now["kind"] or len(whole["counts"]) != len(now["counts"]):
        return
    if now["kind"] == "gauge":
        whole["value"] = now["value"]
        return
    whole["value"] += now["value"] - (before["value"] if before else 0.0)
    counts = before["counts"] if before else [0] * len(now["counts"])
    whole["counts"] = [
        total + new - old
        for total, new, old in zip(whole["counts"], now["counts"], counts, strict=True)
    ]


def _checked(told: Any) -> dict[str, Any]:
    if told["kind"] not in _KINDS:
        raise ValueError("no kind of metric")
    buckets = [float(edge) for edge in told.get("buckets", ())]
    counts = [int(count) for count in told.get("counts", ())]
    if counts and len(counts) != len(buckets) + 1:
        raise ValueError("a histogram has a count per bucket")
    return {
        "name": str(told["name"]),
        "kind": told["kind"],
        "help": str(told["help"]),
        "labels": [(str(name), str(value)) for name, value in told["labels"]],
        "value": float(told["value"]),
        "buckets": buckets,
        "counts": counts,
    }
