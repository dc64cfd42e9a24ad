"""Responses of Triton's Python models, and the object by which a model sends them itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.runtimes.python.pb_utils.errors import TritonError, TritonModelException
from penstock.runtimes.python.pb_utils.tensors import Tensor

TRITONSERVER_RESPONSE_COMPLETE_FINAL: Final = 1


def parameters_json(parameters: Any) -> str:
    """The JSON of a request's or response's parameters. Raises for what Triton does not take."""
    if parameters is None:
        return "{}"
    if not isinstance(parameters, Mapping):
        raise TritonModelException(f"parameters are a dict, not {type(parameters)}")
    for key, value in parameters.items():
        if not isinstance(key, str):
            raise TritonModelException(
                f"Expect parameters keys to have type str, found type {type(key)}"
            )
        if not isinstance(value, bool | int | str):
            raise TritonModelException(
                f"Expect parameters values to have type bool/int/str, found type {type(value)}"
            )
    return json.dumps(dict(parameters))


class InferenceResponse:
    """One answer: tensors, or an error."""

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        self._outputs = list(output_tensors)
        self._error = error
        self._parameters = parameters_json(parameters)

    def output_tensors(self) -> list[Tensor]:
        return self._outputs

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error

    def parameters(self) -> str:
        return self._parameters


#: (response or None, whether it is the last): hands it on; waits where the reader is slow.
Deliver = Callable[[InferenceResponse | None, bool], None]


class InferenceResponseSender:
    """Sends the responses of one request, from any thread; also after `execute` has returned."""

    def __init__(self, deliver: Deliver, cancelled: Callable[[], bool], *, decoupled: bool) -> None:
        self._deliver = deliver
        self._cancelled = cancelled
        self._decoupled = decoupled
        self._sending = threading.Lock()
        self._count = 0
        self._closed = False

    def send(self, response: InferenceResponse | None = None, flags: int = 0) -> None:
        if response is not None and not isinstance(response, InferenceResponse):
            raise TritonModelException(f"send takes an InferenceResponse, not {type(response)}")
        if flags not in (0, TRITONSERVER_RESPONSE_COMPLETE_FINAL):
            raise TritonModelException(
                f"Unable to send response. Unsupported flag '{flags}' provided."
            )
        if response is None and not flags:
            raise TritonModelException(
                "Inference Response object must be provided when the response flags is set to zero."
            )
        with self._sending:
            self._check(response, bool(flags))
            self._count += response is not None
            self._closed = self._closed or bool(flags)
            self._deliver(response, bool(flags))

    def _check(self, response: InferenceResponse | None, final: bool) -> None:
        if self._closed:
            raise TritonModelException("Unable to send response. Response sender has been closed.")
        if self._decoupled:
            return
        if response is not None and self._count:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send more than one response."
            )
        if response is None and final and not self._count:
            raise TritonModelException(
                "Unable to send response. Non-decoupled model cannot send complete final before "
                "sending a response."
            )

    def is_cancelled(self) -> bool:
        return self._cancelled()

    def close_with(self, error: TritonError) -> None:
        """Ends the answer with an error, unless it has ended."""
        with self._sending:
            if not self._closed:
                self._closed = True
                self._deliver(InferenceResponse(error=error), True)

    def __del__(self) -> None:
        """Nobody can send the end any more: the caller must not wait for it."""
        if not self._closed and (self._decoupled or not self._count):
            words = "the model let its response sender go without a final response"
            with suppress(BaseException):  # at the end of the process anything may be gone
                self.close_with(TritonError(words))
