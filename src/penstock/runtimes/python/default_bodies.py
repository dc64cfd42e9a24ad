"""The defaults of input_fn and output_fn for code of no known framework: JSON, CSV and NPY.

JSON lists become arrays (objects and ragged lists stay as they are), CSV becomes a 2-D float array,
NPY an array; pickle is never loaded. Arrays and plain values are written as JSON, CSV or NPY. JSON
is compact, with float32 in as few digits as it needs; toolkits write theirs as Python does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from penstock.errors import ModelError
from penstock.runtimes.toolkits import bodies


def decode_default(data: Any, content_type: str) -> Any:
    """`data` is text for JSON and CSV, bytes otherwise. Raises ModelError 400 or 415."""
    import numpy as np

    if bodies.media_type(content_type) != bodies.JSON:
        return bodies.array_of(data, content_type, squeezed=False)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _wrong(f"the body is not JSON: {str(error)[:300]}") from None
    if not isinstance(value, list):
        return value
    try:
        return np.array(value)
    except ValueError:
        return value


def arrays_of(value: Any, array: Callable[[Any, str], Any]) -> Any:
    """The array of a decoded body, or its arrays by name: `{"inputs": {name: rows}}`, or a list of
    objects. `array` makes one of rows and its name. Raises ModelError (400)."""
    if isinstance(value, dict):
        for key in ("instances", "inputs"):
            if key in value:
                return arrays_of(value[key], array)
        return {name: array(rows, name) for name, rows in value.items()}
    # A list of objects has become an array of them.
    is_objects = getattr(getattr(value, "dtype", None), "kind", "") == "O"
    items = value.tolist() if is_objects else value
    if isinstance(items, list) and items and isinstance(items[0], dict):
        if any(not isinstance(each, dict) or each.keys() != items[0].keys() for each in items):
            raise _wrong("the rows of the body do not all have the same keys")
        return {name: array([each[name] for each in items], name) for name in items[0]}
    return array(value, "")


def _wrong(message: str) -> ModelError:
    return ModelError("bad-input", message, original_status=400)


def encode_default(prediction: Any, accept: str) -> tuple[bytes, str]:
    """Writes the first type of Accept that is possible. Raises ModelError 406 if there is none."""
    kind = bodies.accepted(accept, bodies.ARRAYS)
    if kind != bodies.JSON:
        return bodies.written(prediction, kind)
    try:
        options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        return orjson.dumps(prediction, default=bodies.listed, option=options), kind
    except TypeError as error:
        raise bodies.unwritable(kind, error.__cause__ or error) from None
