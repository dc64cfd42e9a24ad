"""Triton's Python backend in a worker process: initialize, execute, finalize.

Bodies are packed tensors (`tensor_bytes`), which the instance has decoded from the wire. `execute`
gets the whole batch. If it raises for several requests, each is run alone, so that only the guilty
one fails.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.errors import ModelError, kind_of, plain
from penstock.runtimes.python import triton_backend_utils as utils
from penstock.runtimes.python.batches import ALL_ITEMS, Answer, answered, failed
from penstock.runtimes.python.pb_utils.errors import kind_of_code
from penstock.runtimes.python.pb_utils.requests import InferenceRequest
from penstock.runtimes.python.pb_utils.responses import InferenceResponse
from penstock.runtimes.python.pb_utils.tensors import Tensor, plain_array
from penstock.runtimes.python.triton_wire import pack_answer, unpack_metadata
from penstock.runtimes.tensor_bytes import unpack
from penstock.runtimes.workers.failures import WORDS_CHARS_MAX, log_text
from penstock.runtimes.workers.inside import import_code

PACKED = "application/x-penstock-tensors"


class TritonContract:
    def __init__(self, init: dict[str, Any]) -> None:
        path = Path(init["model_dir"], init["file"])
        utils.install(str(path.parent), init)
        module = import_code(path)
        kind = getattr(module, "TritonPythonModel", None)
        if kind is None:
            raise ModelError(
                "model-code-incomplete", f"{init['file']} defines no class TritonPythonModel"
            )
        self._outputs = [name for name, _, _ in init["outputs"]]
        self._model = kind()
        self._runner = asyncio.Runner()  # makes its loop at the first use
        if hasattr(self._model, "initialize"):
            self._model.initialize(utils.arguments(init, str(path.parent.parent)))

    def close(self) -> None:
        if hasattr(self._model, "finalize"):
            self._model.finalize()
        self._runner.close()

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        progress(0 if len(items) == 1 else ALL_ITEMS)
        try:
            return self._execute(items)
        except BaseException as error:
            if len(items) == 1:
                return [failed(error)]
            log_text(
                f"execute raised {kind_of(error)} for a batch of {len(items)} requests; each is "
                "run again alone\n"
            )
        answers = []
        for index, item in enumerate(items):
            progress(index)
            try:
                answers += self._execute([item])
            except BaseException as error:
                answers.append(failed(error))
        return answers

    def _execute(self, items: list[tuple[bytes, bytes]]) -> list[Answer]:
        requests = [request_of(meta, body, self._outputs) for meta, body in items]
        responses = self._model.execute(requests)
        if inspect.iscoroutine(responses):  # `async def execute`, for `async_exec`
            responses = self._runner.run(responses)
        got = len(responses) if isinstance(responses, list | tuple) else 0
        if got != len(requests):
            raise ModelError(
                "wrong-answer-count", f"execute got {len(requests)} requests and answered {got}"
            )
        return [_answer_or_failure(response) for response in responses]


def request_of(meta: bytes, body: bytes, outputs: Sequence[str]) -> InferenceRequest:
    """`outputs`: all of the model's, for a request that names none."""
    metadata, trace = unpack_metadata(meta)
    inputs = [Tensor(name, array) for name, array in unpack(body).items()]
    return InferenceRequest.received(metadata, trace, inputs, outputs)


def _answer_or_failure(response: Any) -> Answer:
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
