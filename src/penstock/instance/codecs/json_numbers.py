"""Numbers in JSON that need care: NaN, infinities, and integers that a float can't hold.

The Open Inference Protocol's servers read and write `NaN`, `Infinity` and `-Infinity`, which JSON
does not have (Triton's parser and writer have the flags for it), and so does Python's `json`.
orjson, which is fast and strict, refuses them; so only a body that it refuses is read again.

An integer tensor takes integers of the whole range of its dtype. numpy makes floats of a list that
mixes signs beyond 2**63, or integers and floats; those are converted one by one, exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import orjson

from penstock.instance.codecs.base import bad
from penstock.instance.codecs.values import cast, dump_json, jsonable, parse_json, to_array
from penstock.runtimes.tensor_bytes import NUMPY
from penstock.wire import plain_json

#: From here on two integers may be one float, so a float says no longer which one was meant.
_EXACT_BELOW: Final = 2.0**53


def parse_body(body: bytes) -> Any:
    """A body of the protocol as plain values. Raises ModelError 400."""
    try:
        return plain_json.loads(body)
    except orjson.JSONDecodeError:
        if b"NaN" not in body and b"Inf" not in body:
            return parse_json(body)  # it says what is wrong
        return _parse_non_finite(body)


def _parse_non_finite(body: bytes) -> Any:
    """Raises ModelError 400. Python's parser takes more than these numbers; the rest is refused
    here, so that the rules for everything else are those of any other body."""
    try:
        with plain_json.without_collector():
            parsed = json.loads(body.decode(), parse_float=_finite)
            if b"\\u" in body:
                orjson.dumps(parsed)  # it refuses halves of surrogate pairs
            return parsed
    except (ValueError, TypeError, RecursionError) as error:
        raise bad(f"the body is not JSON: {error}", code="bad-json") from None


def _finite(digits: str) -> float:
    """A number that is too large is an error, and not infinity."""
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:40]} is too large")
    return value


def tensor_of(values: Any, dtype: str, name: str) -> np.ndarray:
    """As `to_array`; the integers of an integer tensor are exact, whatever their size."""
    if NUMPY[dtype].kind not in "iu":
        return to_array(values, dtype, name)
    try:
        array = np.array(values)
    except ValueError:
        return to_array(values, dtype, name)  # it says what is wrong
    if array.dtype.kind == "f" and not (np.abs(array) < _EXACT_BELOW).all():
        array = np.array(values, dtype=object)
    if array.dtype.kind == "O" and array.size:
        return _exact(array, dtype, name)
    return cast(array, dtype, name)


def _exact(array: np.ndarray, dtype: str, name: str) -> np.ndarray:
    limits = np.iinfo(NUMPY[dtype])
    found = np.empty(array.size, dtype=NUMPY[dtype])
    for at, item in enumerate(array.reshape(-1)):
        whole = isinstance(item, float) and abs(item) < _EXACT_BELOW and item.is_integer()
        value = int(item) if whole else item
        if not isinstance(value, int):
            raise bad(f"input {name!r} takes {dtype}, {str(value)[:80]} came")
        if not limits.min <= value <= limits.max:
            raise bad(f"input {name!r}: {str(value)[:80]} is out of the range of {dtype}")
        found[at] = value
    return found.reshape(array.shape)


def data_of(array: np.ndarray, name: str) -> Any:
    """The elements of a flat array as a value that `dump_json` writes in the protocol's form."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return jsonable(array, name)
    # The writer has null in the place of each of them, and of nothing else.
    first, *rest = dump_json(jsonable(array, name)).split(b"null")
    tokens = _tokens(array[~np.isfinite(array)])
    pairs = (part for pair in zip(tokens, rest, strict=True) for part in pair)
    return orjson.Fragment(b"".join((first, *pairs)))


def _tokens(values: np.ndarray) -> Iterator[bytes]:
    for value in values.tolist():
        yield b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
