"""A .pt2 file as a callable: programs of torch.export, packages of AOTInductor.

A program is checked against `artifacts.detect_pt2_rules` a second time here, on the bytes that
PyTorch's own reader returns: two readers of one archive may disagree. Guards in the file are Python
code to be executed, and are left out; bounds in the graph itself check sizes.

Knows files and devices; it must not know lanes or batches.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import TensorSpec
from penstock.artifacts.detection.detect_pt2 import PACKAGE, check_program, check_pt2
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.pytorch.library import first_line

_INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"
_NAMES = {
    "bool": "BOOL", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
    "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16",
}  # fmt: skip
DTYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(slots=True, kw_only=True)
class Program:
    """`call` takes tensors in the order of `inputs` and returns those of `outputs`."""

    call: Callable[..., list[Any]]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    #: Input -> rows of the table that it indexes. A GPU does not refuse an index that is too large:
    #: it loses its context, and with it every model of the process.
    rows_of_table: dict[str, int] = field(default_factory=dict)
    not_captured: str = ""  #: why it can't be captured in a CUDA graph; "" = it can


def load_program(
    torch: Any,
    root: Path,
    file: str,
    device: Any,
    *,
    inputs: tuple[TensorSpec, ...] = (),
    outputs: tuple[TensorSpec, ...] = (),
    lanes: int = 1,
    inductor: bool = False,
    trusted: bool = False,
) -> Program:
    """Blocks for as long as reading the weights takes.

    Args:
        inputs: as described; empty means the program's own names. `outputs` likewise.
        lanes: calls that may run at once.
        inductor: compile the program by torch.compile, in the first runs, for all sizes at once.
        trusted: the operator allows files that may hold code.

    Raises CallerError (as `check_pt2`), ModelError (`model-unreadable`, `tensor-mismatch`,
    `tensors-missing`).
    """
    if check_pt2(root, file, trusted=trusted) == PACKAGE:
        if inductor:
            raise ModelError(
                "parameter-invalid",
                f"{file} is compiled already, and torch_compile asks to compile it",
                hint="Leave parameters.torch_compile out.",
            )
        return _package(torch, root / file, device, inputs, outputs, lanes)
    exported, module = _exported(torch, root, file, device, trusted=trusted)
    found = _user_tensors(exported, exported.graph_signature.user_inputs)
    answered = _user_tensors(exported, exported.graph_signature.user_outputs)
    names = [f"output_{at}" for at in range(len(answered))]
    program = Program(
        call=_caller(torch, module, exported.call_spec.in_spec, len(found)),
        inputs=_named(found, inputs, "inputs", file),
        outputs=_named(
            [TensorSpec(name=name, dtype=spec.dtype, shape=spec.shape)
             for name, spec in zip(names, answered, strict=True)],
            outputs, "outputs", file,
        ),
    )  # fmt: skip
    if device.type != "cpu" and _makes_on_host(torch, exported):
        program.not_captured = "the program makes tensors on the host"
    if inductor:
        _keep_instruction_sets_apart(torch)
        program.call = torch.compile(program.call, dynamic=True)
    order = {spec.name: at for at, spec in enumerate(found)}
    program.rows_of_table = {
        program.inputs[order[name]].name: rows for name, rows in _tables(torch, exported).items()
    }
    return program


def _keep_instruction_sets_apart(torch: Any) -> None:
    """Gives every instruction set a TorchInductor cache of its own. Otherwise it finds code that
    was made for another vector width, and then computes only part of each vector (PyTorch 2.13)."""
    own = Path(tempfile.gettempdir()) / f"torchinductor_{os.getuid()}"
    place = os.environ.get(_INDUCTOR_CACHE) or str(own)  # importing TorchInductor sets the variable
    suffix = f"_{torch.backends.cpu.get_cpu_capability().lower()}"
    if not place.endswith(suffix):
        os.environ[_INDUCTOR_CACHE] = place + suffix


def _exported(torch: Any, root: Path, file: str, device: Any, *, trusted: bool) -> tuple[Any, Any]:
    """The exported program on its device, and the module that runs it."""
    path = str(root / file)
    try:
        if not trusted:
            reader = torch._C.PyTorchFileReader(path)
            check_program(reader.get_all_records(), reader.get_record, file=file)
        exported = torch.export.load(path)
        if _devices(torch, exported) - {device}:
            passes = importlib.import_module("torch.export.passes")
            exported = passes.move_to_device_pass(exported, str(device))
        return exported, exported.module(check_guards=False)
    except PenstockError:
        raise
    except Exception as error:  # damaged archives and other versions fail in many places
        raise _unreadable(file, error) from None


def _package(
    torch: Any,
    path: Path,
    device: Any,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    lanes: int,
) -> Program:
    if not inputs or not outputs:
        raise ModelError(
            "tensors-missing",
            f"{path.name} is a package of AOTInductor, which does not say what it takes",
            hint="Name its inputs and outputs, in their order, in model.yaml.",
        )
    package = importlib.import_module("torch._inductor.package")
    index = -1 if device.type == "cpu" else int(device.index)
    try:
        # Without the package's own locks it can be captured, but then it allows only one call at a
        # time.
        compiled = package.load_package(
            str(path), run_single_threaded=lanes == 1, num_runners=lanes, device_index=index
        )
    except Exception as error:
        raise _unreadable(path.name, error) from None
    made_for = str(compiled.get_metadata().get("AOTI_DEVICE_KEY", device.type))
    if made_for != device.type:
        raise ModelError(
            "device-mismatch",
            f"{path.name} was compiled for {made_for}, and the model runs on {device.type}",
            hint="Package it on a machine with the chip that will serve it.",
        )
    return Program(
        call=lambda *tensors: flattened(compiled(*tensors)),
        inputs=inputs,
        outputs=outputs,
        not_captured="" if lanes == 1 else "an AOTInductor package with several lanes",
    )


def flattened(answer: Any) -> list[Any]:
    """The tensors of an answer in order, however they are nested."""
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return [tensor for part in answer if part is not None for tensor in flattened(part)]
    return [answer]


def _caller(torch: Any, module: Any, in_spec: Any, count: int) -> Callable[..., list[Any]]:
    """Programs that were exported with keywords or nested inputs get them in that form."""
    pytree = torch.utils._pytree
    if in_spec == pytree.tree_structure((tuple(range(count)), {})):
        return lambda *tensors: flattened(module(*tensors))

    def call(*tensors: Any) -> list[Any]:
        arguments, keywords = pytree.tree_unflatten(list(tensors), in_spec)
        return flattened(module(*arguments, **keywords))

    return call


def _devices(torch: Any, exported: Any) -> set[Any]:
    """The devices of the program's tensors, and those on which its graph makes new ones."""
    tensors = [*exported.state_dict.values(), *exported.constants.values()]
    found = {each.device for each in tensors if isinstance(each, torch.Tensor)}
    for node in exported.graph.nodes:
        given = node.kwargs.get("device")
        if given is not None:
            found.add(torch.device(given))
    return found


