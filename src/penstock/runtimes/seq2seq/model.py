"""The compiled encoder and decoder step over the caches of `rows`, with weights in huge pages.

The decoder's tensors are bound to memory when the shape of a step changes (rows in use, padded
lengths), not at every step. A step reads all weights once, so memory bandwidth decides its time;
all other code here tries to add little to it.

`use_huge_pages` moves existing memory into huge pages. A decode step reads all weights front to
back. With pages of 4 KiB the hardware's prefetch stops at the end of every page, and each address
is looked up anew; pages of 2 MiB avoid that. The library that holds the weights does not ask for
such pages, so this does it for the process: for any large anonymous mapping that is mostly filled,
because weights can't be told apart from other data. Memory use grows by the unfilled rest of those
mappings. Linux 6.1 does it at once (MADV_COLLAPSE); older kernels do it later, and without huge
pages nothing happens.
"""

from __future__ import annotations

import ctypes
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.runtime import ROUNDED_GROUP, arithmetic, shared_core
from penstock.runtimes.seq2seq.fixed import LoneEncoders, fixed_request
from penstock.runtimes.seq2seq.rows import RowCaches, fill, padded
from penstock.runtimes.tensor_bytes import row_steps, threads_of

_PAGE_BYTES = 2 << 20
_MAPPING_BYTES_MIN = 2 * _PAGE_BYTES
_FILLED_MIN = 0.8  #: share of a mapping; stacks and reserves of allocators stay as they are
_HUGEPAGE, _COLLAPSE = 14, 25  # MADV_* of <linux/mman.h>


def use_huge_pages() -> int:
    """Bytes for which huge pages were requested; 0 where the system has no such mappings or
    pages."""
    try:
        with open("/proc/self/smaps", encoding="ascii", errors="replace") as lines:
            ranges = list(_worthwhile(lines))
        madvise = ctypes.CDLL(None, use_errno=True).madvise
    except (OSError, AttributeError):  # not Linux
        return 0
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    asked = 0
    for start, stop in ranges:
        if madvise(start, stop - start, _HUGEPAGE) == 0:
            madvise(start, stop - start, _COLLAPSE)  # old kernels refuse it and do it later
            asked += stop - start
    return asked


