"""ONNX and OpenVINO IR on OpenVINO: one compiled model, one infer request per lane.

Frequent shapes get a graph of their own beside the general one (`shapes.py`). A small model of a
job is compiled once for each lane: a graph of one stream runs on the lane's own thread. One of
several streams passes each batch to a thread of OpenVINO's and waits for it: that takes 0.5 ms of a
batch of 18 ms, and none of the lane's core while nothing runs.

String tensors are not passed in: OpenVINO's string support has been seen to corrupt the heap, so
the loader gives such models to ONNX Runtime. Inputs are shared with OpenVINO without a copy while
`run` blocks; outputs are copied, because the lane's next run overwrites them.

OpenVINO stores what it compiled from a file as a blob, which the next load maps into memory. It
identifies a graph by the content of all its weights, but a file by its path and time. For
a file it reads neither graph nor weights again, only the blob: loading 292 MB of a BERT shape took
0.20 s of a core by file, 0.30 s by content, and 0.40 s without a blob. So each file has a folder of
blobs, named after all that identifies it: artifacts are stored under the digest of their content
and never change.

A graph that is changed after reading (its batch size freed) is identified by its content.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.artifacts.description.description import TensorSpec
from penstock.artifacts.files.model_files import SAVED_MODEL
from penstock.artifacts.files.onnx_header import operators_of
from penstock.core.batching.hot_shapes import Shape
from penstock.errors import ModelError
from penstock.runtimes.base import (
    LoadContext,
    NativeRun,
    OperatorsMissingError,
    PackedTexts,
    Tensors,
)
from penstock.runtimes.native import native_lane
from penstock.runtimes.openvino.fixed_graphs import answer, library
from penstock.runtimes.openvino.packed_graphs import PackedGraphs, packs
from penstock.runtimes.openvino.shape_blobs import ShapeBlobs
from penstock.runtimes.openvino.shapes import (
    ShapeGraphs,
    bytes_max,
    graph_bytes,
    weights_bytes,
    worth_it,
)
from penstock.runtimes.processor import instruction_set_here
from penstock.runtimes.tensor_bytes import NUMPY, prepared, threads_of

#: Names of operators in OpenVINO's words.
_NAMES: Final = re.compile(r"[A-Za-z0-9_.]+")
#: Subfolder of the folder for all compiled blobs.
_FOLDER: Final = "files"
#: Graphs of padded shapes of a model whose texts are packed: what is too long for that
_PADDED_MAX: Final = 4


class FileBlobs:
    """The blobs of one model file. `batch_freed`: whether its batch size is to be freed."""

    def __init__(self, path: Path, cache_dir: Path, *, batch_freed: bool) -> None:
        self._path = path
        beside = (path.with_suffix(".bin"), path.with_name(path.name + ".data"))
        facts = [str(path), str(batch_freed)]
        for file in (path, *beside):
            with suppress(OSError):  # not every format has each of these files
                found = file.stat()
                facts.append(f"{file.name} {found.st_size} {found.st_mtime_ns} {found.st_ino}")
        key = hashlib.sha256("\0".join(facts).encode()).hexdigest()
        self.folder = cache_dir / _FOLDER / key

    def were_made(self) -> bool:
        """Whether the file itself was compiled before. Notes that its blobs are used again."""
        blobs = list(self.folder.glob("*.blob"))
        for blob in blobs:
            with suppress(OSError):  # just deleted, or another user's
                os.utime(blob)
        return bool(blobs)

    def compiled(self, core: Any, config: dict[str, Any]) -> Any:
        """The model, from the blob if there is one for these settings; else compiled now. Raises
        what OpenVINO raises."""
        source, settings = str(_source(self._path)), {**config, "CACHE_DIR": str(self.folder)}
        return core.compile_model(source, "CPU", settings)


_DTYPES = {
    "boolean": "BOOL",
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "i8": "INT8",
    "i16": "INT16",
    "i32": "INT32",
    "i64": "INT64",
    "f16": "FP16",
    "f32": "FP32",
    "f64": "FP64",
    "string": "BYTES",
}

_core: Any = None
_core_lock = threading.Lock()


def shared_core() -> Any:
    """One Core per process: it owns the plugins and their thread pools."""
    global _core  # noqa: PLW0603 - a process-wide library handle, guarded by its lock
    import openvino

    with _core_lock:
        if _core is None:
            _core = openvino.Core()
            # OpenVINO 2026.4.1 builds its table of dtypes on first use. Two threads that do so at
            # once deadlock for ever, and the interpreter with them (13 of 25 tries).
            openvino.Type.f32.to_dtype()
        return _core


def read_once(file: str) -> None:
    """Reads the file in a process that may crash (`probe`). Raises OperatorsMissingError, or
    ValueError with OpenVINO's words."""
    core = shared_core()
    properties = {"INFERENCE_NUM_THREADS": 1, **arithmetic("")}
    try:
        core.compile_model(core.read_model(str(_source(Path(file)))), "CPU", properties)
    except Exception as error:
        missing = _missing(file, str(error))
        if missing:
            raise OperatorsMissingError(missing) from None
        raise ValueError(_first_line(error)) from None


