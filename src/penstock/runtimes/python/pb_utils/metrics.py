"""Metrics that Triton's Python models make: families of counters, gauges and histograms.

Changes are kept until the worker sends them to the instance, which adds up those of all processes
of the model. Names and numbers of series are bounded, since code makes them.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Final

from penstock.runtimes.python.pb_utils.errors import TritonModelException

FAMILIES_MAX: Final = 100
SERIES_MAX: Final = 1000
LABELS_MAX: Final = 16
BUCKETS_MAX: Final = 100
TEXT_CHARS_MAX: Final = 256
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}")
_RESERVED: Final = ("penstock_", "process_", "python_")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,99}")


class MetricKind(IntEnum):
    COUNTER, GAUGE, HISTOGRAM = range(3)


RUN_AGAIN: Final = "penstock_model_batches_run_again_total"
#: (family, label pairs) of a series
Key = tuple[str, tuple[tuple[str, str], ...]]


class Changes:
    """What the metrics of this process have changed since it was taken last."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._families: dict[str, tuple[MetricKind, str]] = {}
        self._series: dict[Key, CodeSeries] = {}
        self._changed: dict[Key, CodeSeries] = {}
        self.changed = threading.Event()  #: set while there is something to take
        self.closed = False  #: nobody takes any more
        self._on_first: Callable[[], None] | None = None

    def when_first(self, on_first: Callable[[], None]) -> None:
        """`on_first` is called once there is something to take: most models make no metrics."""
        with self._changing:
            if self.changed.is_set():
                on_first()
            else:
                self._on_first = on_first

    def close(self) -> None:
        self.closed = True
        self.changed.set()

    def _has_changed(self) -> None:
        self.changed.set()
        on_first, self._on_first = self._on_first, None
        if on_first is not None:
            on_first()

    def family(self, name: str, kind: MetricKind, description: str) -> None:
        with self._changing:
            known = self._families.get(name)
            if known is not None and known[0] != kind:
                raise TritonModelException(
                    f"the metric family {name!r} is a {known[0].name} already, not a {kind.name}"
                )
            if known is None and len(self._families) >= FAMILIES_MAX:
                raise TritonModelException(f"a model has at most {FAMILIES_MAX} metric families")
            self._families.setdefault(name, (kind, description))

    def series(self, key: Key, buckets: tuple[float, ...]) -> CodeSeries:
        with self._changing:
            found = self._series.get(key)
            if found is None:
                if len(self._series) >= SERIES_MAX:
                    raise TritonModelException(f"a model has at most {SERIES_MAX} metrics")
                found = self._series[key] = CodeSeries(self._families[key[0]][0], buckets)
                self._changed[key] = found  # it is shown with 0, as in Triton
                self._has_changed()
            elif found.buckets != buckets:
                raise TritonModelException(f"the metric {key[0]!r} has other buckets already")
            return found

    def change(self, key: Key, change: Any) -> None:
        with self._changing:
            series = self._series[key]
            change(series)
            self._changed[key] = series
            self._has_changed()

    def run_again(self) -> None:
        """A batch has raised, and its requests run one by one."""
        words = "Batches whose execute raised, and whose requests were run again one by one."
        self.family(RUN_AGAIN, MetricKind.COUNTER, words)
        self.series((RUN_AGAIN, ()), ())
        self.change((RUN_AGAIN, ()), lambda series: series.add(1))

    def taken(self) -> list[dict[str, Any]]:
        """The series that have changed, each as a whole."""
        with self._changing:
            changed, self._changed = self._changed, {}
            self.changed.clear()
            return [
                {
                    "name": name, "kind": self._families[name][0].name.lower(),
                    "help": self._families[name][1], "labels": labels, **series.told(),
                }
                for (name, labels), series in changed.items()
            ]  # fmt: skip


