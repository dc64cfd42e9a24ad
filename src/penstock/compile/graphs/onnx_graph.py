"""ONNX files: ONNX Runtime is the reference, OpenVINO reads the graph itself. No torch needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.compile.graphs.graph import Arrays
from penstock.compile.libraries import need
from penstock.errors import CallerError

_OF_ORT = {
    "tensor(bool)": "BOOL", "tensor(int8)": "INT8", "tensor(int16)": "INT16",
    "tensor(int32)": "INT32", "tensor(int64)": "INT64", "tensor(uint8)": "UINT8",
    "tensor(float16)": "FP16", "tensor(float)": "FP32", "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}  # fmt: skip


class OnnxGraph:
    """An ONNX file. Raises CallerError: `source-damaged`, `target-unsupported` (string tensors)."""

    framework = "ONNX Runtime FP32"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = 0
        self._session = self._open()
        self.inputs = _specs(self._session.get_inputs())
        self.outputs = _specs(self._session.get_outputs())
        for spec in (*self.inputs, *self.outputs):
            if spec.dtype == "BYTES":
                raise CallerError(
                    "target-unsupported",
                    f"{path.name}: {spec.name!r} is a string tensor",
                    hint="Serve the ONNX file as it is: ONNX Runtime takes strings.",
                )

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        names = [spec.name for spec in self.outputs]
        feed = {spec.name: inputs[spec.name] for spec in self.inputs}
        return dict(zip(names, self._session.run(names, feed), strict=True))

    def to_openvino(self) -> Any:
        openvino = need("openvino")
        try:
            return openvino.Core().read_model(str(self._path))
        except Exception as error:  # OpenVINO raises RuntimeError and its own kinds alike
            raise _unreadable(self._path, "OpenVINO", error) from None

    def to_exported(self, dtype: str, device: str) -> Any:
        raise CallerError(
            "target-unsupported",
            f"an ONNX file can't be compiled for {device} in {dtype}",
            hint="Export the model with torch.export and compile the .pt2 file, or use cpu-....",
        )

    def set_threads(self, threads: int) -> None:
        self._threads = threads
        self._session = self._open()

    def _open(self) -> Any:
        runtime = need("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = self._threads
        try:
            return runtime.InferenceSession(
                str(self._path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has exceptions of its own without a base
            raise _unreadable(self._path, "ONNX Runtime", error) from None


def _specs(ports: Sequence[Any]) -> tuple[TensorSpec, ...]:
    return tuple(
        TensorSpec(
            name=port.name,
            dtype=_OF_ORT.get(port.type, "BYTES"),
            shape=tuple(size if type(size) is int else -1 for size in port.shape),
        )
        for port in ports
    )


def _unreadable(path: Path, reader: str, error: Exception) -> CallerError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CallerError(
        "source-damaged",
        f"{path.name}: {reader} can't load it: {(lines or [type(error).__name__])[0][:300]}",
        hint="Export the model to ONNX again.",
    )
