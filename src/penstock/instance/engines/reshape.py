"""Tensors between the shape that requests have and the one that the model has (Triton's `reshape`).

The n-th free size of the one is the n-th free size of the other; rows stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.errors import ModelError
from penstock.instance.codecs.base import Tensors
from penstock.runtimes.base import Tensors as Given

_Shape = tuple[int, ...]


class Reshapes:
    """The reshapes of one model's inputs and outputs. With none it returns tensors as they came."""

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        reshapes: Mapping[str, _Shape],
        *,
        batched: bool,
    ) -> None:
        """`reshapes`: name -> shape in the model, without rows. `inputs` and `outputs` are as
        requests have them."""
        self._rows = int(batched)
        dims = {spec.name: spec.shape[self._rows :] for spec in (*inputs, *outputs)}
        made = {name: (dims[name], shape) for name, shape in reshapes.items() if name in dims}
        self._inward = {s.name: made[s.name] for s in inputs if s.name in made}
        self._outward = {s.name: made[s.name][::-1] for s in outputs if s.name in made}

    def __bool__(self) -> bool:
        return bool(self._inward or self._outward)

    def inward(self, tensors: Given) -> Tensors:
        """Tensors of a request, whose shapes were checked, as the model takes them."""
        return {name: self._made(name, each, self._inward) for name, each in tensors.items()}

    def outward(self, tensors: Given) -> Tensors:
        """Tensors of an answer. Raises ModelError where the model made another shape."""
        return {name: self._made(name, each, self._outward) for name, each in tensors.items()}

    def _made(
        self, name: str, array: np.ndarray, changes: Mapping[str, tuple[_Shape, _Shape]]
    ) -> np.ndarray:
        if name not in changes:
            return array
        before, after = changes[name]
        sizes = array.shape[self._rows :]
        free = (size for size, said in zip(sizes, before, strict=False) if said == -1)
        try:
            if len(sizes) != len(before):
                raise ValueError("another number of dimensions")
            resolved = tuple(next(free) if size == -1 else size for size in after)
            return array.reshape(array.shape[: self._rows] + resolved)
        except ValueError:
            raise ModelError(
                "output-shape",
                f"{name!r} has the shape {list(array.shape)}, which the configuration reshapes "
                f"from {list(before)} to {list(after)}",
                hint="Correct dims and reshape of config.pbtxt.",
            ) from None


class ReshapedRuntime:
    """A `TensorRuntime` whose tensors have the shapes of requests."""

    native_run = None  #: the runtime's would take its own shapes

    def __init__(self, runtime: Any, reshapes: Reshapes) -> None:
        self._runtime = runtime
        self._reshapes = reshapes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def run(self, lane: int, inputs: Given) -> Tensors:
        made = self._runtime.run(lane, self._reshapes.inward(inputs))
        return self._reshapes.outward(made)
