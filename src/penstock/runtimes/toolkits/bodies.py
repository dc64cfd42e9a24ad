"""Bodies as the toolkits read and write them: JSON, CSV and NPY into arrays and back.

Numbers are written as Python writes them (a float32 by the double that it equals), which is what
the toolkits' JSON and CSV encoders do. NPY with pickled objects is not read.
"""

from __future__ import annotations

import importlib
import io
import json
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from penstock.errors import ModelError

JSON: Final = "application/json"
CSV: Final = "text/csv"
NPY: Final = "application/x-npy"
ARRAYS: Final = (JSON, CSV, NPY)


def media_type(content_type: str) -> str:
    """Without its parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def writable(accept: str, writes: tuple[str, ...] = ARRAYS) -> str | None:
    """The first type of Accept that is among `writes`."""
    for part in accept.split(","):
        kind = media_type(part)
        family = kind.removesuffix("*") if kind != "*/*" else ""
        for one in writes:
            if one == kind or (kind.endswith("/*") and one.startswith(family)):
                return one
    return None


def accepted(accept: str, writes: tuple[str, ...]) -> str:
    """As `writable`. Raises ModelError (406)."""
    if (kind := writable(accept, writes)) is not None:
        return kind
    raise ModelError(
        "not-acceptable",
        f"Accept is {accept[:100]!r}, this model answers {', '.join(writes)}",
        hint="Ask for one of these, or define output_fn.",
        original_status=406,
    )


def array_of(data: Any, content_type: str, *, squeezed: bool = True) -> Any:
    """A numpy array: JSON as it is nested; CSV without dimensions of size 1, as the toolkits have
    it, where `squeezed`; NPY. Raises ModelError (400, 415)."""
    import numpy as np

    kind = media_type(content_type)
    if kind not in ARRAYS:
        raise unsupported(content_type, ARRAYS)
    try:
        if kind == JSON:
            return np.array(json.loads(data))
        if kind == CSV:
            rows = np.array(rows_of(data))
            return np.squeeze(rows) if squeezed else rows
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, TypeError, EOFError, OSError, MemoryError) as error:
        raise unreadable(kind, error) from None


def rows_of(text: str, delimiter: str = ",") -> list[list[float]]:
    """The rows of a CSV. An empty cell is missing (NaN). Raises ValueError."""
    rows = [
        [float(cell) if cell.strip() else math.nan for cell in line.split(delimiter)]
        for line in text.splitlines()
        if line.strip()
    ]
    if not rows:
        raise ValueError("there are no rows")
    return rows


def written(value: Any, accept: str) -> tuple[bytes, str]:
    """The value as the first type of Accept that is possible. Raises ModelError."""
    kind = accepted(accept, ARRAYS)
    try:
        return _WRITERS[kind](value), kind
    except (TypeError, ValueError) as error:
        raise unwritable(kind, error) from None


def _json(value: Any) -> bytes:
    return json.dumps(value, default=listed).encode()


def listed(value: Any) -> Any:
    """Anything array-like as plain lists, for `json.dumps`."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


def _csv(value: Any) -> bytes:
    import numpy as np

    stream, array = io.StringIO(), np.asarray(value)
    # The toolkits write one or two dimensions.
    rows = array if array.ndim in (1, 2) else array.reshape(len(array) if array.ndim else 1, -1)
    np.savetxt(stream, rows, delimiter=",", fmt="%s")
    return stream.getvalue().encode()


def npy_of(value: Any) -> bytes:
    """Bytes of a NPY file."""
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=False)
    return buffer.getvalue()


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {JSON: _json, CSV: _csv, NPY: npy_of}


def unsupported(content_type: str, reads: tuple[str, ...]) -> ModelError:
    """The error for a body of a type that no function reads."""
    return ModelError(
        "unsupported-content-type",
        f"content type {content_type[:100]!r} is not one that this model reads: {', '.join(reads)}",
        hint="Send one of these, or define input_fn.",
        original_status=415,
    )


def unreadable(kind: str, error: Exception) -> ModelError:
    """The error for a body that is not of the type that its caller names."""
    return ModelError(
        "bad-input",
        f"the body is not {kind}, or not numbers: {str(error)[:300]}",
        hint="Send a list of rows of numbers, or define input_fn.",
        original_status=400,
    )


def unwritable(kind: str, error: BaseException) -> ModelError:
    """The error for a prediction that can't be written as its caller accepts."""
    return ModelError(
        "model-code-failed",
        f"the prediction can't be written as {kind}: {str(error)[:300]}",
        hint="Ask for another type by Accept, or define output_fn.",
    )


def no_model_fn(framework: str, remedy: str) -> ModelError:
    """The error for code without model_fn, for a framework whose toolkit has no default."""
    return ModelError(
        "model-code-incomplete",
        f"the code defines no model_fn(model_dir), and {framework} has no default one",
        hint=f"Define it: {remedy}",
    )


def library(name: str, image: str) -> ModuleType:
    """The framework's module. Raises ModelError (`runtime-not-installed`)."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != name:
            raise
        raise ModelError(
            "runtime-not-installed",
            f"{name} is not installed in the Python environment of the model",
            hint=f"Name it in a requirements.txt beside the code, or give the model an Image that "
            f"brings it, such as {image}.",
        ) from None
