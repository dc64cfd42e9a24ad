"""Sources that run in PyTorch: modules, TorchScript and exported programs.

It is the reference of the parity check (FP32, no gradients), and converts. OpenVINO traces a
module; for GPUs the graph is `torch.export`'s, whose dynamic dimensions are declared and checked.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.compile.graphs.graph import Arrays
from penstock.compile.libraries import need
from penstock.errors import CallerError
from penstock.runtimes.tensor_bytes import name_of

DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
#: Dtypes of the Open Inference Protocol -> OpenVINO's names.
OV_TYPES = {
    "BOOL": "boolean", "INT8": "i8", "INT16": "i16", "INT32": "i32", "INT64": "i64", "UINT8": "u8",
    "FP16": "f16", "FP32": "f32", "FP64": "f64", "BF16": "bf16",
}  # fmt: skip
_OF_TORCH = {
    "bool": "BOOL", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "uint8": "UINT8", "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16",
}  # fmt: skip


class TorchGraph:
    """A module whose `forward` takes the inputs in order and returns one tensor or several."""

    framework = "PyTorch FP32"

    def __init__(
        self,
        module: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[str],
        example: Arrays,
    ) -> None:
        self.module = module
        self.inputs = tuple(inputs)
        self.example = dict(example)
        self._names = list(outputs)
        self.outputs: tuple[TensorSpec, ...] = ()
        made = self.run(self.example)
        self.outputs = tuple(
            TensorSpec(name=name, dtype=name_of(array), shape=_free_batch(array, self.inputs))
            for name, array in made.items()
        )

    def run(self, inputs: Arrays) -> dict[str, np.ndarray]:
        torch = need("torch")
        tensors = [
            torch.from_numpy(np.ascontiguousarray(inputs[spec.name])) for spec in self.inputs
        ]
        with torch.inference_mode():
            answer = self.module(*tensors)
        values = list(flattened(answer))
        names = self._names or [f"output_{at}" for at in range(len(values))]
        if len(names) != len(values):
            raise CallerError(
                "outputs-mismatch",
                f"the model answers {len(values)} tensors, {len(names)} are named "
                f"({', '.join(names)})",
                hint="Correct `outputs` in the description.",
            )
        return {
            name: value.detach().float().numpy()
            if value.is_floating_point()
            else value.detach().numpy()
            for name, value in zip(names, values, strict=True)
        }

    def to_openvino(self) -> Any:
        openvino, torch = need("openvino"), need("torch")
        example = {
            spec.name: torch.from_numpy(np.ascontiguousarray(self.example[spec.name]))
            for spec in self.inputs
        }
        shapes = [
            (
                openvino.PartialShape(list(spec.shape)),
                getattr(openvino.Type, OV_TYPES[spec.dtype]),
            )
            for spec in self.inputs
        ]
        with torch.inference_mode():
            model = openvino.convert_model(
                self.module, example_input=tuple(example.values()), input=shapes
            )
        return named(model, self.inputs, [spec.name for spec in self.outputs])

    def to_exported(self, dtype: str, device: str) -> Any:
        torch = need("torch")
        module = copy.deepcopy(self.module)
        if getattr(module, "answers_fp32", False):
            module = module.to(getattr(torch, DTYPES[dtype]))
        else:
            module = _answering(module, getattr(torch, DTYPES[dtype]))
        module = module.to(device).requires_grad_(False)
        example = tuple(
            torch.from_numpy(np.ascontiguousarray(self.example[spec.name])).to(device)
            for spec in self.inputs
        )
        free = [
            {
                at: torch.export.Dim.DYNAMIC
                for at, size in enumerate(spec.shape)
                if size == -1
            }
            for spec in self.inputs
        ]  # fmt: skip
        try:
            with torch.no_grad():
                return torch.export.export(
                    module,
                    example,
                    dynamic_shapes=tuple(free) if _is_named(module) else (tuple(free),),
                )
        except Exception as error:  # torch.export raises many kinds, some of them private
            raise not_converted("torch.export", error) from None

    def set_threads(self, threads: int) -> None:
        need("torch").set_num_threads(threads)


def _is_named(module: Any) -> bool:
    """Whether `forward` names its inputs one by one, so that the graph has the same names."""
    return bool(getattr(module, "answers_fp32", False))


def _answering(inner: Any, dtype: Any) -> Any:
    """Wraps a module that computes in another format: inputs and answers stay FP32."""
    base: Any = need("torch").nn.Module

    class AnsweringModule(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner.to(dtype)

        def forward(self, *inputs: Any) -> Any:
            cast = [each.to(dtype) if each.is_floating_point() else each for each in inputs]
            values = [
                value.float() if value.is_floating_point() else value
                for value in flattened(self.inner(*cast))
            ]
            return values[0] if len(values) == 1 else tuple(values)

    return AnsweringModule().eval()


def flattened(answer: Any) -> list[Any]:
    """The tensors of an answer, in order, out of any nesting."""
    if hasattr(answer, "detach"):
        return [answer]
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return [tensor for part in answer if part is not None for tensor in flattened(part)]
    raise CallerError(
        "outputs-mismatch", f"the model answers a {type(answer).__name__}, which is no tensor"
    )


def named(model: Any, inputs: Sequence[TensorSpec], outputs: Sequence[str]) -> Any:
    """Gives the ports of an `openvino.Model` exactly these names."""
    if len(model.inputs) != len(inputs) or len(model.outputs) != len(outputs):
        raise CallerError(
            "conversion-failed",
            f"the converted graph has {len(model.inputs)} inputs and {len(model.outputs)} outputs; "
            f"the source has {len(inputs)} and {len(outputs)}",
            hint="An input that changes no answer is dropped on the way: leave it out.",
        )
    for port, spec in zip(model.inputs, inputs, strict=True):
        port.get_tensor().set_names({spec.name})
    for port, name in zip(model.outputs, outputs, strict=True):
        port.get_tensor().set_names({name})
    return model


def dtype_name(dtype: Any) -> str:
    """`torch.int64` -> "INT64". Raises CallerError (`inputs-invalid`)."""
    name = str(dtype).removeprefix("torch.")
    try:
        return _OF_TORCH[name]
    except KeyError:
        raise CallerError("inputs-invalid", f"tensors of dtype {name} can't be served") from None


def not_converted(how: str, error: Exception) -> CallerError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return CallerError(
        "conversion-failed",
        f"{how} can't convert the model: {(lines or [type(error).__name__])[0][:400]}",
        hint="Check that its forward takes and answers tensors only, without branches on values.",
    )


def _free_batch(array: np.ndarray, inputs: Sequence[TensorSpec]) -> tuple[int, ...]:
    batched = bool(inputs) and bool(inputs[0].shape) and inputs[0].shape[0] == -1
    shape = tuple(array.shape)
    return (-1, *shape[1:]) if batched and shape else shape
