"""Texts through an encoder-decoder model: tokenize, join the running decode batch, detokenize.

Unlike other engines this one makes no batches: each text goes to the decode loop, whose thread lets
it join between two steps (`core.stepping`). The batcher in front holds the queue and passes on one
text per lane. There are half as many lanes again as rows in the decode batch, so that a free row is
filled before the next step.

To cancel a request, its `answered` flag is set: the loop's thread reads it between steps.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from penstock import scheduling
from penstock.artifacts.description.description import Batching
from penstock.clock import SystemClock
from penstock.errors import InternalError, PenstockError
from penstock.instance.codecs.base import CodecModel, Decoded, bad
from penstock.instance.codecs.seq2seq import decode_seq2seq
from penstock.instance.engines.lane_threads import LoopAnswers, stay_on
from penstock.instance.engines.tensor import join_rows
from penstock.instance.engines.text_tokens import open_tokenizer
from penstock.instance.request import Item
from penstock.runtimes.base import LoadContext
from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
from penstock.runtimes.seq2seq.model import Seq2SeqModel, fails_on_a_token
from penstock.runtimes.seq2seq.request import GenerationLimits
from penstock.runtimes.tensor_bytes import objects
from penstock.wire.frames import decode_request_meta

#: Loading waits at most this long for warm-up: kernels are made for each shape once.
WARM_UP_S_MAX = 1.5

_EXPLAIN_S_MAX = 5.0  #: far longer than a step of a model that works

Outcome = list[int] | PenstockError | None
Told = Callable[[dict[str, Any]], None]


class DecodeThread(LoopAnswers):
    """Runs a decode loop. Call `submit` on the event loop; answers come back to it."""

    def __init__(
        self,
        decoding: DecodeLoop,
        name: str,
        loop: asyncio.AbstractEventLoop,
        cores: frozenset[int] | None = None,
    ) -> None:
        """`cores`: the cores of the thread, if it is pinned."""
        super().__init__(loop)
        self._decoding = decoding
        self._inbox: SimpleQueue[DecodingJob | _Question | None] = SimpleQueue()
        self._thread = threading.Thread(
            target=self._serve, args=(cores,), name=name, daemon=True
        )  # fmt: skip
        self._thread.start()

    def submit(self, job: DecodingJob) -> None:
        """`job.done` is called on the event loop."""
        answered = job.done
        job.done = lambda outcome: self._results.append((answered, outcome))
        self._inbox.put(job)

    def ask(self, told: Told) -> None:
        """`told` is called on the event loop with the state between two steps."""
        self._inbox.put(_Question(told))

    def close(self) -> None:
        """Ends after the current step; running requests get no answer. Idempotent."""
        self._inbox.put(None)

    def wait_closed(self) -> None:
        self._thread.join()

    def _serve(self, cores: frozenset[int] | None) -> None:
        scheduling.compute()
        if cores is not None:
            stay_on(cores)
        decoding = self._decoding
        while True:
            try:
                job = self._inbox.get(block=not decoding.busy)
            except Empty:
                self._turn()
                continue
            if job is None:
                return
            if isinstance(job, _Question):
                self._results.append((job.told, decoding.stepper.snapshot()))
            else:
                decoding.add(job)
            del job
            self._post()

    def _turn(self) -> None:
        try:
            self._decoding.turn()
        except Exception as error:  # a bug must not leave requests without an answer
            failure = InternalError("decode-loop", f"the decode loop failed: {error!r}")
            self._decoding.fail_all(failure)
        self._post()


class _Question:
    """A request for the state. The thread that changes the state answers it, so the state is
    consistent."""

    __slots__ = ("told",)

    def __init__(self, told: Told) -> None:
        self.told = told


class Seq2SeqEngine:
    """An item's data is a list of (token ids, generation request), one per text."""

    shares_worker = True  #: one decode batch, one process
    #: Larger bodies are tokenized on the helper thread: at 1 to 2 MB/s they would block the loop.
    loop_bytes_max = 8_192

    def __init__(
        self,
        model: Seq2SeqModel,
        context: LoadContext,
        codec: CodecModel,
        loop: asyncio.AbstractEventLoop,
        cores: frozenset[int] | None = None,
    ) -> None:
        description = context.description
        self._codec = codec
        self.limits = GenerationLimits.of(description, model.rows_max)
        self._tokenizer = open_tokenizer(context.model_dir, description.tokenizer, 0)
        generation = description.generation
        assert generation is not None  # checked by GenerationLimits.of
        _warm_up(model, time.monotonic() + WARM_UP_S_MAX)
        self._model = model
        self.decoding = DecodeLoop(
            model,
            SystemClock(),
            start_id=generation.decoder_start_id,
            eos_ids=generation.eos_ids,
            buckets=description.batching.buckets,
        )
        self.thread = DecodeThread(
            self.decoding, f"{context.endpoint_name}-{context.variant_name}-decode", loop, cores
        )

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        decoded = decode_seq2seq(self._codec, decode_request_meta(meta), body)
        request = self.limits.checked(decoded.parameters)
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch(decoded.texts)]
        if not all(ids):
            at = next(at for at, each in enumerate(ids) if not each)
            raise bad(f"text {at + 1} is empty: it has no tokens", code="empty-text")
        return decoded, [(each, request) for each in ids], max(map(len, ids))

    def cut(self, data: Any, start: int, stop: int) -> Any:
        return data[start:stop]

    join = staticmethod(join_rows)

    def run(self, lane: int, items: list[Item], bucket: int, done: Callable[[Any], None]) -> None:
        texts = _Texts(self._tokenizer, [item.rows for item in items], done)
        for at, item in enumerate(items):
            owner: Any = item.whole or item
            for place, (source, request) in enumerate(item.data):
                self.thread.submit(
                    DecodingJob(
                        source,
                        request,
                        partial(texts.take, at, place),
                        deadline=owner.deadline,
                        is_cancelled=partial(getattr, owner, "answered"),
                    )
                )

    async def decode_batch(self) -> dict[str, Any]:
        """The decode batch: the rows of each text, and which texts wait for what.

        Raises TimeoutError where a step does not end.
        """
        future = asyncio.get_running_loop().create_future()

        def told(state: dict[str, Any]) -> None:
            if not future.done():
                future.set_result(state)

        self.thread.ask(told)
        async with asyncio.timeout(_EXPLAIN_S_MAX):
            state: dict[str, Any] = await future
        # Keys of JSON objects are text.
        return state | {"running": {str(ident): rows for ident, rows in state["running"].items()}}

    def close(self) -> None:
        """Blocks until the current step ends."""
        self.thread.close()
        self.thread.wait_closed()
        self._model.close()


