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
    defaults."""
    fields = orjson.loads(text)
    queries = tuple(_query(query) for query in fields.pop("queries"))
    return AlarmSpec(queries=queries, **fields)


def _query(fields: dict[str, Any]) -> MetricQuery:
    stat = fields.pop("stat")
    if stat is None:
        return MetricQuery(**fields)
    dimensions = tuple((name, value) for name, value in stat.pop("dimensions"))
    return MetricQuery(stat=MetricStat(dimensions=dimensions, **stat), **fields)
