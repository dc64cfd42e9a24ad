"""PyTorch and the device that a model asks for; imported when the first such model is loaded.

A process without a model of this runtime never imports PyTorch, which takes seconds and hundreds of
megabytes. All modules of `runtimes/pytorch` get it from here, so one place says what to install,
and which devices exist.

Also CUDA graphs of one stream (`Graphs`): work whose kernels are recorded once and started with one
call. On a GPU, a small model's time is that of starting its kernels, some hundreds of them; a graph
starts all of them at once. It always reads and writes the same memory, so its inputs are buffers
that are filled before, and its outputs are copied before anything else runs on the stream.

Graphs of one stream share one pool of memory. That is sound because they are replayed one at a time
and no result is needed after the next replay has begun (PyTorch, "CUDA semantics", graph memory
management). A failed capture is no error: the reason is kept, and the work runs without a graph.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

from penstock.artifacts.description.description import ModelDescription
from penstock.distribution import install_command
from penstock.errors import ModelError

#: Key of `parameters` in model.yaml: cpu, cuda or cuda:1; left out: a GPU if the instance has one.
DEVICE_PARAMETER = "torch_device"
#: Key of `parameters`: "true" compiles the program with TorchInductor when it is loaded.
COMPILE_PARAMETER = "torch_compile"
_FLAGS = {"": False, "false": False, "true": True}


def torch_library() -> Any:
    """The module. Raises ModelError (`runtime-not-installed`, `runtime-broken`)."""
    try:
        return importlib.import_module("torch")
    except ModuleNotFoundError:
        raise ModelError(
            "runtime-not-installed",
            "the model is a PyTorch program, and PyTorch is not installed here",
            hint="Compile the model for a cpu-... target, or install it on this machine: "
            + install_command("torch"),
        ) from None
    except (ImportError, OSError, RuntimeError) as error:
        words = " ".join(str(error).split())[:300]
        raise ModelError(
            "runtime-broken",
            f"PyTorch can't be imported: {words}",
            hint="Reinstall it, in the build for this machine's CUDA version: "
            + install_command("torch"),
        ) from None


def device_of(torch: Any, description: ModelDescription, *, accelerators: int) -> Any:
    """The `torch.device` to run on; `accelerators`: the number that the instance has.

    Raises ModelError (`device-unknown`, `device-absent`).
    """
    wanted = description.parameters.get(DEVICE_PARAMETER, "")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not wanted:
        return torch.device("cuda", 0) if gpus and accelerators else torch.device("cpu")
    kind, _, number = wanted.partition(":")
    if kind not in ("cpu", "cuda") or (kind == "cpu" and number) or (number and not _is(number)):
        raise ModelError(
            "device-unknown",
            f"parameters.{DEVICE_PARAMETER} is {wanted!r}",
            hint="Use cpu, cuda, or cuda:N for the GPU number N.",
        )
    if kind == "cpu":
        return torch.device("cpu")
    index = int(number or 0)
    if index >= gpus:
        raise ModelError(
            "device-absent",
            f"parameters.{DEVICE_PARAMETER} is {wanted!r}, and PyTorch sees "
            f"{f'{gpus} GPUs' if gpus else 'no GPU'} here",
            hint="Serve the model on an instance type with an NVIDIA GPU (and PyTorch in its CUDA "
            "build), or compile it for a cpu-... target.",
        )
    return torch.device("cuda", index)


def is_gpu(device: Any) -> bool:
    """Whether it has memory of its own, and streams."""
    return bool(device.type == "cuda")


def compiles(description: ModelDescription) -> bool:
    """Whether the program is to be compiled. Raises ModelError (`parameter-invalid`)."""
    given = description.parameters.get(COMPILE_PARAMETER, "")
    if given not in _FLAGS:
        raise ModelError(
            "parameter-invalid",
            f"parameters.{COMPILE_PARAMETER} is {given!r}",
            hint="Use true or false.",
        )
    return _FLAGS[given]


def shown(torch: Any, device: Any) -> str:
    """A text for the log: the library and the chip."""
    name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    return f"PyTorch {torch.__version__} on {device}{name}"


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[0][:400]


def failed(torch: Any, error: Exception) -> ModelError:
    """The error of a failed run, in a user's words."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return ModelError(
            "out-of-memory",
            f"the GPU has no memory for this batch: {first_line(error)}",
            hint="Lower batching.rows_max or the longest bucket in model.yaml, or serve fewer "
            "copies on this GPU.",
        )
    if "CUDA error" in str(error):
        lost = ModelError(
            "device-lost",
            f"the GPU's context is lost: {first_line(error)}",
            hint="Nothing can run on it in this process any more: the instance must be replaced.",
        )
        lost.ends_process = True
        return lost
    return ModelError("model-failed", f"the model failed: {first_line(error)}")


