"""Graphs of texts side by side (`packing.py`) of a model that serves; `shapes.py` has padded ones.

Whether a model can be packed is found out, and its graphs are made, by the process that compiles,
once for all copies of a machine, when some dozens of batches have run: until then texts are padded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from penstock.core.batching.hot_shapes import Shape
from penstock.runtimes.base import NativeRun
from penstock.runtimes.openvino.fixed_graphs import FixedRun, answer
from penstock.runtimes.openvino.shape_blobs import ShapeBlobs
from penstock.runtimes.openvino.shapes import ShapeGraphs
from penstock.runtimes.packed_rows import Layout, PlacedTexts, layout_of, refusal_of

#: Of the sizes that a batch of a few dozen texts has
_GRAPHS_MAX: Final = 16
#: After so many questions for the layout, some two for a batch, it is looked for
_ASKED_MIN: Final = 64
_NEVER: Final = -1
#: A model is packed if so many graphs have room: those that can stand in for all
_GRAPHS_MIN: Final = 6


def packs(size: int, limit: int) -> bool:
    """Whether there is room for packed graphs of a model whose graphs take `size` each."""
    return size * _GRAPHS_MIN <= limit


class PackedGraphs:
    """`layout` is asked, and `take` called, some times for each batch, on any thread; both never
    wait.

    `texts_max`: texts of a batch. `known` is called once it is known that texts are packed, before
    graphs for that are made.
    """

    def __init__(
        self,
        blobs: ShapeBlobs,
        *,
        lanes: int,
        size: int,
        limit: int,
        texts_max: int,
        known: Callable[[], None],
    ) -> None:
        self._blobs = blobs
        self._texts_max = texts_max
        self._known = known
        self._layout: Layout | None = None
        self._refused = ""
        #: Shapes without which nothing is packed; None: not known, or refused
        self._missing: list[Shape] | None = None
        self._asked = 0
        self._lock = threading.Lock()
        self._learner: threading.Thread | None = None
        self._closed = False
        written = blobs.layout()
        layout = self._read(written)
        if layout is not None:
            blobs.take_inputs(_dtypes(layout))
            known()
        elif written is not None:
            self._asked = _NEVER
            self._refused = _refusal(written)
        self._graphs = ShapeGraphs(
            blobs,
            lanes=lanes,
            size=size,
            limit=limit,
            count_max=_GRAPHS_MAX,
            count_min=_GRAPHS_MIN,
            first=layout.usual_shapes(texts_max) if layout is not None else (),
        )
        if layout is not None:
            self._begin(layout)

    @property
    def layout(self) -> Layout | None:
        """None: texts are padded, as yet or for ever."""
        missing = self._missing
        if missing is None:
            if self._asked != _NEVER:
                self._count()
            return None
        while missing and self._graphs.is_made(missing[-1]):
            missing.pop()
        return None if missing else self._layout

    @property
    def refused(self) -> str:
        """Why texts are padded for ever; "" where that is not known, or not so."""
        return self._refused

    def take(self, placed: PlacedTexts) -> FixedRun | None:
        """A run of the smallest graph that there is, to be given back; `placed` is enlarged to its
        size. None: pad the texts."""
        layout = self._layout
        assert layout is not None, "ask for the layout first"
        run = self._graphs.take(layout.shape(placed.size, self._texts_max))
        for size in placed.larger() if run is None else ():
            shape = layout.shape(size, self._texts_max)
            if self._graphs.has(shape):
                run = self._graphs.take(shape)
            if run is not None:
                placed.size = size
                break
        return run

    def inputs(
        self,
        placed: PlacedTexts,
        ids: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None,
    ) -> list[np.ndarray]:
        """What `FixedRun.set` takes."""
        assert self._layout is not None, "ask for the layout first"
        tokens = {"input_ids": ids, "token_type_ids": types or ()}
        return placed.inputs(self._layout, tokens, self._texts_max)

    def outputs(
        self, placed: PlacedTexts, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """A run's outputs, one row per text."""
        assert self._layout is not None, "ask for the layout first"
        return placed.outputs(self._layout, outputs)

    def mask(self, placed: PlacedTexts) -> np.ndarray:
        """[texts, tokens]: 1 for the tokens of each text; no tokens where no output has any."""
        assert self._layout is not None, "ask for the layout first"
        return placed.mask(self._layout)

    @staticmethod
    def answer(run: NativeRun, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """A whole run on this thread, which is given back. Raises ModelError."""
        assert isinstance(run, FixedRun), "a run of another runtime"
        return answer(run, arrays)

    def wait_built(self) -> None:
        """Returns once no graph is being compiled."""
        if self._learner is not None:
            self._learner.join()
        self._graphs.wait_built()

    def close(self) -> None:
        """Idempotent."""
        with self._lock:
            self._closed = True
        self._graphs.close()
        if self._learner is not None:
            self._learner.join()
            self._graphs.close()  # the learner may just have begun to expect graphs

    def _count(self) -> None:
        """A model that is asked often is worth a look at its graph."""
        with self._lock:
            self._asked += 1
            if self._asked < _ASKED_MIN or self._closed:
                return
            self._asked = _NEVER
            self._learner = threading.Thread(target=self._learn, name="packed-layout")
            self._learner.start()

    def _learn(self) -> None:
        if self._blobs.layout() is None and not self._graphs.lay_out():
            return  # it is closed, or nothing can be compiled here
        written = self._blobs.layout()
        layout = self._read(written)
        if layout is None:
            self._refused = _refusal(written)
            self._graphs.close()
            return
        self._blobs.take_inputs(_dtypes(layout))
        self._known()
        self._graphs.join()
        self._begin(layout)

    @staticmethod
    def _read(content: bytes | None) -> Layout | None:
        try:
            return layout_of(content) if content is not None else None
        except ValueError:
            return None

    def _begin(self, layout: Layout) -> None:
        self._layout = layout
        self._missing = layout.needed_shapes(self._texts_max)
        # At once, and not when they come often: then the cores are busy
        self._graphs.expect(layout.usual_shapes(self._texts_max))


def _refusal(content: bytes | None) -> str:
    try:
        return refusal_of(content) if content is not None else ""
    except ValueError:
        return "its layout in the cache can't be read"


def _dtypes(layout: Layout) -> list[np.dtype[Any]]:
    return [np.dtype(np.int32 if name == "i32" else np.int64) for name in layout.dtypes]
