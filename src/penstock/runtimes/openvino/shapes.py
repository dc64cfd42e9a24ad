"""Graphs of one shape each beside an OpenVINO model that takes any (`core.hot_shapes` says which).

Both have the same operations on the same weights; their answers differ as those of two batch sizes
do. Measured on the query-intent classifier (3 MB, INT8, one thread, ms for rows x tokens): 8x8 0.95
general, 0.69 with its own shape, and 0.5 more for the general graph whenever the shape changes,
which under mixed traffic is nearly always.

Compiling takes 0.2 s of a core, and holds the interpreter for some ms: requests that come meanwhile
wait. So it is another process's work, and its result is kept in the machine's cache
(`shape_blobs.py`); until then the general graph answers. Every copy that is loaded later has all
these graphs before its first request; taking one over costs 30 ms.

Each graph holds its weights once more, and up to 10 MiB; its blob is mapped, once for all copies.
So memory is the bound: a quarter of the instance's, 256 MiB at most, for all models of the process
together. A model gets no such graph if four of them would not fit: it is large, its runs are long,
and there is little to gain.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock import scheduling
from penstock.core.batching.hot_shapes import HotShapes, Shape
from penstock.runtimes.openvino.fixed_graphs import FixedRun, FreeRuns
from penstock.runtimes.openvino.shape_blobs import ShapeBlobs, ShapeCompiler

_BYTES_MAX = 256 << 20
_MEMORY_SHARE = 1 / 4
_GRAPH_BYTES = 10 << 20  #: memory of one graph without its weights, measured
_GRAPHS_MAX = 16
#: A graph takes 0.2 s of a core, and its compiler 0.5 s to start; on a machine with time to spare
#: it is made by then.
_AS_GUEST_S_MAX = 2.0
_GRAPHS_MIN = 4


class GraphMemory:
    """Memory of the graphs of all models in this process; threads share it.

    Models whose graphs are made before they are asked for share it equally: where one more comes,
    each of the others gives up what is above its share, its rarest graphs first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0
        self._sharing: list[ShapeGraphs] = []
        self._dividing = threading.Lock()  #: the last to divide counts all that share

    def join(self, graphs: ShapeGraphs) -> None:
        with self._lock:
            self._sharing.append(graphs)
        self._divide()

    def leave(self, graphs: ShapeGraphs) -> None:
        """Idempotent, and nothing where it has not joined."""
        with self._lock:
            if graphs not in self._sharing:
                return
            self._sharing.remove(graphs)
        self._divide()

    def _divide(self) -> None:
        with self._dividing:
            with self._lock:
                sharing = list(self._sharing)
            for graphs in sharing:
                graphs.share(len(sharing))

    def take(self, size: int, limit: int) -> bool:
        """False: the total would be above `limit`."""
        with self._lock:
            if self._taken + size > limit:
                return False
            self._taken += size
            return True

    def give_back(self, size: int) -> None:
        with self._lock:
            self._taken -= size


_MEMORY = GraphMemory()


def graph_bytes(weights: int) -> int:
    """Memory of one more graph, for a model with that many bytes of weights."""
    return _GRAPH_BYTES + weights


def bytes_max(memory_bytes_max: int) -> int:
    """The bound for all graphs of a process, in an instance with that memory; 0 = not limited."""
    return min(_BYTES_MAX, int(memory_bytes_max * _MEMORY_SHARE) or _BYTES_MAX)


def worth_it(size: int, limit: int) -> bool:
    """Whether a model whose graphs take `size` each gets any."""
    return _GRAPHS_MIN * size <= limit


def weights_bytes(path: Path) -> int:
    """Size of a model's file and of the weights beside it."""
    beside = [path.with_suffix(".bin"), path.with_name(path.name + ".data")]
    return sum(file.stat().st_size for file in (path, *beside) if file.is_file())


