"""Dtypes of the Open Inference Protocol and the numpy arrays that carry them.

Serves runtimes and codecs alike. BF16 has no numpy dtype: such a tensor is a float32 array here and
is narrowed only where bytes leave. BYTES tensors are object arrays of `bytes`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

NUMPY: Final[dict[str, np.dtype[Any]]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BF16": np.dtype(np.float32),
    "BYTES": np.dtype(np.object_),
}

#: Bytes of one element on the wire; BYTES elements have their own length.
ELEMENT_BYTES: Final = {
    name: 2 if name == "BF16" else dtype.itemsize
    for name, dtype in NUMPY.items()
    if name != "BYTES"
}

_NAMES: Final = {dtype: name for name, dtype in NUMPY.items() if name != "BF16"}


def name_of(array: np.ndarray) -> str:
    """The protocol's name for an array's dtype. Raises ValueError for dtypes that it does not
    have."""
    if array.dtype.kind in "SUO":
        return "BYTES"
    try:
        return _NAMES[array.dtype.newbyteorder("=")]
    except KeyError:
        raise ValueError(f"dtype {array.dtype} is not one of the protocol's") from None