def _missing(file: str, words: str) -> tuple[str, ...]:
    """The operators of an ONNX file that OpenVINO could not convert: those that its words name, or
    those of other domains than the standard's. (`convert_partially` would leave them in its graph,
    and crashes on files of scikit-learn's converter in OpenVINO 2026.4.1.)"""
    if not file.endswith(".onnx"):
        return ()
    try:
        operators = operators_of(Path(file))
    except ValueError:
        return ()
    named = set(_NAMES.findall(words))
    found = [name for name in operators if name in named]
    return tuple(found or [name for name in operators if "." in name])


def _source(path: Path) -> Path:
    """What OpenVINO is told to read: a SavedModel is the folder of its graph and its variables."""
    return path.parent if path.name == SAVED_MODEL else path


class OpenVinoRuntime:
    """A TensorRuntime. Raises ModelError when the file cannot be read or compiled."""

    def __init__(self, context: LoadContext) -> None:
        description = context.description
        path = context.model_dir / description.file
        self.lanes = max(1, description.lanes)
        each_its_own = _each_its_own(context, self.lanes, path)
        config = _config(context, 1 if each_its_own else self.lanes, self.lanes)
        rows_max, cache_dir = description.batching.rows_max, context.cache_dir
        try:
            graphs = [
                _compiled(path, rows_max, config, cache_dir)
                for _ in range(self.lanes if each_its_own else 1)
            ]
        except Exception as error:  # OpenVINO raises RuntimeError and its own kinds alike
            raise _unreadable(description.file, error) from None
        compiled = graphs[0]
        self.inputs = tuple(_spec(port, description.inputs) for port in compiled.inputs)
        self.outputs = tuple(_spec(port, description.outputs) for port in compiled.outputs)
        for spec in self.inputs + self.outputs:
            if spec.dtype == "BYTES":
                raise ModelError(
                    "string-tensor",
                    f"{description.file}: {spec.name!r} is a string tensor",
                    hint="Name the runtime onnxruntime in model.yaml.",
                )
        self._requests = [
            graphs[lane % len(graphs)].create_infer_request() for lane in range(self.lanes)
        ]
        self._compiled = graphs
        self._graphs: ShapeGraphs | None = None
        self._packed: PackedGraphs | None = None
        self._pack: Callable[[], PackedGraphs] | None = None
        self._specialise(context, config, path)

    def _specialise(self, context: LoadContext, config: Mapping[str, Any], path: Path) -> None:
        """Graphs of single shapes. A model that takes one shape only, keeps state, or is too large
        has none; nor one of many models, which have no memory to spare; nor a job's, whose answers
        must not depend on when a graph was compiled; nor any where no cache keeps them."""
        if context.target_model or context.offline or context.cache_dir is None:
            return
        rows_max = context.description.batching.rows_max
        if library() is None or any(spec.dtype == "BF16" for spec in self.inputs + self.outputs):
            return
        fixed = all(size >= 0 for spec in self.inputs for size in spec.shape)
        size, limit = graph_bytes(weights_bytes(path)), bytes_max(context.memory_bytes_max)
        if fixed or not worth_it(size, limit):
            return
        model, _ = read_model(path, rows_max)
        if model.get_variables():
            return
        if native_lane() is None:
            context.log(
                "lanes: the code in C was not built here, so answers take up to twice as long "
                "under load; install a C compiler and Python's headers, then Penstock again"
            )
        blobs = FileBlobs(path, context.cache_dir, batch_freed=rows_max >= 1)
        outputs = {spec.name: NUMPY[spec.dtype] for spec in self.outputs}
        graphs = partial(
            ShapeBlobs, path, blobs.folder, rows_max=rows_max, config=config, outputs=outputs
        )
        padded = graphs(inputs=[NUMPY[spec.dtype] for spec in self.inputs])
        self._graphs = ShapeGraphs(padded, lanes=self.lanes, size=size, limit=limit)
        if rows_max > 1 and packs(size, limit):
            self._pack = partial(
                PackedGraphs, graphs(inputs=(), packed=True), lanes=self.lanes, size=size,
                limit=limit, texts_max=rows_max, known=partial(self._graphs.allow, _PADDED_MAX),
            )  # fmt: skip

    def packed_texts(self) -> PackedTexts | None:
        """Runs of texts side by side, for an encoder of texts; None: this model never has them.
        Asked once."""
        if self._packed is None and self._pack is not None:
            self._packed = self._pack()
        return self._packed

    def run(self, lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        arrays = {at: array for at, (_, array) in enumerate(prepared(self.inputs, inputs))}
        if self._graphs is not None:
            fixed = self._graphs.take(tuple([array.shape for array in arrays.values()]))
            if fixed is not None:
                return answer(fixed, list(arrays.values()))
        try:
            results = self._requests[lane].infer(arrays, share_inputs=True, share_outputs=True)
        except Exception as error:
            raise ModelError("model-failed", f"the model failed: {_first_line(error)}") from None
        return {spec.name: np.array(results[at], copy=True) for at, spec in enumerate(self.outputs)}

    def native_run(self, shape: Shape) -> NativeRun | None:
        """A run of a graph for this shape of the inputs, in their order; None: there is none, call
        `run`."""
        if self._graphs is None or not self._graphs.has(shape):
            return None
        return self._graphs.take(shape)

    def wait_compiled(self) -> None:
        """Returns once no graph is being compiled; for measurements."""
        for graphs in (self._packed, self._graphs):
            if graphs is not None:
                graphs.wait_built()

    def release_memory(self) -> None:
        """Frees the tensors between operations that runs keep for the next one; they are as large
        as the largest batch so far. The next run allocates them again, in about a millisecond.
        Waits for running calls."""
        for compiled in self._compiled:
            compiled.release_memory()

    def close(self) -> None:
        for graphs in (self._packed, self._graphs):
            if graphs is not None:
                graphs.close()
        self._packed = self._graphs = self._pack = None
        # Whoever holds a graph last frees it, for 7 ms where it has 22 MB: a request does that
        # without the interpreter's lock, a compiled model does not.
        self._compiled = []
        self._requests = []


def _each_its_own(context: LoadContext, lanes: int, path: Path) -> bool:
    """Whether each lane has a graph of its own: in a job, where all of them fit into the memory
    that graphs may take beside the first. For a large model a batch takes so long that passing it
    to another thread costs nothing noticeable."""
    if not context.offline or lanes == 1:
        return False
    more_bytes = (lanes - 1) * graph_bytes(weights_bytes(path))
    return more_bytes <= bytes_max(context.memory_bytes_max)


def _compiled(path: Path, rows_max: int, config: Mapping[str, Any], cache_dir: Path | None) -> Any:
    core = shared_core()
    blobs = None
    if cache_dir is not None:
        blobs = FileBlobs(path, cache_dir, batch_freed=rows_max >= 1)
        if blobs.were_made():
            return blobs.compiled(core, dict(config))
    model, changed = read_model(path, rows_max)
    if blobs is not None and not changed:
        return blobs.compiled(core, dict(config))
    by_content = {} if cache_dir is None else {"CACHE_DIR": str(cache_dir)}
    return core.compile_model(model, "CPU", {**config, **by_content})


def read_model(path: Path, rows_max: int) -> tuple[Any, bool]:
    """The graph, and whether it differs from the file's."""
    model = shared_core().read_model(str(_source(path)))
    return model, _free_batch(model, rows_max)


def _free_batch(model: Any, rows_max: int) -> bool:
    """Lets a model that was exported with a fixed batch size take any, where its graph allows
    it."""
    if rows_max < 1:
        return False
    shapes = {}
    for port in model.inputs:
        shape = port.get_partial_shape()
        if shape.rank.is_static and len(shape) and shape[0].is_static:
            shape[0] = -1
            shapes[port] = shape
    if shapes:
        # A graph that depends on its batch size raises: it then runs at that size only.
        with suppress(RuntimeError):
            model.reshape(shapes)
    return bool(shapes)


def _config(context: LoadContext, streams: int, lanes: int) -> Mapping[str, Any]:
    """`streams`: of one graph; `lanes`: of all graphs."""
    config: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads_of(context, lanes) * streams,
        "NUM_STREAMS": streams,
        "PERFORMANCE_HINT": "LATENCY" if streams == 1 else "THROUGHPUT",
        "ENABLE_CPU_PINNING": False,  # several copies and processes share the cores
    }
    config.update(arithmetic(context.description.precision))
    return config


