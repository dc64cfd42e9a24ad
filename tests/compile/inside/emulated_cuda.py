"""PyTorch with an emulated `torch.cuda` on the CPU: streams, and graphs that replay their kernels.

A capture records every operator with its very tensors; a replay runs the same operators on the same
memory, and writes into the tensors that the capture made: what a CUDA graph does. Waiting for the
GPU in a capture fails, as it does there. Device tensors are CPU tensors apart from the host's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_WAITS = ("aten._local_scalar_dense", "aten.item", "aten.nonzero")


class _Recorder(TorchDispatchMode):
    def __init__(self, graph: CUDAGraph) -> None:
        super().__init__()
        self.graph = graph

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if str(func).startswith(_WAITS):
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        made = func(*args, **(kwargs or {}))
        self.graph.kernels.append((func, args, kwargs or {}, made))
        return made


class CUDAGraph:
    def __init__(self) -> None:
        self.kernels: list[tuple[Any, Any, Any, Any]] = []
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for func, args, kwargs, made in self.kernels:
            again = func(*args, **kwargs)
            for old, new in zip(tree_leaves(made), tree_leaves(again), strict=True):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class _Stream:
    def __init__(self, device: Any = None) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1


@contextlib.contextmanager
def _graph(graph: CUDAGraph, *, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
    assert capture_error_mode == "thread_local"
    with _Recorder(graph):
        yield


class Emulated:
    """Stands where the module `torch` is passed."""

    def __init__(self) -> None:
        self.graphs: list[CUDAGraph] = []
        self.cuda = SimpleNamespace(
            is_available=lambda: False,
            Stream=_Stream,
            stream=lambda stream: contextlib.nullcontext(),
            graph=_graph,
            CUDAGraph=self._graph,
            graph_pool_handle=object,
            empty_cache=lambda: None,
            get_device_name=lambda device: "emulated",
            OutOfMemoryError=torch.cuda.OutOfMemoryError,
        )

    def _graph(self) -> CUDAGraph:
        self.graphs.append(CUDAGraph())
        return self.graphs[-1]

    def zeros(self, *args: Any, pin_memory: bool = False, **more: Any) -> Any:
        return torch.zeros(*args, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)
