"""Graphs of one shape, through OpenVINO's C interface: a run is one C function with one pointer.

So a thread that never takes the interpreter can do it (`runtimes.native`), and any other thread by
`FixedRun.infer`. The Python interface has no such form. Inputs and outputs are views of OpenVINO's
own memory, which stays where it is, as all shapes of such a graph are known.

A blob is mapped, and read where it lies: all processes of a machine share its pages.
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.errors import ModelError

_SYMBOLS: Final = (
    "ov_core_create", "ov_core_set_property", "ov_core_import_model",
    "ov_compiled_model_create_infer_request", "ov_compiled_model_free", "ov_infer_request_infer",
    "ov_infer_request_free", "ov_infer_request_get_input_tensor_by_index",
    "ov_infer_request_get_output_tensor_by_index", "ov_tensor_get_shape", "ov_tensor_free",
    "ov_tensor_get_byte_size", "ov_tensor_data", "ov_shape_free",
)  # fmt: skip

_Pointer = ctypes.c_void_p


class _Shape(ctypes.Structure):
    """`ov_shape_t`."""

    _fields_ = (("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)))


@cache
def library() -> ctypes.CDLL | None:
    """OpenVINO's C interface; None: this OpenVINO comes without it."""
    import openvino

    for path in sorted(Path(openvino.__file__).parent.glob("libs/libopenvino_c.so*")):
        try:
            found = ctypes.CDLL(str(path))
            for name in _SYMBOLS:
                getattr(found, name).restype = ctypes.c_int
        except (OSError, AttributeError):
            continue
        return found
    return None


def _function(name: str) -> Any:
    loaded = library()
    assert loaded is not None, "asked for before `library` was"
    return getattr(loaded, name)


def _call(name: str, *arguments: Any) -> None:
    """Raises RuntimeError: OpenVINO refuses."""
    status = _function(name)(*arguments)
    if status != 0:
        raise RuntimeError(f"{name} answered {status}")


def _made(name: str, *arguments: Any) -> _Pointer:
    """The object that a function writes to its last argument. Raises RuntimeError."""
    made = _Pointer()
    _call(name, *arguments, ctypes.byref(made))
    return made


@cache
def _core(properties: tuple[tuple[str, str], ...]) -> _Pointer:
    """One for all graphs of these properties, until the process ends. Raises RuntimeError."""
    core = _made("ov_core_create")
    for name, value in properties:
        _call(
            "ov_core_set_property", core, b"CPU",
            ctypes.c_char_p(name.encode()), ctypes.c_char_p(value.encode()),
        )  # fmt: skip
    return core


class FixedGraph:
    """A blob that was compiled for one shape. Raises OSError, or RuntimeError where OpenVINO does
    not take it."""

    def __init__(self, blob: Path, config: Mapping[str, Any]) -> None:
        self._model = _Pointer()
        with blob.open("rb") as file:
            try:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:  # it is empty
                raise RuntimeError(str(error)) from None
        content = np.frombuffer(self._mapped, dtype=np.uint8)  # its weights are used in place
        properties = tuple(sorted((name, _word(value)) for name, value in config.items()))
        self._model = _made(
            "ov_core_import_model", _core(properties), _Pointer(content.ctypes.data),
            ctypes.c_size_t(len(content)), b"CPU",
        )  # fmt: skip

    def request(self) -> _Pointer:
        """The caller frees it."""
        return _made("ov_compiled_model_create_infer_request", self._model)

    def __del__(self) -> None:
        loaded = library()
        if loaded is not None and self._model:
            loaded.ov_compiled_model_free(self._model)


class FixedRun:
    """One infer request of a graph; one run at a time. A `NativeRun`."""

    def __init__(
        self,
        graph: FixedGraph,
        inputs: Sequence[np.dtype[Any]],
        outputs: Mapping[str, np.dtype[Any]],
    ) -> None:
        """Dtypes of all inputs and outputs, in the graph's order. Raises RuntimeError."""
        self._graph = graph  # lives as long as its last request
        self._request = _Pointer()
        self._tensors: list[_Pointer] = []
        self._request = graph.request()
        self.argument: int = self._request.value or 0
        self.function: int = ctypes.cast(_function("ov_infer_request_infer"), _Pointer).value or 0
        self.inputs = [
            self._view("ov_infer_request_get_input_tensor_by_index", at, dtype)
            for at, dtype in enumerate(inputs)
        ]
        for view in self.inputs:
            view.fill(0)
        self.infer()  # the first run takes 5 ms longer
        self._outputs = {
            name: self._view("ov_infer_request_get_output_tensor_by_index", at, dtype)
            for at, (name, dtype) in enumerate(outputs.items())
        }
        self._home: weakref.ref[FreeRuns] | None = None

    def set(self, inputs: Sequence[np.ndarray]) -> None:
        """`inputs`: arrays of the graph's shapes, in its order."""
        for view, array in zip(self.inputs, inputs, strict=True):
            np.copyto(view, array, casting="unsafe")  # as `astype` does for the general graph

    def infer(self) -> None:
        """Blocks, without the interpreter. Raises RuntimeError."""
        _call("ov_infer_request_infer", self._request)

    def outputs(self) -> dict[str, np.ndarray]:
        """Copies: the next run overwrites them."""
        return {name: view.copy() for name, view in self._outputs.items()}

    def lent_by(self, home: FreeRuns) -> None:
        """`give_back` appends it there; where that is gone, the run goes, too, and its memory."""
        self._home = weakref.ref(home)

    def give_back(self) -> None:
        """Whoever took it has the answer, or has none."""
        home = self._home() if self._home is not None else None
        if home is not None:
            home.append(self)

    def _view(self, getter: str, at: int, dtype: np.dtype[Any]) -> np.ndarray:
        tensor = _made(getter, self._request, ctypes.c_size_t(at))
        self._tensors.append(tensor)
        size = ctypes.c_size_t()
        _call("ov_tensor_get_byte_size", tensor, ctypes.byref(size))
        with _sizes(tensor) as sizes:
            if int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize != size.value:
                raise RuntimeError(f"a tensor of {sizes} has {size.value} bytes, not {dtype}")
            if not size.value:
                return np.empty(sizes, dtype)
            start = _made("ov_tensor_data", tensor).value or 0
            memory = (ctypes.c_ubyte * size.value).from_address(start)
            return np.ndarray(sizes, dtype, buffer=memoryview(memory))

    def __del__(self) -> None:
        loaded = library()
        if loaded is not None:
            for tensor in self._tensors:
                loaded.ov_tensor_free(tensor)
            if self._request:
                loaded.ov_infer_request_free(self._request)


def answer(run: FixedRun, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """A whole run on this thread, which is given back. Raises ModelError."""
    try:
        run.set(arrays)
        run.infer()
        return run.outputs()
    except RuntimeError as error:
        raise ModelError("model-failed", f"the model failed: {error}") from None
    finally:
        run.give_back()


class FreeRuns(list[FixedRun]):
    """The runs of a graph that nobody has taken. Their memory goes with it."""


@contextmanager
def _sizes(tensor: _Pointer) -> Iterator[tuple[int, ...]]:
    shape = _Shape()
    _call("ov_tensor_get_shape", tensor, ctypes.byref(shape))
    try:
        yield tuple(shape.dims[at] for at in range(shape.rank))
    finally:
        _call("ov_shape_free", ctypes.byref(shape))


def _word(value: Any) -> str:
    """A property in the words of the C interface."""
    if isinstance(value, bool):
        return "YES" if value else "NO"
    return str(value)
