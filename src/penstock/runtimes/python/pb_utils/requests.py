"""Requests of Triton's Python models: those that `execute` gets, and those that a model sends to
another."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from enum import IntEnum
from typing import Any, ClassVar, Final, TypeVar

from penstock.runtimes.infer_metadata import InferMetadata
from penstock.runtimes.python.caller import LOAD, READY, UNLOAD, Called, Caller, ResponseStream
from penstock.runtimes.python.pb_utils.errors import TritonError, TritonModelException, text_of
from penstock.runtimes.python.pb_utils.responses import (
    InferenceResponse,
    InferenceResponseSender,
    parameters_json,
)
from penstock.runtimes.python.pb_utils.tensors import Tensor, plain_array

#: What stands for a call: its answer, or its stream of them.
Sent = TypeVar("Sent")

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START: Final = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END: Final = 2
TRITONSERVER_REQUEST_RELEASE_ALL: Final = 1
TRITONSERVER_REQUEST_RELEASE_RESCHEDULE: Final = 2


class MemoryType(IntEnum):
    TRITONSERVER_MEMORY_CPU = 0
    TRITONSERVER_MEMORY_GPU = 2


TRITONSERVER_MEMORY_CPU: Final = MemoryType.TRITONSERVER_MEMORY_CPU
TRITONSERVER_MEMORY_GPU: Final = MemoryType.TRITONSERVER_MEMORY_GPU


class PreferredMemory:
    """The preferred place of an answer's tensors. They are in host memory in any case."""

    def __init__(self, preferred_memory_type: int, preferred_device_id: int = 0) -> None:
        self.preferred_memory_type = preferred_memory_type
        self.preferred_device_id = preferred_device_id


class InferenceTrace:
    """The trace that a request belongs to."""

    def __init__(self, context: str = "") -> None:
        self._context = context

    def get_context(self) -> str | None:
        """The W3C trace context as JSON, `{"traceparent": ...}`; None if it is not traced."""
        return self._context or None


class InferenceRequest:
    """One request of the batch for `execute`; or one that the model sends to another model.

    Errors of a call are in its response: `exec` raises only for an invalid request.
    """

    _caller: ClassVar[Caller | None] = None  #: the object that makes this worker's nested calls

    def __init__(
        self,
        request_id: str | bytes = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str | bytes] = (),
        model_name: str | bytes = "",
        model_version: int = -1,
        flags: int = 0,
        timeout: int = 0,
        preferred_memory: PreferredMemory | None = None,
        trace: InferenceTrace | None = None,
        parameters: Any = None,
    ) -> None:
        """`timeout`: microseconds; 0 = the rest of the time of the request for which the call is
        made."""
        if isinstance(correlation_id, bool) or not isinstance(correlation_id, int | str):
            raise TritonModelException("Correlation ID must be integer or string")
        if any(not isinstance(each, Tensor) for each in inputs):
            raise TritonModelException("inputs are a list of pb_utils.Tensor")
        if "" in requested_output_names:
            raise TritonModelException("a requested output name is empty")
        self._request_id = text_of(request_id)
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._outputs = set(map(text_of, requested_output_names))
        self._model_name = text_of(model_name)
        self._model_version = model_version
        self._flags = flags
        self._timeout = timeout
        self._trace = trace or InferenceTrace()
        self._parameters = parameters_json(parameters)
        self._make_sender: Callable[[], InferenceResponseSender] | None = None
        self._sender: InferenceResponseSender | None = None
        self._cancelled: Callable[[], bool] = lambda: False

    @classmethod
    def received(
        cls,
        metadata: InferMetadata,
        trace: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[str],
        make_sender: Callable[[], InferenceResponseSender],
        cancelled: Callable[[], bool],
    ) -> InferenceRequest:
        """One for `execute`. `outputs`: all of the model's, for a request that names none."""
        made = cls(
            request_id=metadata.request_id,
            correlation_id=metadata.correlation_id,
            inputs=inputs,
            requested_output_names=metadata.outputs or outputs,
            flags=metadata.flags,
            timeout=metadata.timeout_us,
            trace=InferenceTrace(trace),
        )
        # A client's parameters may be floats, which a model can't give to a request of its own.
        made._parameters = json.dumps(dict(metadata.parameters))
        made._make_sender = make_sender
        made._cancelled = cancelled
        return made

    def inputs(self) -> list[Tensor]:
        return self._inputs

    def requested_output_names(self) -> set[str]:
        return self._outputs

    def request_id(self) -> str:
        return self._request_id

    def correlation_id(self) -> int | str:
        return self._correlation_id

    def model_name(self) -> str:
        return self._model_name

    def model_version(self) -> int:
        return self._model_version

    def flags(self) -> int:
        return self._flags

    def set_flags(self, flags: int) -> None:
        self._flags = flags

    def set_release_flags(self, flags: int) -> None:
        if flags != TRITONSERVER_REQUEST_RELEASE_ALL:
            raise TritonModelException(
                "requests can't be rescheduled here: answer each in the execute that gets it"
            )

    def timeout(self) -> int:
        return self._timeout

    def trace(self) -> InferenceTrace:
        return self._trace

    def parameters(self) -> str:
        """A JSON object."""
        return self._parameters

    def is_cancelled(self) -> bool:
        return self._cancelled()

    def get_response_sender(self) -> InferenceResponseSender:
        if self._make_sender is None:
            raise TritonModelException("only a request that execute gets has a response sender")
        if self._sender is None:
            self._sender = self._make_sender()
        return self._sender

    @property
    def sender_taken(self) -> bool:
        return self._sender is not None

    def end_with(self, error: TritonError) -> None:
        """Ends the answer with an error, unless the model has ended it."""
        self.get_response_sender().close_with(error)

    def exec(self, decoupled: bool = False) -> Any:
        """Calls the model and waits for its answer. `decoupled`: returns an iterator at once, over
        the responses of any model."""
        if decoupled:
            return ResponseIterator(self._sent(self._by().stream))
        return _response(self._begun().result())

    async def async_exec(self, decoupled: bool = False) -> Any:
        """As `exec`, while other coroutines of the same `async def execute` go on."""
        if decoupled:
            return ResponseIterator(self._sent(self._by().stream))
        return _response(await asyncio.wrap_future(self._begun()))

    def _begun(self) -> Future[Called]:
        return self._sent(self._by().call)

    def _by(self) -> Caller:
        if not self._model_name:
            raise TritonModelException("model_name is missing: which model is to be called?")
        if self._caller is None:
            raise TritonModelException(
                "other models can be called in execute, by a model of a repository with several"
            )
        return self._caller

    def _sent(self, call: Callable[[str, int, InferMetadata, Mapping[str, Any]], Sent]) -> Sent:
        tensors = {each.name(): plain_array(each.as_numpy()) for each in self._inputs}
        metadata = InferMetadata(
            request_id=self._request_id,
            correlation_id=self._correlation_id,
            flags=self._flags,
            timeout_us=self._timeout,
            parameters=json.loads(self._parameters),
            outputs=tuple(sorted(self._outputs)),
        )
        try:
            return call(self._model_name, self._model_version, metadata, tensors)
        except ValueError as error:
            raise TritonModelException(f"the inputs can't be sent: {error}") from None


