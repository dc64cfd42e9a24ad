"""Triton's Python backend in a worker process: initialize, execute, finalize.

Bodies are packed tensors (`tensor_bytes`), which the instance has decoded from the wire. `execute`
gets the whole batch. If it raises for several requests, each is run alone, so that only the guilty
one fails; not so a model of sequences, whose state may hold some of them already. A decoupled model
answers by response senders, at any time and from any thread: then `execute` only begins the
answers, and what it returns is nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError, kind_of, plain
from penstock.runtimes.python import triton_backend_utils as utils
from penstock.runtimes.python.batches import (
    ALL_ITEMS,
    CANCELLED,
    HELD,
    METRICS,
    Answer,
    Busy,
    answered,
    failed,
)
from penstock.runtimes.python.pb_utils.errors import TritonError, kind_of_code
from penstock.runtimes.python.pb_utils.metrics import Changes
from penstock.runtimes.python.pb_utils.model_config import completed_by
from penstock.runtimes.python.pb_utils.requests import InferenceRequest, wanted_models
from penstock.runtimes.python.pb_utils.responses import (
    InferenceResponse,
    InferenceResponseSender,
)
from penstock.runtimes.python.pb_utils.tensors import Tensor, plain_array
from penstock.runtimes.python.triton_wire import Told, pack_answer, pack_response, unpack_metadata
from penstock.runtimes.tensor_bytes import unpack
from penstock.runtimes.workers.failures import WORDS_CHARS_MAX, log_text, log_traceback
from penstock.runtimes.workers.inside import import_code
from penstock.runtimes.workers.wire import message

PACKED = "application/x-penstock-tensors"
#: How often a response that waits for a slow reader looks whether it may go.
_HELD_LOOK_S: Final = 0.002
_METRICS_PAUSE_S: Final = 0.2


class TritonContract:
    def __init__(self, init: dict[str, Any]) -> None:
        path = Path(init["model_dir"], init["file"])
        self._changes = Changes()
        utils.install(str(path.parent), init, self._changes)
        module = import_code(path)
        kind = getattr(module, "TritonPythonModel", None)
        if kind is None:
            raise ModelError(
                "model-code-incomplete", f"{init['file']} defines no class TritonPythonModel"
            )
        config = init.get("config") or utils.model_config(init)
        self.config = init["config"] = completed_by(kind, config)
        self._outputs = [output["name"] for output in self.config["output"]]
        self._stateful = "sequence_batching" in self.config
        self._decoupled = utils.using_decoupled_model_transaction_policy(self.config)
        self._send: Callable[[bytes], None] = lambda data: None
        self._busy: Busy | None = None
        self._model = kind()
        self._loop: asyncio.AbstractEventLoop | None = None  #: made at the first use
        if hasattr(self._model, "initialize"):
            self._model.initialize(utils.arguments(init, str(path.parent.parent)))

    def about(self) -> dict[str, Any]:
        return {"config": self.config, "wanted_models": wanted_models}

    def attach(self, send: Callable[[bytes], None], busy: Busy) -> None:
        """`send`: to the instance, from any thread; `busy`: with the marks of requests."""
        self._send = send
        self._busy = busy
        teller = threading.Thread(target=self._tell_metrics, name="metrics", daemon=True)
        self._changes.when_first(teller.start)

    def _tell_metrics(self) -> None:
        """Sends changes soon, whichever thread made them, and many of them together."""
        while self._changes.changed.wait():
            if self._changes.closed:
                return
            time.sleep(_METRICS_PAUSE_S)
            with suppress(OSError):  # the instance is gone, and so will this process be
                self._send(message(METRICS, json.dumps(self._changes.taken()).encode()))

    def close(self) -> None:
        if hasattr(self._model, "finalize"):
            self._model.finalize()
        self._changes.close()
        if self._loop is not None:
            self._loop.close()

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        progress(0 if len(items) == 1 else ALL_ITEMS)
        if self._decoupled:
            return self._begin(items)
        try:
            return self._execute(items)
        except BaseException as error:
            if len(items) == 1 or self._stateful:
                return [failed(error)] * len(items)
            log_text(
                f"execute raised {kind_of(error)} for a batch of {len(items)} requests; each is "
                "run again alone\n"
            )
            self._changes.run_again()
        answers = []
        for index, item in enumerate(items):
            progress(index)
            try:
                answers += self._execute([item])
            except BaseException as error:
                answers.append(failed(error))
        return answers

    def _execute(self, items: list[tuple[bytes, bytes]]) -> list[Answer]:
        boxes = [_Box() for _ in items]
        requests = []
        for (meta, body), box in zip(items, boxes, strict=True):
            told = unpack_metadata(meta)
            requests.append(self._request(told, body, box.deliver))
        responses = self._run(requests)
        if responses is None and any(each.sender_taken for each in requests):
            responses = [None] * len(requests)  # senders answer them all
        got = len(responses) if isinstance(responses, list | tuple) else 0
        if got != len(requests):
            raise ModelError(
                "wrong-answer-count", f"execute got {len(requests)} requests and answered {got}"
            )
        return [
            box.answer() if response is None and request.sender_taken else answer_to(response)
            for request, response, box in zip(requests, responses, boxes, strict=True)
        ]

    def _run(self, requests: list[InferenceRequest]) -> Any:
        responses = self._model.execute(requests)
        if inspect.iscoroutine(responses):  # `async def execute`, for `async_exec`
            if self._loop is None:  # an environment's Python may be 3.10, which has no Runner
                self._loop = asyncio.new_event_loop()
            responses = self._loop.run_until_complete(responses)
        return responses

    def _request(
        self, told: Told, body: bytes, deliver: Callable[[InferenceResponse | None, bool], None]
    ) -> InferenceRequest:
        inputs = [Tensor(name, array) for name, array in unpack(body).items()]
        cancelled = partial(self._is_cancelled, told.slot)
        make_sender = partial(
            InferenceResponseSender, deliver, cancelled, decoupled=self._decoupled
        )
        return InferenceRequest.received(
            told.metadata, told.trace, inputs, self._outputs, make_sender, cancelled
        )

    # Decoupled models

    def _begin(self, items: list[tuple[bytes, bytes]]) -> list[Answer]:
        """Each request has its answers later, or has them already, unless it fails here."""
        begun: Answer = (b"", b"", b"", 0)
        requests = []
        for meta, body in items:
            told = unpack_metadata(meta)
            requests.append(self._request(told, body, partial(self._deliver, told)))
        try:
            if self._run(requests) is not None:
                raise ModelError(
                    "wrong-answer-count",
                    "execute of a decoupled model returned something; it returns None and answers "
                    "by each request's get_response_sender()",
                )
        except BaseException as error:
            log_traceback(error)
            words = plain(error, WORDS_CHARS_MAX)
            said = words if isinstance(error, ModelError) else f"{kind_of(error)}: {words}"
            for request in requests:
                request.end_with(TritonError(said))
            return [begun] * len(requests)
        for request in requests:
            if not request.sender_taken:
                request.end_with(TritonError("execute took no response sender for this request"))
        return [begun] * len(requests)

    def _deliver(self, told: Told, response: InferenceResponse | None, final: bool) -> None:
        """Waits while the request's reader is slow; says nothing to one that is gone."""
        while self._marks(told.slot) & (HELD | CANCELLED) == HELD:
            time.sleep(_HELD_LOOK_S)
        if self._is_cancelled(told.slot):
            return
        answer = None if response is None else answer_to(response)
        self._send(pack_response(told.key, answer, final=final))

    def _marks(self, slot: int) -> int:
        return self._busy.marks(slot) if self._busy is not None and slot else 0

    def _is_cancelled(self, slot: int) -> bool:
        return bool(self._marks(slot) & CANCELLED)


class _Box:
    """The one response to a request whose model sends it by a sender."""

    def __init__(self) -> None:
        self._response: InferenceResponse | None = None
        self._sent = threading.Event()

    def deliver(self, response: InferenceResponse | None, final: bool) -> None:
        if response is not None:
            self._response = response
            self._sent.set()

    def answer(self) -> Answer:
        """Waits for it: another thread may send it."""
        self._sent.wait()
        return answer_to(self._response)


def answer_to(response: Any) -> Answer:
    """A response that can't be written fails only its own request."""
    try:
        return _answer(response)
    except BaseException as error:
        return failed(error)


def _answer(response: Any) -> Answer:
    if not isinstance(response, InferenceResponse):
        raise ModelError(
            "model-code-failed",
            f"execute answered a request with {kind_of(response)}, not an InferenceResponse",
        )
    error = response.error()
    if error is not None:
        kind = kind_of_code(error.code())
        said = plain(error.message(), WORDS_CHARS_MAX)
        return failed(ModelError(kind.code, said, original_status=kind.status))
    tensors = {each.name(): plain_array(each.as_numpy()) for each in response.output_tensors()}
    return answered(pack_answer(tensors, response.parameters().encode()), PACKED)
