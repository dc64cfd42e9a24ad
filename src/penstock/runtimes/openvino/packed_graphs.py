"""Graphs of texts side by side (`packing.py`) of a model that serves; `shapes.py` has padded ones.

Whether a model can be packed is found out, and its first graphs are made, by the process that
compiles, once for all copies of a machine: until then texts are padded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.runtimes.openvino.fixed_graphs import FixedRun, answer
from penstock.runtimes.openvino.shape_blobs import ShapeBlobs
from penstock.runtimes.openvino.shapes import ShapeGraphs
from penstock.runtimes.packed_rows import Layout, Placed, layout_of

#: Of the sizes that a batch of a few dozen texts has
_GRAPHS_MAX: Final = 12
#: A graph that is larger than needed by more steps takes longer than padding does
_STEPS_MAX: Final = 2


def packs(size: int, limit: int) -> bool:
    """Whether there is room for packed graphs of a model whose graphs take `size` each."""
    return size * _GRAPHS_MAX // 2 <= limit


class PackedGraphs:
    """`layout` is asked, and `take` called, once per batch, on any thread; both never wait.

    `texts_max`: texts of a batch.
    """

    def __init__(
        self,
        blobs: ShapeBlobs,
        *,
        lanes: int,
        size: int,
        limit: int,
        texts_max: int,
    ) -> None:
        self._blobs = blobs
        self._texts_max = texts_max
        self._is_refused = False
        self._refused: Callable[[], None] | None = None
        self._layout: Layout | None = None
        self._missing: list[Any] | None = None  #: shapes without which nothing is packed
        known = blobs.layout()
        layout = self._read(known) if known is not None else None
        if layout is not None:
            blobs.take_inputs(_dtypes(layout))
        self._graphs = ShapeGraphs(
            blobs, lanes=lanes, size=size, limit=limit, count_max=_GRAPHS_MAX
        )
        self._learner: threading.Thread | None = None
        if layout is not None:
            self._begin(layout)
        elif known is None:
            self._learner = threading.Thread(target=self._learn, name="packed-layout")
            self._learner.start()
        else:
            self._is_refused = True

    @property
    def layout(self) -> Layout | None:
        """None: texts are padded, as yet or for ever."""
        missing = self._missing
        if missing is None:
            return None
        while missing and self._graphs.is_made(missing[-1]):
            missing.pop()
        return None if missing else self._layout

    def when_refused(self, call: Callable[[], None]) -> None:
        """`call`, on any thread, where the model can't be packed."""
        self._refused = call
        if self._is_refused:
            call()

    def take(self, placed: Placed) -> FixedRun | None:
        """A run of the smallest graph that there is, to be given back; `placed` is enlarged to its
        size. None: pad the texts."""
        layout = self._layout
        assert layout is not None, "ask for the layout first"
        run = self._graphs.take(layout.shape(placed.rows, placed.width, self._texts_max))
        for _ in range(_STEPS_MAX):
            if run is not None or not placed.enlarge():
                break
            shape = layout.shape(placed.rows, placed.width, self._texts_max)
            if self._graphs.has(shape):
                run = self._graphs.take(shape)
        return run

    def inputs(
        self, placed: Placed, ids: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None
    ) -> list[np.ndarray]:
        """What `FixedRun.set` takes."""
        assert self._layout is not None, "ask for the layout first"
        tokens = {"input_ids": ids, "token_type_ids": types or ()}
        return placed.inputs(self._layout, tokens, self._texts_max)

    def outputs(self, placed: Placed, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A run's outputs, one row per text."""
        assert self._layout is not None, "ask for the layout first"
        return placed.outputs(self._layout, outputs)

    answer = staticmethod(answer)

    def snapshot(self) -> list[dict[str, Any]]:
        return self._graphs.snapshot()

    def wait_built(self) -> None:
        """Returns once no graph is being compiled."""
        if self._learner is not None:
            self._learner.join()
        self._graphs.wait_built()

    def close(self) -> None:
        """Idempotent."""
        self._graphs.close()
        if self._learner is not None:
            self._learner.join()

    def _learn(self) -> None:
        if not self._graphs.lay_out():
            return  # it is closed, or nothing can be compiled here
        layout = self._read(self._blobs.layout())
        if layout is None:
            self._graphs.close()
            self._is_refused = True
            if self._refused is not None:
                self._refused()
            return
        self._blobs.take_inputs(_dtypes(layout))
        self._begin(layout)

    def _read(self, content: bytes | None) -> Layout | None:
        try:
            return layout_of(content) if content is not None else None
        except ValueError:
            return None

    def _begin(self, layout: Layout) -> None:
        shapes = layout.first_shapes(self._texts_max)
        self._layout = layout
        self._missing = list(shapes)
        self._graphs.expect(shapes)


def _dtypes(layout: Layout) -> list[np.dtype[Any]]:
    return [np.dtype(np.int32 if name == "i32" else np.int64) for name in layout.dtypes]
