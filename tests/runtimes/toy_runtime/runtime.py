"""A polynomial as a `TensorRuntime`: x FP32 [n] -> y FP32 [n]."""

from __future__ import annotations

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.runtimes.base import LoadContext, Tensors


class PolynomialRuntime:
    def __init__(self, context: LoadContext) -> None:
        text = (context.model_dir / context.description.file).read_text()
        self._coefficients = [float(word) for word in text.split()[1:]]  # the constant one first
        self.inputs = (TensorSpec(name="x", dtype="FP32", shape=(-1,)),)
        self.outputs = (TensorSpec(name="y", dtype="FP32", shape=(-1,)),)
        self.lanes = max(1, context.description.lanes)

    def run(self, lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        x = inputs["x"]
        y = sum(factor * x**power for power, factor in enumerate(self._coefficients))
        return {"y": np.asarray(y, dtype=np.float32)}

    def close(self) -> None:
        self._coefficients = []
