"""JSON bodies by a service model's shapes: the part that the JSON protocols share.

Reading is strict about kinds (a string is no number) and lenient about unknown members: these, and
nulls, are left out. Lists and maps keep their nulls, so that `validate` can name them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import isfinite
from typing import Any, Final

import orjson

from penstock.errors import InternalError
from penstock.wire import plain_json
from penstock.wire.aws import values
from penstock.wire.aws.errors import unreadable
from penstock.wire.aws.values import wrong

#: Some shapes are recursive. No client nests them this deep, and Python's stack ends at 1,000.
NESTING_MAX: Final = 100
#: Items of a list or map whose shape has no bound; CloudWatch takes 1,000 metrics in a call.
ITEMS_MAX: Final = 10_000
_TIMESTAMP_STYLE: Final = "unixtimestamp"
_FLOAT_NAMES: Final = ("NaN", "Infinity", "-Infinity")


def load(body: bytes) -> Any:
    """The JSON value of a body; an empty body is an empty object.

    Raises:
        AwsError: SerializationException.
    """
    if not body or body.isspace():
        return {}
    try:
        return plain_json.loads(body)
    except orjson.JSONDecodeError as cause:
        raise unreadable(f"The body is not JSON: {cause}") from cause


def dump(value: Any) -> bytes:
    """A JSON body."""
    return orjson.dumps(value)


def parse(shape: Any, value: Any, at: str = "", *, depth: int = 0) -> Any:
    """`value`, as JSON has it, in the Python values of `shape`; `at` is its path.

    Raises:
        AwsError: SerializationException.
    """
    if depth > NESTING_MAX:
        raise unreadable(f"The body nests more than {NESTING_MAX} levels deep.")
    if value is None:
        return None
    return _PARSERS[shape.type_name](shape, value, at, depth)


def parse_members(
    shape: Any, value: Any, at: str = "", *, depth: int = 0, in_body_only: bool = False
) -> dict[str, Any]:
    """The members of a structure; `in_body_only` leaves out members in headers, path or query."""
    if not isinstance(value, dict):
        raise wrong(at, "an object", _kind(value))
    parsed: dict[str, Any] = {}
    for name, member in shape.members.items():
        traits = member.serialization
        if in_body_only and "location" in traits:
            continue
        raw = value.get(traits.get("name", name))
        if raw is not None:
            inner = f"{at}.{name}" if at else name
            parsed[name] = parse(member, raw, inner, depth=depth + 1)
    if shape.is_tagged_union and len(parsed) != 1:
        raise wrong(at, "exactly one member of the union", f"{len(parsed)} known ones")
    return parsed


def serialize(shape: Any, value: Any) -> Any:
    """`value` in the JSON form of `shape`. The inverse of `parse`.

    Raises:
        InternalError: a member that the shape doesn't have: a bug in the operation.
    """
    if value is None:
        return None
    serializer = _SERIALIZERS.get(shape.type_name)
    return value if serializer is None else serializer(shape, value)


def serialize_members(
    shape: Any, value: dict[str, Any], *, in_body_only: bool = False
) -> dict[str, Any]:
    """The members of a structure that have a value."""
    serialized: dict[str, Any] = {}
    for name, item in value.items():
        member = known_member(shape, name)
        traits = member.serialization
        if item is not None and not (in_body_only and "location" in traits):
            serialized[traits.get("name", name)] = serialize(member, item)
    return serialized


def known_member(shape: Any, name: str) -> Any:
    """The member of a structure, or an error for the author of an operation."""
    member = shape.members.get(name)
    if member is None:
        raise InternalError("unknown-result-member", f"{shape.name} has no member {name!r}.")
    return member


def clean_text(value: Any) -> str:
    """Text that UTF-8 can hold: file names may have lone surrogates."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "an object"
    return "null"


def _parse_structure(shape: Any, value: Any, at: str, depth: int) -> Any:
    return value if shape.is_document_type else parse_members(shape, value, at, depth=depth)


