"""The decode loop's model as PyTorch programs over caches of fixed memory (a static cache).

It has the interface of `runtimes.seq2seq.model`, so continuous batching is the same: rows join,
leave, move and fork between steps. Here the caches stay on the programs' device, in memory for the
longest source and answer. A step reads the first rows and lengths of it, in a few padded sizes. On
a GPU each size is a CUDA graph, captured when the model is loaded: one call per token, whatever the
number of layers. A step's writes depend only on its inputs, so a capture, which runs it several
times, changes nothing.
"""

from __future__ import annotations

import contextlib
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from penstock.artifacts.description.description import Generation
from penstock.errors import ModelError
from penstock.runtimes.base import LoadContext
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
from penstock.runtimes.seq2seq.rows import MASKED, RowCaches, fill, padded
from penstock.runtimes.tensor_bytes import row_steps, threads_of

_ENCODER = ("ids", "mask")
_DECODER = ("ids", "positions", "source_bias", "past", "cross")
_CROSS, _LOGITS = ("cross_kv",), ("logits", "new_kv")
#: Most captured sizes of steps and prefills: some 0.05 s each.
_GRAPHS_MAX = 192


class StaticCaches(RowCaches):
    """Keys and values of all rows, on the programs' device, in memory allocated once.

    Lengths only say how much of the memory a step reads: growing and shrinking copies nothing.
    `here` enters the stream that orders all work on the caches; call `put` within it.
    """

    past: Any
    cross: Any
    source_bias: Any
    past_length: int = padded(1)
    source_length: int = padded(1)

    def __init__(
        self,
        torch: Any,
        device: Any,
        dtype: Any,
        here: Callable[[], AbstractContextManager[None]],
        *,
        layers: int,
        heads: int,
        size: int,
        rows_max: int,
        past_max: int,
        source_max: int,
    ) -> None:
        self._torch = torch
        self._here = here
        self.rows_max = rows_max
        self.past_max = past_max
        self.source_max = source_max
        apart = is_gpu(device)
        #: Tokens to feed and their positions in one tensor: a single transfer per step.
        self._fed_here = torch.zeros((2, rows_max, 1), dtype=torch.int32, pin_memory=apart)
        self.ids: np.ndarray = self._fed_here[0].numpy()
        self.positions: np.ndarray = self._fed_here[1].numpy()
        self.fed = torch.zeros_like(self._fed_here, device=device) if apart else self._fed_here
        self.past = torch.zeros(
            (2 * layers, rows_max, heads, past_max, size), dtype=dtype, device=device
        )
        self.cross = torch.zeros(
            (2 * layers, rows_max, heads, source_max, size), dtype=dtype, device=device
        )
        self.source_bias = torch.full((rows_max, 1, 1, source_max), MASKED, device=device)

    def fit(self, rows: int, *, past: int, source: int) -> None:
        """Sets the (padded) lengths that steps read; memory beyond them stays as it is."""
        self.past_length = min(padded(max(past, 1)), self.past_max)
        self.source_length = min(padded(max(source, 1)), self.source_max)

    def send(self) -> None:
        """Sends tokens and positions to the device, ahead of the next step."""
        if self.fed is not self._fed_here:
            self.fed.copy_(self._fed_here, non_blocking=True)

    def move(self, source: int, target: int) -> None:
        with self._here():
            super().move(source, target)

    def reorder(self, rows: Sequence[int], order: np.ndarray) -> None:
        """Row `rows[i]` continues the content of row `rows[order[i]]`; their source is the same."""
        used = int(self.positions[rows[0], 0])
        with self._here():
            device = self.past.device
            places = self._torch.tensor(list(rows), device=device)
            taken = self._torch.tensor([rows[at] for at in order.tolist()], device=device)
            self.past[:, places, :, :used] = self.past[:, taken, :, :used]

    def clear(self, rows: Sequence[int]) -> None:
        with self._here():
            super().clear(rows)

    def close(self) -> None:
        self.past = self.cross = self.source_bias = None