def _is(number: str) -> bool:
    return number.isascii() and number.isdigit() and len(number) <= 3


#: Runs before a capture: libraries choose and load their kernels then, which a capture forbids.
_RUNS_BEFORE = 3
#: PyTorch allows only one capture at a time in a process.
_capturing = threading.Lock()


class CapturedGraph:
    """Captured work. `outputs` are its tensors, written anew by every `replay`."""

    __slots__ = ("_graph", "outputs", "replay")

    def __init__(self, graph: Any, outputs: Any) -> None:
        self._graph = graph
        self.replay: Callable[[], None] = graph.replay
        self.outputs = outputs


class Streams:
    """Streams of lanes, used again by later lanes. PyTorch keeps the memory that cuBLAS works in
    (tens of MB) for each stream that was ever used, and graphs refer to it, so it can't be freed:
    with new streams each model that is loaded and unloaded would leave its own behind."""

    def __init__(self) -> None:
        self._free: dict[str, list[Any]] = {}  #: by device
        self._lock = threading.Lock()

    def take(self, torch: Any, device: Any) -> Any:
        with self._lock:
            free = self._free.get(str(device))
            return free.pop() if free else torch.cuda.Stream(device)

    def give(self, device: Any, stream: Any) -> None:
        """The stream is nobody's any more, and all work on it is done."""
        with self._lock:
            self._free.setdefault(str(device), []).append(stream)


#: All models of a process share it.
STREAMS = Streams()


class Graphs:
    """Captures on `stream`; not for several threads at once."""

    def __init__(self, torch: Any, stream: Any, *, reason: str = "") -> None:
        self._torch = torch
        self._stream = stream
        self._pool = torch.cuda.graph_pool_handle()
        self.reason = reason  #: why nothing is captured (any more); "" = captures work
        self.count = 0

    def captured(self, work: Callable[[], Any]) -> CapturedGraph | None:
        """Runs `work` some times and records it. None where it can't be recorded.

        `work` must read and write fixed tensors alone, and is run repeatedly on the same inputs.
        Raises what `work` itself raises when it is run without recording.
        """
        if self.reason:
            return None
        torch = self._torch
        with torch.cuda.stream(self._stream):
            for _ in range(_RUNS_BEFORE):
                work()
            self._stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                # Thread-local mode: other lanes go on meanwhile and may make any call.
                with (
                    _capturing,
                    torch.cuda.graph(
                        graph,
                        pool=self._pool,
                        stream=self._stream,
                        capture_error_mode="thread_local",
                    ),
                ):
                    outputs = work()
            except RuntimeError as error:  # raised by CUDA, by the allocator and by PyTorch
                self.reason = _told(error)
                return None
        self.count += 1
        return CapturedGraph(graph, outputs)


def _told(error: BaseException) -> str:
    """The original error of a failed capture; PyTorch raises another one when the capture ends."""
    cause = error.__context__
    return first_line(cause) if isinstance(cause, RuntimeError) else first_line(error)
