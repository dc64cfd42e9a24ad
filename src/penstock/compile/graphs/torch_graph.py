"""Sources that run in PyTorch: modules, TorchScript and exported programs.

It is the reference of the parity check (FP32, no gradients), and converts. OpenVINO traces a
module; for GPUs the graph is `torch.export`'s, whose dynamic dimensions are declared and checked.

Graph files of PyTorch are exported programs (.pt2), TorchScript and, if trusted, pickled modules.
An exported program is JSON and raw tensors; the parts of its format that may hold a pickle are
refused unless the caller trusts the file. torch.jit reads TorchScript archives, and has no general
unpickler. Tracing uses the model's own sample inputs where it has them.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description.description import DTYPES, ModelDescription, TensorSpec
from penstock.artifacts.detection.detect_pt2 import check_pt2
from penstock.compile.contract import Options
from penstock.compile.graphs.graph import Arrays
from penstock.compile.libraries import first_line, need
from penstock.compile.source.source import EXPORTED, TORCHSCRIPT, Source
from penstock.errors import CallerError
from penstock.runtimes.tensor_bytes import NUMPY, name_of

TORCH_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
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
            module = module.to(getattr(torch, TORCH_DTYPES[dtype]))
        else:
            module = _answering(module, getattr(torch, TORCH_DTYPES[dtype]))
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
    return CallerError(
        "conversion-failed",
        f"{how} can't convert the model: {first_line(error)[:400]}",
        hint="Check that its forward takes and answers tensors only, without branches on values.",
    )


def _free_batch(array: np.ndarray, inputs: Sequence[TensorSpec]) -> tuple[int, ...]:
    batched = bool(inputs) and bool(inputs[0].shape) and inputs[0].shape[0] == -1
    shape = tuple(array.shape)
    return (-1, *shape[1:]) if batched and shape else shape


#: Sizes of an example input's free dimensions. Two rows: torch.export would take 1 for a constant.
_ROWS, _SIZE = 2, 7
_FORCE_SAFE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


def program_graph(
    source: Source, described: ModelDescription | None, options: Options
) -> TorchGraph:
    """Opens it. Raises CallerError: `source-damaged`, `source-untrusted`, `inputs-needed`,
    `inputs-invalid`."""
    assert source.file is not None
    outputs = [spec.name for spec in described.outputs] if described else []
    wanted = described.inputs if described else ()
    if source.kind == EXPORTED:
        return _ProgramGraph(_load_program(source.file, trust=options.trust), wanted, outputs)
    module = _load_module(source, trust=options.trust)
    specs = wanted or tuple(parse_input(text) for text in options.inputs)
    if not specs:
        raise CallerError(
            "inputs-needed",
            f"{source.file.name} does not say what it takes",
            hint="Give --input NAME:DTYPE:SHAPE for each input, for example "
            "--input input_ids:INT64:-1,-1, or a --description with inputs.",
        )
    graph = TorchGraph(module, specs, outputs, example_of(specs))
    if source.kind == TORCHSCRIPT:
        graph.framework = "TorchScript FP32"
    return graph


def parse_input(text: str) -> TensorSpec:
    """ "ids:INT64:-1,-1" as a tensor. Raises CallerError (`inputs-invalid`)."""
    name, _, rest = text.partition(":")
    dtype, _, sizes = rest.partition(":")
    try:
        shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    except ValueError:
        shape = (-2,)
    if not name or dtype not in DTYPES or dtype == "BYTES" or any(size < -1 for size in shape):
        raise CallerError(
            "inputs-invalid",
            f"--input {text!r}",
            hint="Write NAME:DTYPE:SHAPE, as in input_ids:INT64:-1,-1 (-1 is a free dimension).",
        )
    return TensorSpec(name=name, dtype=dtype, shape=shape)


def example_of(
    specs: tuple[TensorSpec, ...], *, rows: int = _ROWS, seed: int = 0
) -> dict[str, Any]:
    """Inputs that any model accepts: whole numbers are 0 or 1, since they may be ids or masks."""
    random = np.random.default_rng(seed)
    made = {}
    for spec in specs:
        sizes = [
            size if size >= 0 else (rows if at == 0 else _SIZE)
            for at, size in enumerate(spec.shape)
        ]
        dtype = NUMPY[spec.dtype]
        values = random.normal(size=sizes) if dtype.kind == "f" else random.integers(0, 2, sizes)
        made[spec.name] = values.astype(dtype)
    return made


class _ProgramGraph(TorchGraph):
    """An exported program, which knows its inputs, their shapes and one example."""

    framework = "PyTorch FP32 (exported program)"

    def __init__(self, program: Any, wanted: tuple[TensorSpec, ...], outputs: list[str]) -> None:
        self.program = program
        specs = _inputs_of(program, wanted)
        arguments, keywords = program.example_inputs or ((), {})
        if arguments and not keywords and len(arguments) == len(specs):
            example = {
                spec.name: np.asarray(tensor.detach().cpu().numpy())
                for spec, tensor in zip(specs, arguments, strict=True)
            }
        else:
            example = example_of(specs)
        super().__init__(program.module(check_guards=False), specs, outputs, example)

    def to_openvino(self) -> Any:
        try:
            model = need("openvino").convert_model(self.program)
        except Exception as error:  # the converter raises RuntimeError and kinds of its own
            raise not_converted("OpenVINO", error) from None
        model = named(model, self.inputs, [spec.name for spec in self.outputs])
        model.reshape({spec.name: list(spec.shape) for spec in self.inputs})
        return model


def _inputs_of(program: Any, wanted: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    user = set(program.graph_signature.user_inputs)
    found = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in user:
            value = node.meta["val"]
            shape = tuple(size if type(size) is int else -1 for size in value.shape)
            found.append(TensorSpec(name=node.name, dtype=dtype_name(value.dtype), shape=shape))
    if wanted and len(wanted) != len(found):
        raise CallerError(
            "inputs-invalid",
            f"the description has {len(wanted)} inputs, the program {len(found)} "
            f"({', '.join(spec.name for spec in found)})",
        )
    names = [spec.name for spec in wanted or found]
    return tuple(
        TensorSpec(name=name, dtype=spec.dtype, shape=spec.shape)
        for name, spec in zip(names, found, strict=True)
    )


def _load_program(path: Path, *, trust: bool) -> Any:
    if not trust:
        _refuse_code(path)
    torch = need("torch")
    try:
        with _weights_only(not trust):
            return torch.export.load(str(path))
    except Exception as error:  # damaged archives fail in many places
        raise _unreadable(path, error) from None


def _refuse_code(path: Path) -> None:
    """Refuses what could run code when read or later: see `artifacts.detection.detect_pt2`."""
    try:
        check_pt2(path.parent, path.name, trusted=False)
    except CallerError as error:
        if error.code != "artifact-untrusted":
            raise CallerError("source-damaged", error.message, hint=error.hint) from None
        raise CallerError(
            "source-untrusted",
            error.message,
            hint="Export the model without custom objects, or give --trust if you made the file "
            "yourself.",
        ) from None


@contextmanager
def _weights_only(wanted: bool) -> Iterator[None]:
    """Forbids pickles: torch.export.load unpickles sample inputs unless this variable forbids
    it."""
    before = os.environ.get(_FORCE_SAFE)
    if wanted:
        os.environ[_FORCE_SAFE] = "1"
    try:
        yield
    finally:
        if wanted and before is None:
            del os.environ[_FORCE_SAFE]
        elif before is not None:
            os.environ[_FORCE_SAFE] = before


def _load_module(source: Source, *, trust: bool) -> Any:
    torch, path = need("torch"), source.file
    assert path is not None
    try:
        if source.kind == TORCHSCRIPT:
            return torch.jit.load(str(path), map_location="cpu").eval()
        assert trust  # else `open_source` has refused it
        module = torch.load(str(path), map_location="cpu", weights_only=False)
    except Exception as error:  # an unpickler can raise anything
        raise _unreadable(path, error) from None
    if not isinstance(module, torch.nn.Module):
        raise CallerError(
            "source-unknown",
            f"{path.name} holds a {type(module).__name__}, not a model: there is no graph",
            hint="Export the model with torch.export.save, or save it as a Hugging Face directory.",
        )
    return module.eval()


def _unreadable(path: Path, error: Exception) -> CallerError:
    return CallerError(
        "source-damaged",
        f"{path.name}: PyTorch can't load it: {first_line(error)[:300]}",
        hint="Copy it again, or export it with this PyTorch.",
    )
