"""Families on the page that models' own code has made, under their own names.

Each row has the labels of the model's code, with `endpoint`, `variant` and `instance` beside them,
and `target_model` where the endpoint has several models. A label of the code with one of these
names gets `exported_` in front, as Prometheus does it. Where two models make one name as metrics of
two kinds, the first has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from prometheus_client.metrics_core import Metric

from penstock.metrics.utilization.instances import InstanceSample

_OURS: Final = ("endpoint", "variant", "instance")


def code_families(samples: Iterable[InstanceSample]) -> Iterator[Metric]:
    families: dict[str, Metric] = {}
    kinds: dict[str, str] = {}
    for sample in samples:
        place = dict(zip(_OURS, (sample.endpoint, sample.variant, sample.instance_id), strict=True))
        for series in sample.code_metrics:
            name, kind = series["name"], series["kind"]
            if kinds.setdefault(name, kind) != kind:
                continue
            family = families.get(name)
            if family is None:
                family = families[name] = _family(name, kind, series["help"])
            # Two target models may make the same series.
            ours = place | {key: series[key] for key in ("target_model",) if key in series}
            own = {(f"exported_{key}" if key in ours else key): value
                   for key, value in series["labels"]}  # fmt: skip
            _add(family, series, {**own, **ours})
    yield from families.values()


def _family(name: str, kind: str, words: str) -> Metric:
    if kind == "counter":  # a counter of another name would be shown under a name with `_total`
        if name.endswith("_total"):
            return Metric(name.removesuffix("_total"), words, "counter")
        return Metric(name, words, "unknown")
    return Metric(name, words, kind)


def _add(family: Metric, series: dict[str, Any], labels: dict[str, str]) -> None:
    name = series["name"]
    if series["kind"] != "histogram":
        family.add_sample(name, labels, series["value"])
        return
    edges = [*map(str, series["buckets"]), "+Inf"]
    counts = list(accumulate(series["counts"]))
    for edge, count in zip(edges, counts, strict=True):
        family.add_sample(f"{name}_bucket", {**labels, "le": edge}, count)
    family.add_sample(f"{name}_count", labels, counts[-1])
    family.add_sample(f"{name}_sum", labels, series["value"])
