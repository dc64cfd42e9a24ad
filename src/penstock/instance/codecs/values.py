"""JSON values to arrays of the dtype that the model takes, and arrays to JSON.

No conversion changes a value's meaning: a fraction is not an integer, `"1"` is not 1, and a number
outside a dtype's range is an error and not infinity.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from penstock.errors import ModelError
from penstock.instance.codecs.base import bad
from penstock.runtimes.tensor_bytes import NUMPY, element_bytes, objects
from penstock.wire import plain_json

_DEPTH_MAX = 32  #: deepest nesting of a tensor in JSON; numpy's own bound is 64


def parse_json(body: bytes, what: str = "body") -> Any:
    """Raises ModelError 400; the parser limits the depth."""
    try:
        return plain_json.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad(f"the {what} is not JSON: {error}", code="bad-json") from None


def to_array(values: Any, dtype: str, name: str) -> np.ndarray:
    """Nested JSON lists as an array. Raises ModelError with the tensor's name."""
    if dtype == "BYTES":
        return _bytes_array(values, name)
    try:
        array = np.array(values)
    except ValueError:
        raise bad(
            f"input {name!r} is ragged or too deep: all lists of one level need the same length",
            code="bad-shape",
        ) from None
    return cast(array, dtype, name)


def cast(array: np.ndarray, dtype: str, name: str) -> np.ndarray:
    """`array` as `dtype`, values unchanged. Raises ModelError where that is impossible."""
    target = NUMPY[dtype]
    if array.dtype == target:
        return array
    kind, want = array.dtype.kind, target.kind
    if kind not in "fiub":
        if array.size == 0:
            return array.astype(target)
        raise bad(f"input {name!r} takes {dtype}, values of another kind came: {_sample(array)}")
    if want == "f":
        return _to_float(array, target, dtype, name)
    if want == "b":
        if kind == "b" or bool(((array == 0) | (array == 1)).all()):
            return array.astype(target)
        raise bad(f"input {name!r} takes BOOL, other values came: {_sample(array)}")
    return _to_integer(array, target, dtype, name)


#: Squares of numbers below these are inside the dtype's range: one product instead of a scan.
_SAFE_SQUARES = {2: 4.0e9, 4: 1.0e76}


def _to_float(array: np.ndarray, target: np.dtype[Any], dtype: str, name: str) -> np.ndarray:
    if target.itemsize == 8 or (
        np.vdot(array, array) < _SAFE_SQUARES[target.itemsize]
        if array.dtype.kind == "f"
        else target.itemsize == 4
    ):
        return array.astype(target)
    with np.errstate(over="ignore", invalid="ignore"):
        result = array.astype(target)
        lost = ~np.isfinite(result) & np.isfinite(array)
    if lost.any():
        raise bad(f"input {name!r}: {_sample(array[lost])} is too large for {dtype}")
    return result


def _to_integer(array: np.ndarray, target: np.dtype[Any], dtype: str, name: str) -> np.ndarray:
    if array.size == 0:
        return array.astype(target)
    if array.dtype.kind == "f":
        whole = np.isfinite(array) & (np.floor(array) == array) & (np.abs(array) <= 2**53)
        if not whole.all():
            raise bad(f"input {name!r} takes {dtype}, {_sample(array[~whole])} came")
    limits = np.iinfo(target)
    low, high = array.min(), array.max()
    if int(low) < limits.min or int(high) > limits.max:
        value = low if int(low) < limits.min else high
        raise bad(f"input {name!r}: {int(value)} is out of the range of {dtype}")
    return array.astype(target)


def _sample(array: np.ndarray) -> str:
    return repr(array.reshape(-1)[0].item() if array.dtype.kind != "O" else array.reshape(-1)[0])[
        :80
    ]


def _bytes_array(values: Any, name: str) -> np.ndarray:
    """An array of strings as UTF-8. Its shape is that of the nesting."""
    shape: list[int] = []
    probe = values
    while isinstance(probe, list):
        shape.append(len(probe))
        if len(shape) > _DEPTH_MAX:
            raise bad(f"input {name!r} is nested deeper than {_DEPTH_MAX}", code="bad-shape")
        if not probe:
            break
        probe = probe[0]
    flat = [values]
    for size in shape:
        level: list[Any] = []
        for part in flat:
            if not isinstance(part, list) or len(part) != size:
                raise bad(f"input {name!r} is ragged", code="bad-shape")
            level += part
        flat = level
    items = []
    for item in flat:
        if not isinstance(item, str):
            raise bad(f"input {name!r} takes BYTES (strings in JSON), {str(item)[:80]} came")
        items.append(item.encode())
    return objects(items).reshape(shape)


def strings(array: np.ndarray, name: str) -> Any:
    """A BYTES array as nested lists of text. Raises ModelError (406) if it is not UTF-8."""
    flat, at = [], 0
    try:
        for item in array.reshape(-1):
            flat.append(item if isinstance(item, str) else element_bytes(item).decode())
            at += 1
    except UnicodeDecodeError as error:
        raise ModelError(
            "not-text",
            f"output {name!r}: {_element(array, at)} is not UTF-8 (byte {error.start}), and JSON "
            'and CSV hold text alone; ask for binary data: "parameters": {"binary_data_output": '
            "true} of the Open Inference Protocol, or gRPC",
            original_status=406,
        ) from None
    return objects(flat).reshape(array.shape).tolist()


def texts_of(array: np.ndarray, name: str) -> list[str]:
    """The elements of an input that must be text. Raises ModelError (400) for the first that is not
    UTF-8."""
    found = []
    for at, item in enumerate(array.reshape(-1).tolist()):
        try:
            found.append(item.decode())
        except UnicodeDecodeError as error:
            raise bad(
                f"input {name!r}: {_element(array, at)} is not UTF-8: byte {error.start} cannot be "
                "read, and this model reads text"
            ) from None
    return found


def _element(array: np.ndarray, at: int) -> str:
    """A name for people for the element at place `at` of the flat array."""
    place = [int(each) for each in np.unravel_index(at, array.shape)] if array.ndim > 1 else [at]
    return f"element {', '.join(map(str, place))}"


def jsonable(array: np.ndarray, name: str) -> Any:
    """A value that `dump_json` takes. NaN and infinity become null, because JSON has neither."""
    if array.dtype.kind in "OSU":
        return strings(array, name)
    return (
        array if array.flags.c_contiguous and array.dtype.isnative else np.ascontiguousarray(array)
    )


def _unsupported(value: Any) -> Any:
    """orjson calls this for numpy shapes that it does not write itself (zero-dimensional,
    empty)."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(type(value).__name__)


def dump_json(value: Any) -> bytes:
    return orjson.dumps(value, default=_unsupported, option=orjson.OPT_SERIALIZE_NUMPY)