class CodeSeries:
    """The values of one metric in this process."""

    def __init__(self, kind: MetricKind, buckets: tuple[float, ...]) -> None:
        self.kind = kind
        self.buckets = buckets  #: upper edges, ascending, without infinity
        self.value = 0.0  #: of a histogram: the sum
        self.counts = [0] * (len(buckets) + 1) if kind is MetricKind.HISTOGRAM else []

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {"value": self.value}
        if self.kind is MetricKind.HISTOGRAM:
            told |= {"buckets": self.buckets, "counts": list(self.counts)}
        return told

    def add(self, value: float) -> None:
        self.value += value

    def set(self, value: float) -> None:
        self.value = value

    def observe(self, value: float) -> None:
        self.value += value
        self.counts[bisect_left(self.buckets, value)] += 1


class Metric:
    """One series of a family; made by `MetricFamily.Metric`. Metrics with equal labels are one."""

    def __init__(self, changes: Changes, key: Key, kind: MetricKind, series: CodeSeries) -> None:
        self._changes = changes
        self._key = key
        self._kind = kind
        self._series = series

    def increment(self, value: float) -> None:
        if self._kind is MetricKind.HISTOGRAM:
            raise self._unsupported("increment")
        number = _finite(value)
        if number < 0 and self._kind is MetricKind.COUNTER:
            raise TritonModelException("a counter can only be incremented by 0 or more")
        self._changes.change(self._key, lambda series: series.add(number))

    def set(self, value: float) -> None:
        if self._kind is not MetricKind.GAUGE:
            raise self._unsupported("set")
        number = _finite(value)
        self._changes.change(self._key, lambda series: series.set(number))

    def observe(self, value: float) -> None:
        if self._kind is not MetricKind.HISTOGRAM:
            raise self._unsupported("observe")
        number = _finite(value)
        self._changes.change(self._key, lambda series: series.observe(number))

    def value(self) -> float:
        """The value in this process of the model."""
        if self._kind is MetricKind.HISTOGRAM:
            raise self._unsupported("value")
        return self._series.value

    def _unsupported(self, what: str) -> TritonModelException:
        return TritonModelException(f"a {self._kind.name.lower()} does not support {what!r}")


class MetricFamily:
    """Metrics of one name and kind. `install` gives each model a class with changes of its own."""

    _changes: ClassVar[Changes] = Changes()
    COUNTER: ClassVar[MetricKind] = MetricKind.COUNTER
    GAUGE: ClassVar[MetricKind] = MetricKind.GAUGE
    HISTOGRAM: ClassVar[MetricKind] = MetricKind.HISTOGRAM

    def __init__(self, name: str, description: str, kind: MetricKind) -> None:
        if not _NAME.fullmatch(name) or name.startswith(_RESERVED):
            raise TritonModelException(
                f"the metric family {name[:100]!r} needs a name of letters, digits and underscores "
                f"that begins with none of {', '.join(_RESERVED)}"
            )
        self._name = name
        self._kind = MetricKind(kind)
        self._changes.family(name, self._kind, description[:TEXT_CHARS_MAX])

    def Metric(  # Triton's name
        self,
        labels: Mapping[str, str] | None = None,
        buckets: Sequence[float] | None = None,
    ) -> Metric:
        key = (self._name, _labels(labels or {}))
        series = self._changes.series(key, self._edges(buckets))
        return Metric(self._changes, key, self._kind, series)

    def _edges(self, buckets: Sequence[float] | None) -> tuple[float, ...]:
        if self._kind is not MetricKind.HISTOGRAM:
            if buckets is not None:
                raise TritonModelException("only a histogram has buckets")
            return ()
        edges = tuple(map(_finite, buckets or ()))
        if not edges or list(edges) != sorted(set(edges)) or len(edges) > BUCKETS_MAX:
            raise TritonModelException(
                f"a histogram needs buckets: 1 to {BUCKETS_MAX} upper edges in ascending order"
            )
        return edges


def _labels(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if len(labels) > LABELS_MAX:
        raise TritonModelException(f"a metric has at most {LABELS_MAX} labels")
    for name, value in labels.items():
        if not _LABEL.fullmatch(name) or not isinstance(value, str):
            raise TritonModelException(f"{name[:100]!r}: {value!r:.100} is no label of a metric")
    return tuple(sorted((name, value[:TEXT_CHARS_MAX]) for name, value in labels.items()))


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise TritonModelException(f"{value!r} is no value of a metric")
    return number
