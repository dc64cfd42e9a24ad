"""ONNX on ONNX Runtime: string tensors, and GPUs through its CUDA and TensorRT providers.

The library's strings are Unicode. Bytes that are not UTF-8 are replaced by stand-ins on the way in
and out (`byte_strings`), so that a model which moves or compares strings returns them exactly.

A classifier as converters of scikit-learn, XGBoost and LightGBM write it answers its probabilities
as a sequence of maps (the operator ZipMap): they are a tensor here, whose columns have the names of
the classes. What else is no tensor is refused.

One session serves all lanes: a session may run in several threads at once. Sessions do not spin
while they wait, because the instance's other copies need the cores.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.artifacts.files.onnx_header import class_labels
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext, Tensors
from penstock.runtimes.tensor_bytes import bytes_of, objects, prepared, text_of, threads_of

_DTYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(bfloat16)": "BF16",
    "tensor(string)": "BYTES",
}

#: Types of a ZipMap's output, which is a map for each row.
_MAPS = ("seq(map(int64,tensor(float)))", "seq(map(string,tensor(float)))")

_ACCELERATED = ("TensorrtExecutionProvider", "CUDAExecutionProvider")


def read_once(file: str) -> None:
    """Reads the file in a process that may crash (`probe`). Raises what ONNX Runtime raises."""
    import onnxruntime

    onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


class OnnxRuntime:
    """A TensorRuntime. Raises ModelError when the file cannot be read."""

    def __init__(self, context: LoadContext) -> None:
        import onnxruntime

        description = context.description
        self.lanes = max(1, description.lanes)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads_of(context, self.lanes) * self.lanes
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        available = onnxruntime.get_available_providers()
        wanted = (
            [name for name in _ACCELERATED if name in available] if context.accelerators else []
        )
        try:
            self._session: Any = onnxruntime.InferenceSession(
                str(context.model_dir / description.file),
                sess_options=options,
                providers=[*wanted, "CPUExecutionProvider"],
            )
        except Exception as error:  # ONNX Runtime has a class for every kind of failure
            raise ModelError(
                "model-unreadable",
                f"{description.file}: ONNX Runtime cannot load it: {_first_line(error)}",
                hint="Compare the file with the original. If it is whole, export it with operators "
                "of the standard domain and an older opset, or serve it by a code/inference.py.",
            ) from None
        self._labels: dict[str, tuple[Any, ...]] = self._classes(context)
        self.inputs = tuple(_spec(node) for node in self._session.get_inputs())
        self.outputs = tuple(self._answered(node) for node in self._session.get_outputs())
        for spec in self.inputs + self.outputs:
            if spec.dtype not in _DTYPES.values() or spec.dtype == "BF16":
                raise ModelError(
                    "unsupported-dtype",
                    f"{description.file}: {spec.name!r} is {spec.dtype}, which cannot be sent or "
                    "answered",
                    hint="Export the model with a cast to FP32 at its edges."
                    if spec.dtype.startswith(("tensor", "BF"))
                    else "Export the model with tensors at its edges; skl2onnx and onnxmltools "
                    "take the option zipmap=False.",
                )
        self._names = [spec.name for spec in self.outputs]

    def _classes(self, context: LoadContext) -> dict[str, tuple[Any, ...]]:
        """The keys of each output that is a sequence of maps, as far as the file tells them."""
        mapped = [node.name for node in self._session.get_outputs() if node.type in _MAPS]
        return class_labels(context.model_dir / context.description.file, mapped) if mapped else {}

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Outputs whose values have names: the classes, whose probabilities they are."""
        return {name: tuple(map(str, keys)) for name, keys in self._labels.items()}

    def _answered(self, node: Any) -> TensorSpec:
        keys = self._labels.get(node.name)
        if keys is None:
            return _spec(node)
        return TensorSpec(name=node.name, dtype="FP32", shape=(-1, len(keys)))

    def run(self, lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        feeds = {}
        for name, array in prepared(self.inputs, inputs):
            feeds[name] = _each(text_of, array) if array.dtype.kind == "O" else array
        try:
            results = self._session.run(self._names, feeds)
        except UnicodeDecodeError:
            raise ModelError(
                "model-failed", "the model made a string that is not UTF-8, which ONNX has not"
            ) from None
        except Exception as error:
            raise ModelError("model-failed", f"the model failed: {_first_line(error)}") from None
        return {
            name: self._tensor(name, result)
            for name, result in zip(self._names, results, strict=True)
        }

    def _tensor(self, name: str, result: Any) -> np.ndarray:
        keys = self._labels.get(name)
        if keys is not None:
            table = [[row[key] for key in keys] for row in result]
            return np.array(table, dtype=np.float32).reshape(len(table), len(keys))
        array: np.ndarray = result
        return _each(bytes_of, array) if array.dtype.kind == "O" else array

    def close(self) -> None:
        with contextlib.suppress(AttributeError):
            del self._session


def _each(turned: Callable[[Any], Any], array: np.ndarray) -> np.ndarray:
    return objects([turned(item) for item in array.reshape(-1).tolist()]).reshape(array.shape)


def _spec(node: Any) -> TensorSpec:
    shape = tuple(size if isinstance(size, int) else -1 for size in node.shape or ())
    return TensorSpec(name=node.name, dtype=_DTYPES.get(node.type, node.type), shape=shape)


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (text or type(error).__name__)[:400]