def _worthwhile(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Whole huge pages of the mappings in `/proc/self/smaps` that are large, private and filled."""
    start = stop = filled = 0
    for line in lines:
        words = line.split()
        if not words[0].endswith(":"):
            low, _, high = words[0].partition("-")
            start, stop, filled = int(low, 16), int(high, 16), 0
            if not words[1].startswith("rw-p") or words[4] != "0" or "[stack]" in words:
                stop = start
        elif words[0] == "Rss:":
            filled = int(words[1]) << 10
        elif words[0] == "AnonHugePages:":
            large = stop - start >= _MAPPING_BYTES_MIN
            done = int(words[1]) << 10
            if large and filled >= _FILLED_MIN * (stop - start) and done + _PAGE_BYTES < filled:
                first = -(-start // _PAGE_BYTES) * _PAGE_BYTES
                yield first, stop // _PAGE_BYTES * _PAGE_BYTES


#: (rows, past, source) of a step that is compiled a second time with these fixed sizes: a lone
#: short text, where the cost of free sizes is visible (an eighth of the step, measured).
_LONE = (1, padded(1), padded(1))

#: Loading waits at most this long (and one run) for kernels of short sources.
_SETTLE_S_MAX = 1.0


class Seq2SeqModel:
    """Not for several threads at once. Raises ModelError when a file cannot be read or compiled."""

    def __init__(self, context: LoadContext) -> None:
        description = context.description
        generation = description.generation
        if generation is None:
            raise ModelError("generation-missing", "model.yaml has no section `generation`")
        self.rows_max = max(1, description.batching.rows_max)
        self.row_steps = row_steps(self.rows_max)
        self._config = _config(context)
        self._encoder = _compiled(context, generation.encoder_file, self._config)
        self._decoder = _compiled(context, generation.decoder_file, self._config)
        self._encode = self._encoder.create_infer_request()
        self._request = self._decoder.create_infer_request()
        layers, heads, size = _shape_of(self._decoder, generation.decoder_file)
        # One of many models of a host should be loaded soon and take little memory. Graphs of fixed
        # sizes take most of the loading time and of a small model's memory, and save an eighth of a
        # lone text's time.
        alone = not context.target_model
        self._lone: Any = None
        if alone:
            self._lone = _lone_step(context, generation.decoder_file, self._config)
        self._names = [port.get_any_name() for port in self._decoder.inputs]
        self.vocabulary = _dimension(self._decoder.output("logits"), 1)
        self.rows = RowCaches(layers=layers, heads=heads, size=size, rows_max=self.rows_max)
        self._lone_encoders: LoneEncoders | None = None
        self._current: Any = None  #: the infer request that is bound to the caches now
        self._bound: tuple[int, int] | None = None
        self._held: list[Any] = []  #: tensors that the request reads: they must outlive it
        self._logits: np.ndarray = np.empty(0)
        self._new_kv: np.ndarray = np.empty(0)
        self._settle(context.model_dir / generation.encoder_file if alone else None)

    def _settle(self, encoder_path: Path | None) -> None:
        """Makes graphs of fixed sizes of this encoder, if it is given, and first runs of short
        lengths. These make kernels and arrange the weights for them; then that memory is moved into
        huge pages."""
        try:
            bucket, until = padded(1), time.monotonic()
            if encoder_path is not None:
                until += _SETTLE_S_MAX
                self._lone_encoders = LoneEncoders(encoder_path, bucket, self._config)
            self._encoded([[0] * bucket])
            self.prefill([[0] * bucket], [(0,)], 0)
            for rows in self.row_steps[:2]:
                self.step(rows)
            for length in range(_lone_length(1), bucket + 1, _lone_length(1)):
                if time.monotonic() > until:
                    break
                self.prefill([[0] * length], [(0,)], 0)
            self.rows.clear(range(self.rows_max))
        except Exception as error:  # the library raises RuntimeError and its own kinds alike
            raise fails_on_a_token(error) from None
        use_huge_pages()

    def prefill(
        self, sources: Sequence[Sequence[int]], rows: Sequence[Sequence[int]], in_use: int
    ) -> None:
        """Encodes token id lists and puts each into its rows; `in_use` rows keep their content."""
        lone = None
        if self._lone_encoders is not None and len(sources) == 1:
            lone = self._lone_encoders.of(len(sources[0]))
        cross_kv = lone.run(sources[0]) if lone is not None else self._encoded(sources)
        length, caches = cross_kv.shape[3], self.rows
        caches.fit(in_use, past=caches.past_length, source=max(length, caches.source_length))
        for at, source in enumerate(sources):
            caches.put(rows[at], cross_kv[:, at], len(source))

    def _encoded(self, sources: Sequence[Sequence[int]]) -> np.ndarray:
        count = len(sources)
        longest = max(map(len, sources))
        length = _lone_length(longest) if count == 1 else padded(longest)
        batch = self.row_steps[bisect_left(self.row_steps, count)]
        ids = np.empty((batch, length), dtype=np.int32)
        mask = np.empty((batch, length), dtype=np.float32)
        fill(ids, mask, sources)
        results = self._encode.infer({"ids": ids, "mask": mask}, share_inputs=True,
                                     share_outputs=True)  # fmt: skip
        return np.asarray(results["cross_kv"])

    def step(self, count: int) -> np.ndarray:
        """One token for rows 0 .. count-1: logits [count, vocabulary], to be used before the next
        step. `rows.ids` are the tokens to feed; positions and caches advance."""
        caches = self.rows
        width = self.row_steps[bisect_left(self.row_steps, count)]
        if self._bound != (width, caches.version):
            self._bind(width)
        # Outputs are already in bound memory, so nothing has to be copied
        self._current.infer(share_outputs=True)
        caches.append(count, self._new_kv)
        return self._logits[:count]

    def _bind(self, width: int) -> None:
        import openvino

        caches, held = self.rows, []
        lengths = (caches.past_length, caches.source_length)
        is_lone = self._lone is not None and (width, *lengths) == _LONE
        request = self._lone if is_lone else self._request
        for name in self._names:
            kind, _, number = name.partition(".")
            if number:
                array = (caches.past if kind == "past" else caches.cross)[int(number), :width]
            else:
                array = getattr(caches, name)[:width]
            tensor = openvino.Tensor(array, shared_memory=True)
            request.set_tensor(name, tensor)
            held.append(tensor)
        layers, _, heads, _, size = caches.past.shape
        self._logits = np.empty((width, self.vocabulary), dtype=np.float32)
        self._new_kv = np.empty((layers, width, heads, 1, size), dtype=np.float32)
        for name, array in (("logits", self._logits), ("new_kv", self._new_kv)):
            tensor = openvino.Tensor(array, shared_memory=True)
            request.set_tensor(name, tensor)
            held.append(tensor)
        self._held = held
        self._current = request
        self._bound = (width, caches.version)

    def close(self) -> None:
        self._encode = self._request = self._lone = self._current = None
        self._encoder = self._decoder = None
        if self._lone_encoders is not None:
            self._lone_encoders.close()
        self._held = []


def _lone_length(length: int) -> int:
    """The padded length of a lone source: a multiple of an eighth of its bucket. The encoder's time
    grows with its tokens, and kernels for eight shapes are few enough. Several sources use the full
    bucket."""
    step = padded(length) // 8
    return -(-length // step) * step


def _config(context: LoadContext) -> dict[str, Any]:
    config: dict[str, Any] = {
        "INFERENCE_NUM_THREADS": threads_of(context, 1),
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_CPU_PINNING": False,  # several copies and processes share the cores
        **arithmetic(
            context.description.precision or "f32",
            rounded_group=0 if context.description.precision else ROUNDED_GROUP,
        ),
    }
    if context.cache_dir is not None:
        config["CACHE_DIR"] = str(context.cache_dir)
    return config


def _compiled(context: LoadContext, file: str, config: dict[str, Any]) -> Any:
    core = shared_core()
    try:
        graph = core.read_model(str(context.model_dir / file))
        return core.compile_model(graph, "CPU", config)
    except Exception as error:  # OpenVINO raises RuntimeError and its own kinds alike
        words = " ".join(str(error).split())[:300]
        raise ModelError(
            "model-unreadable",
            f"{file}: OpenVINO cannot load it: {words}",
            hint="Check that the .xml and .bin files are whole, or compile the model again.",
        ) from None


def _lone_step(context: LoadContext, file: str, config: dict[str, Any]) -> Any:
    """An infer request for steps of the sizes `_LONE`; the file has been compiled before."""
    rows, past, source = _LONE
    graph = shared_core().read_model(str(context.model_dir / file))
    sizes = {}
    for port in graph.inputs:
        shape, name = port.get_partial_shape(), port.get_any_name()
        shape[0] = rows
        if name == "source_bias":
            shape[3] = source
        elif name.startswith(("past.", "cross.")):
            shape[2] = past if name.startswith("past.") else source
        sizes[name] = list(shape.to_shape())
    return fixed_request(graph, sizes, config)


def _shape_of(decoder: Any, file: str) -> tuple[int, int, int]:
    """(layers, heads, head size)"""
    names = {port.get_any_name() for port in decoder.inputs}
    past = sum(name.startswith("past.") for name in names)
    needed = {"ids", "positions", "source_bias", "past.0", "cross.0"}
    if not needed <= names or past % 2:
        raise ModelError(
            "inputs-mismatch",
            f"{file} takes {', '.join(sorted(names))}; that is no decoder step",
            hint="Compile the model with `penstock compile`.",
        )
    port = decoder.input("past.0")
    return past // 2, _dimension(port, 1), _dimension(port, 3)


def _dimension(port: Any, at: int) -> int:
    return int(port.get_partial_shape()[at].get_length())


def fails_on_a_token(error: Exception) -> PenstockError:
    """The error for anything that a model raises during warm-up, unless it is one of ours
    already."""
    if isinstance(error, PenstockError):
        return error
    words = " ".join(str(error).split())[:300]
    return ModelError(
        "model-failed",
        f"the model fails on a source of one token: {words}",
        hint="Encoder and decoder must come from one run of `penstock compile`.",
    )