def _response(called: Called) -> InferenceResponse:
    if called.error is not None:
        return InferenceResponse(error=TritonError(called.error, called.code))
    tensors = [Tensor(name, array) for name, array in called.tensors.items()]
    return InferenceResponse(tensors, parameters=called.parameters)


class ResponseIterator:
    """The responses of a call, as they come; the last may be empty, as in Triton."""

    def __init__(self, stream: ResponseStream) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[InferenceResponse]:
        return self

    def __next__(self) -> InferenceResponse:
        called = self._stream.next()
        if called is None:
            raise StopIteration
        return _response(called)

    def __del__(self) -> None:
        with suppress(BaseException):  # at the end of the process anything may be gone
            self._stream.close()


def connect(caller: Caller) -> None:
    """From now on requests can be sent to other models."""
    InferenceRequest._caller = caller


def is_model_ready(model_name: str | bytes, model_version: str = "") -> bool:
    """Whether the model is loaded; while this one is initialized it is not known: False."""
    if InferenceRequest._caller is None:
        return False
    version = {"version": str(model_version)}
    called = InferenceRequest._caller.ask(READY, text_of(model_name), _said(version))
    return called.error is None and bool(called.parameters.get("ready"))


def load_model(
    model_name: str | bytes, config: str = "", files: Mapping[str, bytes] | None = None
) -> None:
    """Loads another target model of the endpoint. In `initialize` it is loaded once this one is."""
    name = text_of(model_name)
    if config or files:
        raise TritonModelException(
            f"load_model({name!r}): a configuration or files are not taken: a model is loaded as "
            "it lies in its repository"
        )
    _control(LOAD, name, {})


def unload_model(model_name: str | bytes, unload_dependents: bool = False) -> None:
    """Unloads a target model of the endpoint once it has answered; the next call loads it again."""
    _control(UNLOAD, text_of(model_name), {"dependents": bool(unload_dependents)})


#: Models that `initialize` wants to be loaded.
wanted_models: Final[list[str]] = []


def _control(do: str, name: str, parameters: dict[str, Any]) -> None:
    if InferenceRequest._caller is None:
        if do == LOAD:
            wanted_models.append(name)
            return
        raise TritonModelException(f"{do}_model({name!r}): call it in execute")
    called = InferenceRequest._caller.ask(do, name, _said(parameters))
    if called.error is not None:
        raise TritonModelException(called.error)


def _said(parameters: dict[str, Any]) -> InferMetadata:
    return InferMetadata(parameters=parameters)


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    return next((each for each in request.inputs() if each.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    return next((each for each in response.output_tensors() if each.name() == name), None)
