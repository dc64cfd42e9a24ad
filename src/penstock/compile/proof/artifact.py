"""The artifact as it was written, run by what will serve it: for parity and for timing."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.graphs.graph import Arrays
from penstock.errors import CallerError, ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.loader import load_tensor_runtime


class Artifact(Protocol):
    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """The answer to one batch, by output name."""

    def close(self) -> None:
        """Frees the model."""


def open_artifact(root: Path, description: ModelDescription, *, threads: int) -> Artifact:
    """Raises CallerError (`artifact-unusable`)."""
    return _Served(root, description, threads)


class _Served:
    """Through the instance's own runtime, with one lane."""

    def __init__(self, root: Path, description: ModelDescription, threads: int) -> None:
        context = LoadContext(
            model_dir=root,
            description=description,
            endpoint_name="compile",
            variant_name="compile",
            cores=threads,
            memory_bytes_max=0,
        )
        try:
            self._runtime = load_tensor_runtime(context)
        except PenstockError as error:
            raise _unusable(error.message) from None

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        try:
            return self._runtime.run(0, inputs)
        except ModelError as error:
            raise _unusable(error.message) from None

    def close(self) -> None:
        self._runtime.close()


def _unusable(cause: str) -> CallerError:
    return CallerError(
        "artifact-unusable",
        f"the compiled model can't be run: {cause[:400]}",
        hint="The source uses something that this target does not have; try another target.",
    )
