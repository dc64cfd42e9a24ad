"""The artifact as it was written, run by what will serve it: for parity and for timing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from penstock.artifacts.description import ModelDescription
from penstock.compile.graph import Arrays
from penstock.compile.libraries import need
from penstock.errors import CallerError, ModelError
from penstock.runtimes.base import LoadContext


class Artifact(Protocol):
    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        """The answer to one batch, by output name."""

    def close(self) -> None:
        """Frees the model."""


def open_artifact(root: Path, description: ModelDescription, *, threads: int) -> Artifact:
    """Raises CallerError (`artifact-unusable`)."""
    if description.runtime == "torch":
        return _Program(root, description)
    return _Served(root, description, threads)


class _Served:
    """Through the instance's own runtime, with one lane."""

    def __init__(self, root: Path, description: ModelDescription, threads: int) -> None:
        from penstock.runtimes.openvino import OpenVinoRuntime  # noqa: PLC0415 - heavy

        context = LoadContext(
            model_dir=root,
            description=description,
            endpoint_name="compile",
            variant_name="compile",
            cores=threads,
            memory_bytes_max=0,
        )
        try:
            self._runtime = OpenVinoRuntime(context)
        except ModelError as error:
            raise _unusable(error.message) from None

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        try:
            return self._runtime.run(0, inputs)
        except ModelError as error:
            raise _unusable(error.message) from None

    def close(self) -> None:
        self._runtime.close()


class _Program:
    """An exported program on the device that it was exported for."""

    def __init__(self, root: Path, description: ModelDescription) -> None:
        torch = need("torch")
        self._torch = torch
        self._inputs = [spec.name for spec in description.inputs]
        self._outputs = [spec.name for spec in description.outputs]
        self._device = description.parameters.get("torch_device", "cuda")
        self._module: Any = torch.export.load(str(root / description.file)).module()

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        torch = self._torch
        tensors = [
            torch.from_numpy(np.ascontiguousarray(inputs[name])).to(self._device)
            for name in self._inputs
        ]
        try:
            with torch.inference_mode():
                answer = self._module(*tensors)
        except Exception as error:  # PyTorch raises RuntimeError and AssertionError alike
            raise _unusable(str(error)) from None
        values = list(answer) if isinstance(answer, tuple | list) else [answer]
        return {
            name: value.cpu().numpy() for name, value in zip(self._outputs, values, strict=True)
        }

    def close(self) -> None:
        self._module = None


def _unusable(cause: str) -> CallerError:
    return CallerError(
        "artifact-unusable",
        f"the compiled model can't be run: {cause[:400]}",
        hint="The source uses something that this target does not have; try another target.",
    )
