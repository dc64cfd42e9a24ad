"""ModelInfer and ModelStreamInfer: messages of calls into requests of the dispatcher.

ModelInfer works on bytes: it scans the message for the model's name, and sends the message to the
instance unchanged. The client's deadline and cancellation apply to the request. No task is made for
it, unless its tensors are in shared memory. `grpc_stream.py` serves a call of ModelStreamInfer.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from penstock.api.answering import bound, door_parameters
from penstock.api.model_names import endpoint_of, parse
from penstock.api.oip.grpc_calls import CallBounds, GrpcCall, UnaryCall
from penstock.api.oip.grpc_status import translate
from penstock.api.oip.grpc_stream import InferNames, InferStream, infer_names
from penstock.api.oip.grpc_stream_calls import StreamCall
from penstock.api.oip.models import OipModels
from penstock.api.oip.shared_tensors import MARK, SharedOutputs, SharedTensors, message_out
from penstock.core.request.forwarded_headers import HeaderForwarding
from penstock.core.request.grants import INVOKE_ENDPOINT, Grant
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.awaited import JoinedAnswer
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Affinity, Invocation, Responder
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http2.exchange import Http2Carrier
from penstock.wire.frames import Reply, RequestMeta, encode_request_meta
from penstock.wire.http2.events import RequestReceived

CONTENT_TYPE: Final = "application/x-oip-grpc"
VERSION_CHARS_MAX: Final = 64
_STREAM: Final = "stream_infer"
#: At most this many metas are cached, since callers choose the names in them.
_METAS_MAX: Final = 1024


class GrpcInference:
    """Makes the requests of one server's calls."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: OipModels,
        tensors: SharedTensors,
        forwarding: HeaderForwarding | None,
    ) -> None:
        """`forwarding`: the entries of a call's metadata that models see; None: none."""
        self.dispatcher = dispatcher
        self.models = models
        self.tensors = tensors
        self._served = dispatcher.served
        self._forwarding = forwarding if forwarding is not None and forwarding.on else None
        self._looked_for = frozenset(dispatcher.interest)

    async def stream(self, call: StreamCall) -> None:
        """Serves a call of ModelStreamInfer."""

        def begin(request: bytes, responder: Responder) -> tuple[Invocation, InferNames]:
            invocation, names = self.invocation(request, call, _STREAM, responder)
            invocation.stream = StreamObserved()
            return invocation, names

        stream = InferStream(self.dispatcher, begin, lambda error: translate(error)[1])
        await stream.run(call, call.write)

    def invocation(
        self, request: bytes, call: GrpcCall, operation: str, responder: Responder
    ) -> tuple[Invocation, InferNames]:
        """Raises PenstockError."""
        names = infer_names(request)
        call.granted(INVOKE_ENDPOINT, endpoint_of(names.model, self._served))
        model = parse(names.model, self._served)
        if len(names.version) > VERSION_CHARS_MAX:
            raise CallerError("version-too-long", "The version is longer than 64 characters.")
        target, component = bound(self.dispatcher, model)
        if names.version:
            self.models.check_version(model, names.version)
        rare = None
        if self._looked_for:
            rare = {name: value for name, value in call.fields if name in self._looked_for}
        make = functools.partial(_Carrying, rare) if rare else Invocation
        invocation = make(
            model.endpoint,
            self._meta(operation, target, names.version, model.served, call),
            request,
            responder,
            received=self.dispatcher.clock.monotonic(),
            deadline=call.deadline,
            door="oip-grpc",
        )
        if model.target is not None:
            invocation.affinity = Affinity(model=target, component=component)
        return invocation, names

    def _meta(
        self, operation: str, target: str | None, version: str, served: str, call: GrpcCall
    ) -> bytes:
        if self._forwarding is not None:
            headers = self._forwarding.chosen(call.metadata())
            if headers:
                parameters = door_parameters(
                    operation=operation, version=version, model=served, headers=headers
                )
                return _meta_with(target, parameters)
        return _meta_of(operation, target, version, served)


class InferCall(UnaryCall):
    """A call of ModelInfer, which is the responder of its request."""

    __slots__ = ("_answered_by_model", "_inference", "_invocation", "_joined", "_shared")

    def __init__(
        self,
        inference: GrpcInference,
        connection: Http2Carrier,
        request: RequestReceived,
        bounds: CallBounds,
        grant: Grant | None,
    ) -> None:
        super().__init__(connection, request, bounds, grant)
        self._inference = inference
        self._invocation: Invocation | None = None
        self._joined: JoinedAnswer | None = None
        self._shared: SharedOutputs | None = None
        self._answered_by_model = False  #: the request has its outcome

    def on_message(self, message: bytes) -> None:
        if self._inference.models.shared.on and MARK in message:
            self.run(self._with_shared(message))
        else:
            self._invoke(message)

    async def _with_shared(self, message: bytes) -> None:
        message, self._shared = await self._inference.tensors.message_in(message, self.client)
        self._invoke(message)

    def _invoke(self, message: bytes) -> None:
        invocation, _ = self._inference.invocation(message, self, "", self)
        self._invocation = invocation
        self._inference.dispatcher.invoke(invocation)

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        self._answered_by_model = True
        try:
            body = reply.body if self._shared is None else message_out(reply.body, self._shared)
        except PenstockError as error:
            self.fail(error)
            return
        self.answer_with(body)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        if self._joined is None:
            self._joined = JoinedAnswer()
        self._joined.add(chunk, meta)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        joined = self._joined or JoinedAnswer()
        self.on_reply(invocation, joined.whole(reply))

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        self._answered_by_model = True
        self.fail(error)

    # Of an exchange

    def release(self) -> None:
        super().release()
        if self._shared is not None:
            self._shared.leave()
            self._shared = None

    def on_written(self) -> None:
        super().on_written()
        self._finish()

    def on_gone(self) -> None:
        super().on_gone()
        self._finish()

    def check(self, now: float) -> None:
        if self._invocation is None:  # else the dispatcher keeps the deadline
            super().check(now)

    def _finish(self) -> None:
        """The last byte has left, or never will."""
        invocation, self._invocation = self._invocation, None
        if invocation is None:
            return
        if self._answered_by_model:
            self._inference.dispatcher.written(invocation)
        else:
            self._inference.dispatcher.cancel(invocation)


class _Carrying(Invocation):
    """A request with headers that the server forwards or reads."""

    __slots__ = ("rare",)

    def __init__(self, rare: dict[bytes, bytes], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rare = rare


@functools.lru_cache(maxsize=_METAS_MAX)
def _meta_of(operation: str, target: str | None, version: str, served: str) -> bytes:
    return _meta_with(target, door_parameters(operation=operation, version=version, model=served))


def _meta_with(target: str | None, parameters: str | None) -> bytes:
    return encode_request_meta(
        RequestMeta(
            content_type=CONTENT_TYPE,
            target_model=target,
            door="oip-grpc",
            parameters=parameters,
        )
    )
