"""Triton's Python backend in a worker process: initialize, execute, finalize.

Bodies are packed tensors (`tensor_bytes`), which the instance has decoded from the wire. `execute`
gets the whole batch. If it raises for several requests, each is run alone, so that only the guilty
one fails.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.errors import ModelError, plain
from penstock.runtimes.python import triton_backend_utils as utils
from penstock.runtimes.python.batches import ALL_ITEMS, Answer, answered, failed
from penstock.runtimes.python.triton_model_config import completed_by
from penstock.runtimes.tensor_bytes import pack, unpack
from penstock.runtimes.workers.failures import WORDS_CHARS_MAX
from penstock.runtimes.workers.inside import import_code

PACKED = "application/x-penstock-tensors"

#: Triton's error codes that are the caller's fault -> HTTP status.
_CALLER_CODES = {utils.TritonError.INVALID_ARG: 400, utils.TritonError.NOT_FOUND: 404}


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
        config = init.get("config") or utils.model_config(init)
        self.config = init["config"] = completed_by(kind, config)
        self._outputs = [output["name"] for output in self.config["output"]]
        self._model = kind()
        self._runner = asyncio.Runner()  # makes its loop at the first use
        if hasattr(self._model, "initialize"):
            self._model.initialize(utils.arguments(init, str(path.parent.parent)))

    def about(self) -> dict[str, Any]:
        return {"config": self.config}

    def close(self) -> None:
        if hasattr(self._model, "finalize"):
            self._model.finalize()
        self._runner.close()

    def answer(
        self, items: list[tuple[bytes, bytes]], progress: Callable[[int], None]
    ) -> list[Answer]:
        progress(0 if len(items) == 1 else ALL_ITEMS)
        bodies = [body for _, body in items]
        try:
            return self._execute(bodies)
        except BaseException as error:
            if len(bodies) == 1:
                return [failed(error)]
        answers = []
        for index, body in enumerate(bodies):
            progress(index)
            try:
                answers += self._execute([body])
            except BaseException as error:
                answers.append(failed(error))
        return answers

    def _execute(self, bodies: list[bytes]) -> list[Answer]:
        requests = [
            utils.InferenceRequest(
                inputs=[utils.Tensor(name, array) for name, array in unpack(body).items()],
                requested_output_names=self._outputs,
            )
            for body in bodies
        ]
        responses = self._model.execute(requests)
        if inspect.iscoroutine(responses):  # `async def execute`, for `async_exec`
            responses = self._runner.run(responses)
        got = len(responses) if isinstance(responses, list | tuple) else 0
        if got != len(requests):
            raise ModelError(
                "wrong-answer-count", f"execute got {len(requests)} requests and answered {got}"
            )
        return [_answer_or_failure(response) for response in responses]


def _answer_or_failure(response: Any) -> Answer:
    """A response that can't be written fails only its own request."""
    try:
        return _answer(response)
    except BaseException as error:
        return failed(error)


def _answer(response: Any) -> Answer:
    if response is None or (response.error() is None and not response.output_tensors()):
        return failed(ModelError("model-code-failed", "execute gave no tensors for this request"))
    error = response.error()
    if error is not None:
        status = _CALLER_CODES.get(error.code(), 500)
        said = plain(error.message(), WORDS_CHARS_MAX)
        return failed(ModelError("model-code-failed", said, original_status=status))
    tensors = {
        each.name(): utils.plain_array(each.as_numpy()) for each in response.output_tensors()
    }
    return answered(pack(tensors), PACKED)
