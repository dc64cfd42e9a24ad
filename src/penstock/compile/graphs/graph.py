"""A source model as the lowerings and the parity check use it: it runs, and it can be converted.

This is the one interface between kinds of sources and kinds of targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from penstock.artifacts.description.description import TensorSpec

Arrays = Mapping[str, np.ndarray]


class SourceGraph(Protocol):
    """A loaded source."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    framework: str  #: framework and precision of `run`

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """The source's own answer, by output name."""

    def to_openvino(self) -> Any:
        """A fresh `openvino.Model` with these names; -1 in a shape stays free."""

    def to_exported(self, dtype: str, device: str) -> Any:
        """A `torch.export.ExportedProgram` on `device` that computes in `dtype` (f32, f16, bf16)
        and answers FP32. Raises CallerError (`target-unsupported`) where the source has no such
        form."""

    def set_threads(self, threads: int) -> None:
        """Sets the number of cores that `run` may use."""