def _makes_on_host(torch: Any, exported: Any) -> bool:
    """Whether the graph makes tensors on the host. A CUDA graph would copy from host memory that
    has other content by then."""
    return any(
        isinstance(value, torch.Tensor) and value.device.type == "cpu"
        for node in exported.graph.nodes
        for value in flattened(node.meta.get("val"))
    )


def _user_tensors(exported: Any, names: Sequence[Any]) -> list[TensorSpec]:
    nodes = {node.name: node for node in exported.graph.nodes}
    specs = []
    for name in names:
        value: Any = nodes[name].meta["val"] if name in nodes else None
        if not hasattr(value, "dtype"):
            raise ModelError(
                "tensors-missing",
                f"the program takes or answers {name!r}, which is no tensor",
                hint="Export it with tensors alone; other values are fixed by the export.",
            )
        dtype = _NAMES.get(str(value.dtype).removeprefix("torch."), "")
        shape = tuple(size if type(size) is int else -1 for size in value.shape)
        specs.append(TensorSpec(name=name, dtype=dtype, shape=shape))
    return specs


def _named(
    found: Sequence[TensorSpec], described: tuple[TensorSpec, ...], what: str, file: str
) -> tuple[TensorSpec, ...]:
    if described and len(described) != len(found):
        raise ModelError(
            "tensor-mismatch",
            f"the description names {len(described)} {what}, {file} has {len(found)}",
            hint="Name all of them, in their order, or none.",
        )
    names = [spec.name for spec in described or found]
    return tuple(
        TensorSpec(name=name, dtype=spec.dtype, shape=spec.shape)
        for name, spec in zip(names, found, strict=True)
    )


def _tables(torch: Any, exported: Any) -> dict[str, int]:
    """Inputs that are used directly as indexes into an embedding -> the rows of its table."""
    user = set(exported.graph_signature.user_inputs)
    casts = (torch.ops.aten.to.dtype, torch.ops.aten.view.default, torch.ops.aten.to.dtype_layout)
    found: dict[str, int] = {}
    for node in exported.graph.nodes:
        if node.op != "call_function" or node.target is not torch.ops.aten.embedding.default:
            continue
        index = node.args[1]
        while index.op == "call_function" and index.target in casts:
            index = index.args[0]
        if index.name in user:
            rows = int(node.args[0].meta["val"].shape[0])
            found[index.name] = min(rows, found.get(index.name, rows))
    return found


def _unreadable(file: str, error: Exception) -> ModelError:
    return ModelError(
        "model-unreadable",
        f"{file}: PyTorch can't load it: {first_line(error)}",
        hint="Check that the file is whole (its size and checksum), and export it with a PyTorch "
        "that is not newer than the one here.",
    )