class TorchSeq2SeqModel:
    """Not for several threads at once. Raises ModelError when a file or device can't be used."""

    def __init__(self, context: LoadContext) -> None:
        self._torch = torch = torch_library()
        description = context.description
        generation = description.generation
        if generation is None:
            raise ModelError("generation-missing", "model.yaml has no section `generation`")
        self._device = device = device_of(torch, description, accelerators=context.accelerators)
        torch.set_num_threads(threads_of(context, 1))
        self._encoder = self._loaded(context, generation.encoder_file, _CROSS)
        self._decoder = self._loaded(context, generation.decoder_file, _LOGITS)
        _check_inputs(self._encoder, _ENCODER, generation.encoder_file)
        _check_inputs(self._decoder, _DECODER, generation.decoder_file)
        self.rows_max = max(1, description.batching.rows_max)
        self.row_steps = row_steps(self.rows_max)
        self.vocabulary = self._decoder.outputs[0].shape[-1]
        _check_ids(generation, self.vocabulary)
        _, _, heads, _, size = self._decoder.inputs[3].shape
        tokenizer = description.tokenizer
        self._stream = STREAMS.take(torch, device) if is_gpu(device) else None
        self._graphs = Graphs(torch, self._stream) if self._stream is not None else None
        self._captured: dict[tuple[Any, ...], CapturedGraph | None] = {}
        self.rows = StaticCaches(
            torch, device, getattr(torch, DTYPES[self._decoder.inputs[3].dtype]), self._here,
            layers=self._decoder.inputs[3].shape[0] // 2, heads=heads, size=size,
            rows_max=self.rows_max, past_max=padded(generation.tokens_new_max),
            source_max=padded(tokenizer.tokens_max if tokenizer else 512),
        )  # fmt: skip
        caches, pinned = self.rows, self._stream is not None
        places = self.rows_max * caches.source_max
        self._ids = torch.zeros(places, dtype=torch.int32, pin_memory=pinned)
        self._mask = torch.zeros(places, dtype=torch.float32, pin_memory=pinned)
        self._ids_there, self._mask_there = (
            torch.zeros_like(each, device=device) if pinned else each
            for each in (self._ids, self._mask)
        )
        self._order = torch.arange(self.rows_max, device=device)
        self._logits = torch.zeros((self.rows_max, self.vocabulary), pin_memory=pinned)
        if self._graphs is not None:
            self._warm_up(context, self._graphs)

    def _loaded(self, context: LoadContext, file: str, outputs: tuple[str, ...]) -> Program:
        description = context.description
        program = load_program(
            self._torch, context.model_dir, file, self._device,
            inductor=compiles(description), trusted=description.trusted,
        )  # fmt: skip
        if len(program.outputs) != len(outputs):
            raise _foreign(file, f"answers {len(program.outputs)} tensors")
        return program

    def prefill(
        self, sources: Sequence[Sequence[int]], rows: Sequence[Sequence[int]], in_use: int
    ) -> None:
        """Encodes token id lists and puts each into its rows; `in_use` rows keep their content."""
        count, longest = len(sources), max(map(len, sources))
        self._check(sources, longest)
        length = padded(longest)
        batch = self.row_steps[bisect_left(self.row_steps, count)]
        with self._here():
            if self._stream is not None:
                self._stream.synchronize()  # the buffers may still be in transfer to the GPU
            ids = self._ids[: batch * length].view(batch, length).numpy()
            mask = self._mask[: batch * length].view(batch, length).numpy()
            fill(ids, mask, sources)
            if self._stream is not None:
                places = batch * length
                for there, here in ((self._ids_there, self._ids), (self._mask_there, self._mask)):
                    there[:places].copy_(here[:places], non_blocking=True)
            cross_kv = self._do(("encode", batch, length), partial(self._encode, batch, length))
            caches = self.rows
            longest = max(length, caches.source_length)
            caches.fit(in_use, past=caches.past_length, source=longest)
            for at, source in enumerate(sources):
                caches.put(rows[at], cross_kv[:, at], len(source))

    def step(self, count: int) -> np.ndarray:
        """One token for rows 0 .. count-1: logits [count, vocabulary], to be used before the next
        step. `rows.ids` are the tokens to feed; positions and caches advance."""
        caches = self.rows
        width = self.row_steps[bisect_left(self.row_steps, count)]
        if int(caches.positions[:count].max()) >= caches.past_length:
            raise ModelError(
                "answer-too-long",
                f"the cache has {caches.past_max} places for tokens of an answer",
                hint="Ask for at most generation.tokens_new_max tokens.",
            )
        caches.positions[count:width] = 0  # unused rows: any place inside the cache is allowed
        caches.ids[count:width] = 0
        sizes = (width, caches.past_length, caches.source_length)
        with self._here():
            caches.send()
            logits = self._do(("step", *sizes), partial(self._step, *sizes))
            answer = self._logits[:count]
            answer.copy_(logits[:count], non_blocking=True)
            if self._stream is not None:
                self._stream.synchronize()
        caches.positions[:count] += 1
        return np.asarray(answer.numpy())

    def close(self) -> None:
        self._captured = {}
        self._graphs = None
        self._encoder = self._decoder = None  # type: ignore[assignment]
        self.rows.close()
        if self._stream is not None:
            STREAMS.give(self._device, self._stream)
            self._stream = None
            self._torch.cuda.empty_cache()

    # Work that a graph records

    def _encode(self, batch: int, length: int) -> Any:
        places = batch * length
        ids, mask = (
            each[:places].view(batch, length) for each in (self._ids_there, self._mask_there)
        )
        return self._encoder.call(ids, mask)[0]

    def _step(self, width: int, past: int, source: int) -> Any:
        caches = self.rows
        ids, positions = caches.fed[0, :width], caches.fed[1, :width]
        logits, new_kv = self._decoder.call(
            ids,
            positions,
            caches.source_bias[:width, ..., :source],
            caches.past[:, :width, :, :past],
            caches.cross[:, :width, :, :source],
        )
        places = positions[:, 0].long()
        caches.past[:, self._order[:width], :, places] = new_kv[:, :, :, 0].permute(1, 0, 2, 3)
        return logits

    def _do(self, sizes: tuple[Any, ...], work: Callable[[], Any]) -> Any:
        if self._graphs is None:
            return work()
        if sizes not in self._captured:
            self._captured[sizes] = self._graphs.captured(work)
        graph = self._captured[sizes]
        if graph is None:
            return work()
        graph.replay()
        return graph.outputs

    @contextlib.contextmanager
    def _here(self) -> Iterator[None]:
        torch = self._torch
        stream = torch.cuda.stream(self._stream) if self._stream is not None else None
        try:
            with torch.inference_mode(), stream or contextlib.nullcontext():
                yield
        except ModelError:
            raise
        except Exception as error:  # PyTorch raises RuntimeError, AssertionError and its own kinds
            raise failed(torch, error) from None

    def _check(self, sources: Sequence[Sequence[int]], longest: int) -> None:
        if longest > self.rows.source_max:
            raise ModelError(
                "source-too-long",
                f"a source has {longest} tokens, the cache {self.rows.source_max} places",
                hint="Lower tokenizer.tokens_max, or compile for longer sources.",
                original_status=400,
            )
        rows = self._encoder.rows_of_table.get(self._encoder.inputs[0].name, 0)
        largest = max(map(max, sources))
        if rows and largest >= rows:
            raise ModelError(
                "input-out-of-range",
                f"a source has the token id {largest}; the model knows 0 to {rows - 1}",
                hint="Check that the tokenizer belongs to this model.",
            )

    def _warm_up(self, context: LoadContext, graphs: Graphs) -> None:
        """Captures small sizes first: they are the likeliest, and the time is limited."""
        until = time.monotonic() + context.startup_timeout_s / 2
        caches = self.rows
        sources = list(_lengths(caches.source_max))
        with self._here():
            for source in sources:
                for width, past in product(self.row_steps, _lengths(caches.past_max)):
                    if graphs.reason or graphs.count >= _GRAPHS_MAX or time.monotonic() > until:
                        break
                    sizes = (width, past, source)
                    self._captured["step", *sizes] = graphs.captured(partial(self._step, *sizes))
                for batch in self.row_steps:
                    if graphs.reason or graphs.count >= _GRAPHS_MAX or time.monotonic() > until:
                        break
                    work = partial(self._encode, batch, source)
                    self._captured["encode", batch, source] = graphs.captured(work)
        reason = f": {graphs.reason}" if graphs.reason else ""
        context.log(f"{shown(self._torch, self._device)}: {graphs.count} CUDA graphs{reason}")


def _lengths(longest: int) -> Iterator[int]:
    length = padded(1)
    while length < longest:
        yield length
        length = padded(length + 1)
    yield longest


def _check_inputs(program: Program, names: tuple[str, ...], file: str) -> None:
    given = tuple(spec.name for spec in program.inputs)
    if given != names:
        raise _foreign(file, f"takes {', '.join(given)}")


def _foreign(file: str, what: str) -> ModelError:
    return ModelError(
        "inputs-mismatch",
        f"{file} {what}; that is no program of an encoder-decoder",
        hint="Compile the model with `penstock compile`.",
    )


def _check_ids(generation: Generation, vocabulary: int) -> None:
    """Checks ids: a GPU does not refuse an id outside its table, it loses its context."""
    ids = (generation.decoder_start_id, *generation.eos_ids)
    if max(ids) >= vocabulary:
        raise ModelError(
            "input-out-of-range",
            f"model.yaml: generation names the token id {max(ids)}; the model knows 0 to "
            f"{vocabulary - 1}",
            hint="Correct decoder_start_id and eos_ids.",
        )