def _parse_list(shape: Any, value: Any, at: str, depth: int) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(at, "a list", _kind(value))
    member = shape.member
    return [
        parse(member, item, f"{at}[{index}]", depth=depth + 1)
        for index, item in enumerate(value[: _read_at_most(shape, len(value), at)])
    ]


def _parse_map(shape: Any, value: Any, at: str, depth: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(at, "an object", _kind(value))
    member = shape.value
    read = itertools.islice(value.items(), _read_at_most(shape, len(value), at))
    return {key: parse(member, item, f"{at}[{key[:64]}]", depth=depth + 1) for key, item in read}


def _read_at_most(shape: Any, count: int, at: str) -> int:
    """The number of items to read: one too many is enough for `validate` to report."""
    items_max: int | None = shape.metadata.get("max")
    if items_max is None and count > ITEMS_MAX:
        raise wrong(at, f"at most {ITEMS_MAX} items", f"{count}")
    return count if items_max is None else min(count, items_max + 1)


def _parse_string(_shape: Any, value: Any, at: str, _depth: int) -> str:
    if not isinstance(value, str):
        raise wrong(at, "a string", _kind(value))
    return value


def _parse_boolean(_shape: Any, value: Any, at: str, _depth: int) -> bool:
    if not isinstance(value, bool):
        raise wrong(at, "a boolean", _kind(value))
    return value


def _parse_integer(shape: Any, value: Any, at: str, _depth: int) -> int:
    if isinstance(value, float) and isfinite(value) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(at, "an integer", _kind(value))
    return values.bounded_integer(shape, value, at)


def _parse_float(_shape: Any, value: Any, at: str, _depth: int) -> float:
    if isinstance(value, str) and value in _FLOAT_NAMES:
        return values.parse_float(value, at)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong(at, "a number", _kind(value))
    return float(value)


def _parse_timestamp(_shape: Any, value: Any, at: str, _depth: int) -> float:
    if isinstance(value, str):
        return values.parse_timestamp(value, at)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong(at, "a timestamp", _kind(value))
    return values.bounded_timestamp(float(value), at)


def _parse_blob(_shape: Any, value: Any, at: str, _depth: int) -> bytes:
    if not isinstance(value, str):
        raise wrong(at, "base64", _kind(value))
    return values.parse_blob(value, at)


def _serialize_structure(shape: Any, value: Any) -> Any:
    return value if shape.is_document_type else serialize_members(shape, value)


def _serialize_list(shape: Any, value: Any) -> list[Any]:
    member = shape.member
    return [serialize(member, item) for item in value]


def _serialize_map(shape: Any, value: Any) -> dict[str, Any]:
    member = shape.value
    return {clean_text(key): serialize(member, item) for key, item in value.items()}


def _serialize_float(_shape: Any, value: Any) -> float | str:
    return float(value) if isfinite(value) else values.format_float(value)


def _serialize_timestamp(shape: Any, value: Any) -> Any:
    style = shape.serialization.get("timestampFormat", _TIMESTAMP_STYLE).lower()
    return values.format_timestamp(value, style)


_PARSERS: Final[dict[str, Callable[[Any, Any, str, int], Any]]] = {
    "structure": _parse_structure,
    "list": _parse_list,
    "map": _parse_map,
    "string": _parse_string,
    "character": _parse_string,
    "boolean": _parse_boolean,
    "integer": _parse_integer,
    "long": _parse_integer,
    "float": _parse_float,
    "double": _parse_float,
    "timestamp": _parse_timestamp,
    "blob": _parse_blob,
}

_SERIALIZERS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "structure": _serialize_structure,
    "list": _serialize_list,
    "map": _serialize_map,
    "string": lambda _shape, value: clean_text(value),
    "character": lambda _shape, value: clean_text(value),
    "float": _serialize_float,
    "double": _serialize_float,
    "timestamp": _serialize_timestamp,
    "blob": lambda _shape, value: values.format_blob(value),
}
