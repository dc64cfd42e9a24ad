"""CUDA graphs of one stream: work whose kernels are recorded once and started with one call.

On a GPU, a small model's time is that of starting its kernels, some hundreds of them; a graph
starts all of them at once. It always reads and writes the same memory, so its inputs are buffers
that are filled before, and its outputs are copied before anything else runs on the stream.

Graphs of one stream share one pool of memory. That is sound because they are replayed one at a time
and no result is needed after the next replay has begun (PyTorch, "CUDA semantics", graph memory
management). A failed capture is no error: the reason is kept, and the work runs without a graph.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.runtimes.pytorch.library import first_line

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
