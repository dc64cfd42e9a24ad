"""Tensors of Triton's Python models, their types, and the wire form of BYTES."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from penstock.runtimes.python.pb_utils.errors import TritonModelException, text_of
from penstock.runtimes.tensor_bytes import element_bytes, name_of, objects

#: `TYPE_...` -> numpy's type. Numpy has no bfloat16: such tensors are float32 here.
TRITON_STRING_TO_NUMPY: Final[dict[str, Any]] = {
    "TYPE_BOOL": bool,
    "TYPE_UINT8": np.uint8,
    "TYPE_UINT16": np.uint16,
    "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64,
    "TYPE_INT8": np.int8,
    "TYPE_INT16": np.int16,
    "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64,
    "TYPE_FP16": np.float16,
    "TYPE_FP32": np.float32,
    "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
    "TYPE_BF16": np.float32,
}
#: Numbers of Triton's `TRITONSERVER_DataType`, which begin with 1.
_BY_NUMBER: Final = (
    np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64,
    np.float16, np.float32, np.float64, np.object_,
)  # fmt: skip
_LENGTH: Final = struct.Struct("<I")


class Tensor:
    """A named array."""

    def __init__(self, name: str | bytes, array: np.ndarray) -> None:
        self._name = text_of(name)
        self._array = np.asarray(array)
        try:
            name_of(self._array)
        except ValueError as error:
            raise TritonModelException(f"tensor {name!r}: {error}") from None

    def name(self) -> str:
        return self._name

    def as_numpy(self) -> np.ndarray:
        return self._array

    def shape(self) -> list[int]:
        return list(self._array.shape)

    def triton_dtype(self) -> str:
        dtype = name_of(self._array)
        return "TYPE_STRING" if dtype == "BYTES" else f"TYPE_{dtype}"

    def is_cpu(self) -> bool:
        return True

    def to_dlpack(self) -> Any:
        return self.__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        if self._array.dtype.kind not in "biufc":
            raise TritonModelException("DLPack does not support the BYTES data type")
        # DLPack has no read-only memory, and inputs are views of the request.
        array = self._array if self._array.flags.writeable else self._array.copy()
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> Tensor:
        """`tensor`: an object with `__dlpack__`, or a capsule of its memory. Memory of a GPU is
        refused."""
        if not hasattr(tensor, "__dlpack__"):
            tensor = _Capsule(tensor)
        try:
            return Tensor(name, np.from_dlpack(tensor))
        except (BufferError, RuntimeError, TypeError) as error:
            raise TritonModelException(
                f"tensor {name!r} can't be read by DLPack: {error}; tensors are in host memory here"
            ) from None


class _Capsule:
    """A capsule as numpy wants it."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def plain_array(array: np.ndarray) -> np.ndarray:
    """Strings may have any of numpy's string dtypes; the protocol has only BYTES."""
    return array.astype(np.object_) if array.dtype.kind in "SU" else array


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """`TYPE_FP32` -> numpy's type."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """The number of a type in Triton's API -> numpy's type; None for a number that has none."""
    known = 1 <= data_type <= len(_BY_NUMBER)
    return _BY_NUMBER[data_type - 1] if known else None


def numpy_to_triton_type(data_type: Any) -> int | None:
    """The inverse of `triton_to_numpy_type`; None for a type that Triton lacks."""
    dtype = np.dtype(data_type)
    if dtype.kind == "S":
        return len(_BY_NUMBER)
    return next((at for at, each in enumerate(_BY_NUMBER, 1) if dtype == np.dtype(each)), None)


def serialize_byte_tensor(input_tensor: np.ndarray) -> Any:
    """The wire form of a tensor of strings: each with its length in four bytes. As in Triton: `()`
    of an empty tensor, None of a tensor of numbers."""
    if input_tensor.size == 0:
        return ()
    if input_tensor.dtype.kind not in "OS":
        return None
    parts: list[bytes] = []
    for item in input_tensor.reshape(-1).tolist():
        data = element_bytes(item)
        parts += (_LENGTH.pack(len(data)), data)
    return b"".join(parts)


def deserialize_bytes_tensor(encoded_tensor: bytes) -> np.ndarray:
    """The inverse of `serialize_byte_tensor`: a flat array of `bytes`."""
    items: list[bytes] = []
    at = 0
    while at < len(encoded_tensor):
        (size,) = _LENGTH.unpack_from(encoded_tensor, at)
        at += _LENGTH.size
        items.append(bytes(encoded_tensor[at : at + size]))
        at += size
    return objects(items)