#: For INT8 weights of models that write text: activations are rounded to 8 bits in groups of this
#: many, each with its own scale, each row by itself, so that mates have no effect. The products are
#: then of integers. T5: an encoder run takes a third of the time, and a step two thirds, of what it
#: takes with weights converted back; groups of 32, OpenVINO's own size, cost the encoder a tenth
#: more. A 135M Llama: groups of 32 take 1.15 to 1.27 times as long for a prompt, and 1.07 to 1.15
#: times as long for a step; groups of 192 are faster by another 4 to 8 %, but where some numbers
#: are much larger than the others, as in large language models, the answers' error is 1.4 times
#: that of 64.
ROUNDED_GROUP = 64


def arithmetic(precision: str, *, rounded_group: int | None = None) -> dict[str, Any]:
    """OpenVINO's properties for number formats, by the instruction set that is in force.

    OpenVINO looks at the processor, but oneDNN also at the variable ONEDNN_MAX_CPU_ISA. Where that
    excludes BF16 or VNNI, OpenVINO 2026.4.1 still plans for them, and finds no kernel or computes a
    wrong answer: so all is set here. On a processor that lacks them OpenVINO chooses the same.

    Args:
        precision: the description's; "" = the fastest that the processor has. BF16 becomes FP32
            where it would be emulated, which is many times slower.
        rounded_group: INT8 weights are multiplied by activations that are rounded in groups of this
            size, where the processor has instructions for it; None = OpenVINO's own size.
    """
    here = instruction_set_here()
    properties: dict[str, Any] = {}
    if precision == "bf16" and not here.bf16:
        precision = "f32"
    if precision:
        properties["INFERENCE_PRECISION_HINT"] = precision
    elif here.x86 and not here.bf16:
        properties["INFERENCE_PRECISION_HINT"] = "f32"
    if not here.rounds_activations:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    elif rounded_group is not None:
        properties["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = rounded_group
    return properties


def _spec(port: Any, described: tuple[TensorSpec, ...]) -> TensorSpec:
    shape = port.get_partial_shape()
    sizes = tuple(dimension.get_length() if dimension.is_static else -1 for dimension in shape)
    names = port.get_names()
    known = next((spec.name for spec in described if spec.name in names), None)
    name = known or (port.get_any_name() if names else port.get_node().get_friendly_name())
    kind = port.get_element_type().get_type_name()
    return TensorSpec(name=name, dtype=_DTYPES.get(kind, kind.upper()), shape=sizes)


def _unreadable(file: str, error: Exception) -> ModelError:
    return ModelError(
        "model-unreadable",
        f"{file}: OpenVINO cannot load it: {_first_line(error)}",
        hint="Compare the file with the original. If it is whole, OpenVINO does not take all of "
        "it: leave the runtime out, or export the model to ONNX with an older opset.",
    )


def _first_line(error: Exception) -> str:
    """The words of an error: OpenVINO's messages begin with the failed check and source
    positions."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '", "src/"))]
    return (telling or lines or [type(error).__name__])[0][:400]
