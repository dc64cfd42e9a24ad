"""`AlarmSpec` as JSON text, as a row holds it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson

from penstock.core.alarms.spec import AlarmSpec, MetricQuery, MetricStat


def encode_spec(spec: AlarmSpec) -> str:
    return orjson.dumps(asdict(spec)).decode()


def decode_spec(text: str) -> AlarmSpec:
    """The inverse of `encode_spec`. Members that an older version did not write take their
    defaults. Raises ValueError, TypeError, LookupError or AttributeError for what is no spec."""
    fields = orjson.loads(text)
    queries = tuple(_query(query) for query in fields.pop("queries"))
    spec = AlarmSpec(queries=queries, **fields)
    counts = (spec.period_s, spec.evaluation_periods, spec.datapoints_to_alarm)
    if not all(isinstance(one, int) and one > 0 for one in counts):
        raise ValueError(f"periods of {counts}")
    if sum(query.return_data for query in queries) != 1:
        raise ValueError("not one of its queries returns data")
    return spec


def _query(fields: dict[str, Any]) -> MetricQuery:
    stat = fields.pop("stat")
    if stat is None:
        return MetricQuery(**fields)
    dimensions = tuple((name, value) for name, value in stat.pop("dimensions"))
    return MetricQuery(stat=MetricStat(dimensions=dimensions, **stat), **fields)
