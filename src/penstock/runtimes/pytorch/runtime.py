"""PyTorch programs as a tensor runtime, on a GPU or on the CPU.

On a GPU every lane has a stream of its own. Shapes that the description declares (rows up to
`batching.rows_max` in powers of two, lengths of `batching.buckets`) are captured as CUDA graphs
when the model is loaded; a batch is padded with copies of its first row to the next such shape. Any
other shape runs kernel by kernel. On the CPU programs run as they are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from penstock.artifacts.description.description import Batching, TensorSpec
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext, Tensors
from penstock.runtimes.pytorch.library import (
    STREAMS,
    CapturedGraph,
    Graphs,
    compiles,
    device_of,
    failed,
    is_gpu,
    shown,
    torch_library,
)
from penstock.runtimes.pytorch.program import DTYPES, Program, load_program
from penstock.runtimes.tensor_bytes import NUMPY, prepared, row_steps, threads_of

#: Graphs per lane: each takes some 0.1 s to capture and a few MB of the driver's memory.
GRAPHS_MAX = 96

Shape = tuple[int, ...]
Key = tuple[Shape, ...]  #: the shape of each input


class TorchRuntime:
    """A TensorRuntime. Raises ModelError when the file or the device cannot be used."""

    def __init__(self, context: LoadContext) -> None:
        torch = torch_library()
        description = context.description
        self.lanes = max(1, description.lanes)
        device = device_of(torch, description, accelerators=context.accelerators)
        # This is a setting of the whole process: with several models, the last one loaded decides.
        torch.set_num_threads(threads_of(context, self.lanes))
        program = load_program(
            torch,
            context.model_dir,
            description.file,
            device,
            inputs=description.inputs,
            outputs=description.outputs,
            lanes=self.lanes,
            inductor=compiles(description),
            trusted=description.trusted,
        )
        self.inputs, self.outputs = program.inputs, program.outputs
        for spec in self.inputs + self.outputs:
            if spec.dtype not in NUMPY:
                raise ModelError(
                    "unsupported-dtype",
                    f"{description.file}: tensor {spec.name!r} has a dtype that can't be sent",
                    hint="Export the model with a cast to FP32 at its edges.",
                )
        self._torch = torch
        self._tables = program.rows_of_table
        self._lost: ModelError | None = None
        rows_max = description.batching.rows_max
        self._lanes: list[CpuLane] = [
            CudaLane(torch, program, device, rows_max) if is_gpu(device) else
            CpuLane(torch, program) for _ in range(self.lanes)
        ]  # fmt: skip
        context.log(shown(torch, device))
        tokens_max = description.tokenizer.tokens_max if description.tokenizer else None
        shapes = list(declared(self.inputs, description.batching, tokens_max))
        if not is_gpu(device) and not compiles(description):
            shapes = []
        self._warm_up(shapes, context)

    def run(self, lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        if self._lost is not None:
            raise self._lost
        arrays = dict(prepared(self.inputs, inputs))
        for name, rows in self._tables.items():
            _check_indexes(name, arrays[name], rows)
        try:
            answers = self._lanes[lane].run(list(arrays.values()))
        except Exception as error:  # PyTorch raises RuntimeError, AssertionError and its own kinds
            told = failed(self._torch, error)
            if told.code == "device-lost":
                self._lost = told
            raise told from None
        return {spec.name: array for spec, array in zip(self.outputs, answers, strict=True)}

    def close(self) -> None:
        lanes = [lane for lane in self._lanes if isinstance(lane, CudaLane)]
        self._lanes = []
        for lane in lanes:
            lane.close()
        if lanes and self._lost is None:
            self._torch.cuda.empty_cache()

    def _warm_up(self, shapes: Sequence[Key], context: LoadContext) -> None:
        """On a GPU, captures graphs. A program to be compiled is compiled before the first call."""
        until = time.monotonic() + context.startup_timeout_s / 2
        done = 0
        for at, lane in enumerate(self._lanes):
            for shape in shapes[-GRAPHS_MAX:]:  # the smallest shapes, which are the likeliest
                if time.monotonic() > until:
                    context.log(f"lane {at}: {done} of {len(shapes)} shapes were prepared in time")
                    return
                try:
                    lane.prepare(shape)
                except Exception as error:
                    raise failed(self._torch, error) from None
                done += 1
            if isinstance(lane, CudaLane):
                context.log(lane.told(len(shapes)))


class CpuLane:
    """Runs a program as it is; base class of all lanes."""

    def __init__(self, torch: Any, program: Program) -> None:
        self._torch = torch
        self._program = program
        self._dtypes = [
            getattr(torch, DTYPES[spec.dtype]) if spec.dtype == "BF16" else None
            for spec in program.inputs
        ]

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        with self._torch.inference_mode():
            return [_array(self._torch, each) for each in self._program.call(*self._given(arrays))]

    def prepare(self, shape: Key) -> None:
        self.run(_zeros(self._program.inputs, shape))

    def _given(self, arrays: list[np.ndarray]) -> list[Any]:
        tensors = []
        for array, dtype in zip(arrays, self._dtypes, strict=True):
            # PyTorch has no read-only tensors, and warns about memory that it must not write to.
            tensor = self._torch.from_numpy(array if array.flags.writeable else array.copy())
            tensors.append(tensor if dtype is None else tensor.to(dtype))
        return tensors


class _Slot:
    """A captured shape, its buffers on host and device, and numpy views of them."""

    __slots__ = ("answers", "arrays", "given", "graph", "inputs", "read")

    def __init__(self, given: list[Any], inputs: list[Any], graph: CapturedGraph) -> None:
        self.given = given  #: pinned memory of the host, which the GPU reads itself
        self.arrays: list[np.ndarray] = [each.numpy() for each in given]
        self.inputs = inputs
        self.graph = graph
        self.answers: list[Any] = []
        self.read: list[np.ndarray] = []


class CudaLane(CpuLane):
    """One stream with its graphs. Calls block until the answer is on the host."""

    def __init__(self, torch: Any, program: Program, device: Any, rows_max: int) -> None:
        super().__init__(torch, program)
        self._device = device
        self._steps = row_steps(rows_max)
        self._stream = STREAMS.take(torch, device)
        self._graphs = Graphs(torch, self._stream, reason=program.not_captured)
        self._slots: dict[Key, _Slot] = {}

    def close(self) -> None:
        """Frees the graphs. No `run` may be under way, nor come any more."""
        self._slots = {}
        STREAMS.give(self._device, self._stream)

    def told(self, shapes: int) -> str:
        """A text for the log: what was captured, and why not more."""
        reason = f": {self._graphs.reason}" if self._graphs.reason else ""
        return f"{self._graphs.count} CUDA graphs for {shapes} shapes{reason}"

    def prepare(self, shape: Key) -> None:
        torch = self._torch
        specs = self._program.inputs
        with torch.inference_mode(), torch.cuda.stream(self._stream):
            given = [
                torch.zeros(sizes, dtype=getattr(torch, _host_dtype(spec)), pin_memory=True)
                for spec, sizes in zip(specs, shape, strict=True)
            ]
            inputs = [
                torch.zeros(sizes, dtype=getattr(torch, DTYPES[spec.dtype]), device=self._device)
                for spec, sizes in zip(specs, shape, strict=True)
            ]
            graph = self._graphs.captured(lambda: self._program.call(*inputs))
            if graph is None:
                return
            slot = _Slot(given, inputs, graph)
            for tensor in graph.outputs:
                dtype = torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype
                answer = torch.zeros(tensor.shape, dtype=dtype, pin_memory=True)
                slot.answers.append(answer)
                slot.read.append(answer.numpy())
            self._slots[shape] = slot

    def run(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        rows = len(arrays[0]) if arrays and arrays[0].ndim else 0
        padded = next((step for step in self._steps if step >= rows), rows)
        slot = self._slots.get(tuple(
            (padded, *each.shape[1:]) if self._steps else each.shape for each in arrays
        ))  # fmt: skip
        with self._torch.inference_mode(), self._torch.cuda.stream(self._stream):
            if slot is None:
                given = [each.to(self._device) for each in self._given(arrays)]
                return [_array(self._torch, each) for each in self._program.call(*given)]
            for array, buffer in zip(arrays, slot.arrays, strict=True):
                if self._steps:
                    buffer[:rows] = array
                    buffer[rows:] = array[:1]  # any valid row: its results are dropped
                else:
                    buffer[...] = array
            for tensor, host in zip(slot.inputs, slot.given, strict=True):
                tensor.copy_(host, non_blocking=True)
            slot.graph.replay()
            for host, tensor in zip(slot.answers, slot.graph.outputs, strict=True):
                host.copy_(tensor, non_blocking=True)
            self._stream.synchronize()
        return [np.array(each[:rows] if self._steps else each) for each in slot.read]


def declared(
    inputs: Sequence[TensorSpec], batching: Batching, tokens_max: int | None = None
) -> Iterator[Key]:
    """The shapes that the description promises, largest first, so that small ones fit into the
    memory of large ones; none where a length is free and no bucket bounds it."""
    rows_steps = row_steps(batching.rows_max)
    free = any(-1 in spec.shape[1 if rows_steps else 0 :] for spec in inputs)
    longest = tokens_max or max(batching.buckets, default=0)  # as the text tasks limit buckets
    lengths = sorted({min(each, longest) for each in batching.buckets}) if free else [0]
    for length, rows in product(reversed(lengths), reversed(rows_steps or (0,))):
        yield tuple(
            tuple(
                (rows if at == 0 and rows_steps else length) if size == -1 else size
                for at, size in enumerate(spec.shape)
            )
            for spec in inputs
        )


def _zeros(inputs: Sequence[TensorSpec], shape: Key) -> list[np.ndarray]:
    return [
        np.zeros(sizes, dtype=NUMPY[spec.dtype]) for spec, sizes in zip(inputs, shape, strict=True)
    ]


def _host_dtype(spec: TensorSpec) -> str:
    """numpy has no BF16: such a tensor is narrowed on its way to the GPU."""
    return "float32" if spec.dtype == "BF16" else DTYPES[spec.dtype]


def _array(torch: Any, tensor: Any) -> np.ndarray:
    """A copy of the tensor: an answer may be an unchanged input, whose memory is the caller's."""
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.float()
    return np.array(tensor.cpu().numpy())


def _check_indexes(name: str, array: np.ndarray, rows: int) -> None:
    if array.size and (int(array.min()) < 0 or int(array.max()) >= rows):
        raise ModelError(
            "input-out-of-range",
            f"{name!r} has the id {int(array.max() if array.max() >= rows else array.min())}; the "
            f"model knows 0 to {rows - 1}",
            hint="Check that the tokenizer belongs to this model.",
            original_status=400,
        )