class ShapeGraphs:
    """`take` is called once per batch, on any thread; it never waits for a compilation.

    `size`: memory of a graph; `limit`: the bound for all graphs in `memory`. `count_max`: how many
    there may be. `count_min`: of these how many there may be whatever other models have. `first`:
    shapes that are expected, the most needed first; they go before others that were made.
    """

    def __init__(
        self,
        blobs: ShapeBlobs,
        *,
        lanes: int,
        size: int,
        limit: int,
        memory: GraphMemory = _MEMORY,
        count_max: int = _GRAPHS_MAX,
        count_min: int = 0,
        first: Sequence[Shape] = (),
    ) -> None:
        self._blobs = blobs
        self._runs_each = 2 * lanes  #: a lane has one run under way and one ahead
        self._size = size
        self._limit = limit
        self._memory = memory
        self._count_max = self._count = min(count_max, limit // size)
        self._count_min = count_min
        self._hot = HotShapes(self._count)
        self._lock = threading.Lock()
        self._runs: dict[Shape, FreeRuns] = {}
        self._compiler: ShapeCompiler | None = None
        self._builder: threading.Thread | None = None
        self._closed = False
        if first:
            memory.join(self)
        self._restore(first)

    def has(self, shape: Shape) -> bool:
        """Whether `take` has a run for this shape."""
        return bool(self._runs.get(shape))

    def is_made(self, shape: Shape) -> bool:
        """Whether there is a graph for this shape, free or not."""
        return shape in self._runs

    def lay_out(self) -> bool:
        """Has the layout of packed graphs written, before any other call. Blocks."""
        return self._asked(lambda compiler, s_max: compiler.lay_out(s_max=s_max))

    def take(self, shape: Shape) -> FixedRun | None:
        """A run of a graph for exactly this shape, to be given back; None: use the general one."""
        with self._lock:
            build = None if self._closed else self._hot.ran(shape)
            free = self._runs.get(shape)
            run = free.pop() if free else None
        self._begin(build)
        return run

    def expect(self, shapes: Sequence[Shape]) -> None:
        """Their graphs are made now, the first first, without waiting for traffic."""
        with self._lock:
            build = None if self._closed else self._hot.expect(shapes[: self._count])
        self._begin(build)

    def join(self) -> None:
        """Graphs are expected: from now on the memory is shared with the others that expect any."""
        self._memory.join(self)

    def share(self, count: int) -> None:
        """So many models share the memory."""
        self._allow(max(self._count_min, self._limit // count // self._size))

    def allow(self, count_max: int) -> None:
        """From now on no more graphs than these; the rarest go."""
        self._count_max = count_max
        self._allow(count_max)

    def _allow(self, count: int) -> None:
        with self._lock:
            self._count = min(count, self._count_max, self._limit // self._size)
            for shape in self._hot.allow(self._count):
                del self._runs[shape]
                self._memory.give_back(self._size)

    def _begin(self, build: Shape | None) -> None:
        if build is not None:
            # Not a daemon: the interpreter must not end in the middle of a call of OpenVINO.
            self._builder = threading.Thread(target=self._build, args=(build,), name="shape-graph")
            self._builder.start()

    def snapshot(self) -> list[dict[str, Any]]:
        with self._lock:
            return self._hot.snapshot()

    def wait_built(self) -> None:
        """Returns once no graph is being compiled."""
        if self._builder is not None:
            self._builder.join()

    def close(self) -> None:
        """Idempotent. Ends a compilation under way."""
        with self._lock:
            self._closed = True
            compiler = self._compiler
        if compiler is not None:
            compiler.end()
        self.wait_built()
        self._memory.give_back(self._size * len(self._runs))
        self._runs = {}
        self._memory.leave(self)

    def _restore(self, first: Sequence[Shape]) -> None:
        """Takes over what other copies compiled, as far as there is room."""
        made = self._blobs.made()
        foremost = [shape for shape in first if shape in made]
        for shape in [*foremost, *(shape for shape in made if shape not in first)]:
            if len(self._runs) >= self._count or not self._memory.take(self._size, self._limit):
                return
            runs = self._blobs.load(shape, self._runs_each)
            if runs is not None and self._hot.restore(shape):
                self._add(shape, runs)
            else:
                self._memory.give_back(self._size)

    def _build(self, first: Shape) -> None:
        """Runs on its own thread, until no shape waits for its graph. OpenVINO starts threads for a
        graph while it takes it over; they compute, and inherit what this thread is."""
        scheduling.compute()
        with suppress(OSError):  # a lane's thread may have a core of its own, which this one leaves
            os.sched_setaffinity(0, os.sched_getaffinity(os.getpid()))
        shape: Shape | None = first
        try:
            while shape is not None:
                self._build_one(shape)
                with self._lock:
                    shape = None if self._closed else self._hot.following()
        finally:
            with self._lock:
                compiler, self._compiler = self._compiler, None
            if compiler is not None:
                compiler.end()
            _return_memory()

    def _build_one(self, shape: Shape) -> None:
        """Where all places are used, one more graph exists until the rarest goes."""
        takes = len(self._runs) < self._count
        runs = None
        if not takes or self._memory.take(self._size, self._limit):
            runs = self._compiled(shape)
            if runs is None and takes:
                self._memory.give_back(self._size)
        with self._lock:
            if runs is None:
                self._hot.failed(shape)
                return
            replaced = self._hot.built(shape)
            if replaced is not None:
                del self._runs[replaced]
            self._add(shape, runs)

    def _add(self, shape: Shape, runs: list[FixedRun]) -> None:
        free = self._runs[shape] = FreeRuns(runs)
        for run in runs:
            run.lent_by(free)

    def _compiled(self, shape: Shape) -> list[FixedRun] | None:
        """None: this shape does not fit the model, or its graph could not be compiled."""
        if self._blobs.has(shape) or self._made(shape):
            return self._blobs.load(shape, self._runs_each)
        return None

    def _made(self, shape: Shape) -> bool:
        """Whether a process has made its blob."""
        return self._asked(lambda compiler, s_max: compiler.compile(shape, s_max=s_max))

    def _asked(self, ask: Callable[[ShapeCompiler, float | None], bool]) -> bool:
        """What the compiler's process answers; where a guest has no time, another one."""
        compiler = self._compiler or self._begin_compiler(as_guest=True)
        try:
            if compiler is not None and compiler.as_guest:
                return ask(compiler, _AS_GUEST_S_MAX)
        except TimeoutError:
            compiler = self._begin_compiler(as_guest=False)
        return compiler is not None and ask(compiler, None)

    def _begin_compiler(self, *, as_guest: bool) -> ShapeCompiler | None:
        """In the place of the one before."""
        with self._lock:
            before, self._compiler = self._compiler, None
        if before is not None:
            before.end()
        with self._lock:
            if not self._closed:
                self._compiler = self._blobs.compiler(as_guest=as_guest)
            return self._compiler


def _return_memory() -> None:
    """Returns freed memory to the system: compiling leaves half as much again with the
    allocator."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
