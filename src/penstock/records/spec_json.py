"""Values of `core/jobs/spec.py` as JSON, for the database and for instances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from penstock.core.deployment.deployment import ModelSource
from penstock.core.jobs.spec import (
    DataProcessing,
    InputObject,
    Span,
    SpanDone,
    TransformInput,
    TransformOutput,
    TransformSpec,
)

Value = TypeVar("Value", TransformSpec, InputObject, Span, SpanDone)
_INSIDE = {
    "model": ModelSource,
    "input": TransformInput,
    "output": TransformOutput,
    "processing": DataProcessing,
}


def to_dict(value: TransformSpec | InputObject | Span | SpanDone) -> dict[str, Any]:
    """Members in JSON's types; `orjson.dumps` and `json.dumps` accept the result."""
    return asdict(value)


def from_dict(kind: type[Value], members: Mapping[str, Any]) -> Value:
    """The inverse of `to_dict`, even after a pass through JSON.

    Members that an older version did not write take their defaults, and members of a newer version
    are ignored. Raises TypeError or ValueError for values that `to_dict` can't have written.
    """
    value: Value = _made(kind, members)
    return value


def _made(kind: type[Any], members: Mapping[str, Any]) -> Any:
    known = {field.name for field in fields(kind)}
    return kind(**{name: _value(name, members[name]) for name in known & members.keys()})


def _value(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _made(_INSIDE[name], value)
    if name == "environment":
        return tuple((str(key), str(entry)) for key, entry in value)
    if name in ("columns", "unset"):
        return tuple(value)
    return value
