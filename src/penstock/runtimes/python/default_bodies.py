"""The defaults of input_fn and output_fn for code of no known framework: JSON, CSV and NPY.

JSON lists become arrays (objects and ragged lists stay as they are), CSV becomes a 2-D float array,
NPY an array; pickle is never loaded. Arrays and plain values are written as JSON, CSV or NPY.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, Final

import orjson

from penstock.errors import ModelError

READS = ("application/json", "text/csv", "application/x-npy")
WRITES = READS


def decode_default(data: Any, content_type: str) -> Any:
    """`data` is text for JSON and CSV, bytes otherwise. Raises ModelError 400 or 415."""
    import numpy as np

    if content_type == "application/json":
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise _unreadable("JSON", error) from None
        if not isinstance(value, list):
            return value
        try:
            return np.array(value)
        except ValueError:
            return value
    try:
        if content_type == "text/csv":
            return np.loadtxt(io.StringIO(data), delimiter=",", ndmin=2)
        if content_type == "application/x-npy":
            return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, MemoryError, OSError) as error:
        raise _unreadable(content_type, error) from None
    raise ModelError(
        "unsupported-content-type",
        f"content type {content_type[:100]!r} is not one that this model reads: {', '.join(READS)}",
        hint="Send one of these, or define input_fn.",
        original_status=415,
    )


def _unreadable(what: str, error: Exception) -> ModelError:
    return ModelError(
        "bad-input", f"the body is not {what}: {str(error)[:300]}", original_status=400
    )


def encode_default(prediction: Any, accept: str) -> tuple[bytes, str]:
    """Writes the first type of Accept that is possible. Raises ModelError 406 if there is none."""
    if (kind := writable(accept)) is not None:
        return _WRITERS[kind](prediction), kind
    raise ModelError(
        "not-acceptable",
        f"Accept is {accept[:100]!r}, this model answers {', '.join(WRITES)}",
        hint="Ask for one of these, or define output_fn.",
        original_status=406,
    )


def writable(accept: str) -> str | None:
    """The first of these types that `encode_default` writes."""
    if accept == "application/json":
        return accept
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind in ("application/json", "*/*", "application/*"):
            return "application/json"
        if kind in ("text/csv", "text/*"):
            return "text/csv"
        if kind == "application/x-npy":
            return kind
    return None


def _listed(value: Any) -> Any:
    """Anything array-like (numpy, torch) as plain lists."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(type(value).__name__)


def _json(prediction: Any) -> bytes:
    try:
        return orjson.dumps(
            prediction, default=_listed, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
        )
    except TypeError as error:
        raise ModelError(
            "model-code-failed",
            f"predict_fn returned what cannot be written as JSON: {error.__cause__ or error}",
            hint="Return lists, numbers, strings, objects or arrays, or define output_fn.",
        ) from None


def _csv(prediction: Any) -> bytes:
    import numpy as np

    array = np.asarray(prediction)
    rows = array.reshape(len(array) if array.ndim else 1, -1).tolist()
    return "\n".join(",".join(str(cell) for cell in row) for row in rows).encode() + b"\n"


def _npy(prediction: Any) -> bytes:
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, np.asarray(prediction), allow_pickle=False)
    return buffer.getvalue()


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "application/json": _json,
    "text/csv": _csv,
    "application/x-npy": _npy,
}