class _Texts:
    """Collects the answers to a batch's texts, and passes them on when all are there."""

    __slots__ = ("_done", "_left", "_outcomes", "_tokenizer")

    def __init__(self, tokenizer: Any, rows: list[int], done: Callable[[Any], None]) -> None:
        self._tokenizer = tokenizer
        self._outcomes: list[list[Outcome]] = [[None] * count for count in rows]
        self._left = sum(rows)
        self._done = done

    def take(self, item: int, place: int, outcome: Outcome) -> None:
        self._outcomes[item][place] = outcome
        self._left -= 1
        if not self._left:
            self._done([self._result(outcomes) for outcomes in self._outcomes])

    def _result(self, outcomes: list[Outcome]) -> Any:
        for outcome in outcomes:
            if not isinstance(outcome, list):
                return outcome
        texts = [self._tokenizer.decode(ids, skip_special_tokens=True) for ids in outcomes]
        return {"generated_text": objects([text.encode() for text in texts])}


def decode_lanes(batching: Batching) -> int:
    """The number of lanes for a decode batch of `batching.rows_max` rows."""
    rows = max(1, batching.rows_max)
    return rows + max(1, rows // 2)


def _warm_up(model: Seq2SeqModel, until: float) -> None:
    """Runs short sources at every number of rows; raises ModelError if the model does not run."""
    try:
        for rows in model.row_steps:
            model.prefill([[0]] * rows, [(row,) for row in range(rows)], 0)
            model.step(rows)
            if time.monotonic() > until:
                return
    except Exception as error:  # the library raises RuntimeError and its own kinds
        raise fails_on_a_token(error) from None
