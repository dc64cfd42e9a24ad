"""SageMaker's runtime: POST /endpoints/{name}/invocations, the hottest path of all.

Translates InvokeEndpoint into an `Invocation` and its outcome back; holds no policy. Everything
that repeats (paths, metas, heads of answers) is kept in bounded dictionaries under the bytes that
came, so a usual request costs a few look-ups and no parsing.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from penstock.api.runtime import request
from penstock.api.runtime.errors import RuntimeErrors
from penstock.errors import CallerError, PenstockError
from penstock.gateway.call import Call, status_line
from penstock.gateway.dispatcher import Dispatcher
from penstock.gateway.invocation import Invocation
from penstock.wire.frames import Reply, decode_reply_meta

PREFIX = b"/endpoints/"
INTEREST = request.INTEREST

_CACHE_MAX = 4096
_KEY_BYTES_MAX = 512  #: longer keys are not kept: strangers choose them
_OPERATIONS = (b"invocations",)


class RuntimeDoor:
    """The `Door` of the runtime, and the `Responder` of its invocations."""

    def __init__(self, dispatcher: Dispatcher, *, account_id: str, region: str) -> None:
        self._invoke = dispatcher.invoke
        self.written: Callable[[Call], None] = dispatcher.written
        self.abandoned: Callable[[Call], None] = dispatcher.cancel
        self._metas = request.PLAIN_METAS
        self._errors = RuntimeErrors(account_id, region)
        self._names: dict[bytes, str] = {}  #: request target -> endpoint
        self._heads: dict[tuple[str | None, bytes], bytes] = {}  #: variant, reply meta -> head

    # Door

    def handle(self, call: Call) -> bool:
        name = self._names.get(call.url)
        if name is None or call.method != b"POST":
            try:
                name = self._learn(call)
            except CallerError as error:
                self.refuse(call, error)
                return True
        if call.rare is None:
            meta = self._metas.get((call.content_type, call.accept))
            if meta is None:
                try:
                    meta = request.plain_meta(call.content_type, call.accept)
                except CallerError as error:
                    self._answer_error(call, error, name)
                    return True
            call.meta = meta
        else:
            try:
                asked = request.read(call.content_type, call.accept, call.rare)
            except CallerError as error:
                self._answer_error(call, error, name)
                return True
            call.meta, call.variant = asked.meta, asked.variant
            if asked.deadline_s is not None:
                call.deadline = call.received + asked.deadline_s
        call.endpoint = name
        call.responder = self
        self._invoke(call)
        return True

    def refuse(self, call: Call, error: PenstockError) -> None:
        self._answer_error(call, error, endpoint_of(call.path)[0])

    # Responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        head = self._heads.get((invocation.variant, reply.meta))
        if head is None:
            head = self._learn_head(invocation.variant, reply.meta)
        call: Call = invocation  # type: ignore[assignment]  # `handle` passed on nothing else
        call.answer(head, reply.body)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        assert isinstance(invocation, Call)
        call = invocation
        if not call.started:
            call.start(self._learn_head(invocation.variant, meta or b""))
        call.send(chunk)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        call = invocation
        if call.started:
            call.finish()
        else:
            self.on_reply(invocation, reply)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        assert isinstance(invocation, Call)
        call = invocation
        if call.started:
            # Part of the answer is out under status 200: only a cut connection says it broke.
            call.abort()
        else:
            self._answer_error(call, error, invocation.endpoint)

    # What repeats

    def _answer_error(self, call: Call, error: PenstockError, endpoint: str) -> None:
        call.answer(*self._errors.render(error, endpoint))

    def _learn(self, call: Call) -> str:
        """The endpoint that a path names. Raises CallerError for what is not served."""
        name, operation = endpoint_of(call.path)
        if operation not in _OPERATIONS or call.method != b"POST":
            asked = f"{call.method.decode('latin-1')} {call.path[:128].decode('latin-1')}"
            raise CallerError(
                "unknown-operation",
                f"{asked} is no operation that is served here.",
                hint="POST /endpoints/{name}/invocations invokes an endpoint.",
                status=404,
            )
        if len(call.url) <= _KEY_BYTES_MAX:
            if len(self._names) >= _CACHE_MAX:
                self._names.clear()
            self._names[call.url] = name
        return name

    def _learn_head(self, variant: str | None, reply_meta: bytes) -> bytes:
        meta = decode_reply_meta(reply_meta)
        head = status_line(200)
        if meta.content_type is not None:
            head += b"content-type: %b\r\n" % header_value(meta.content_type)
        if variant is not None:
            head += b"x-amzn-invoked-production-variant: %b\r\n" % header_value(variant)
        if meta.custom_attributes is not None:
            attributes = header_value(meta.custom_attributes)
            head += b"x-amzn-sagemaker-custom-attributes: %b\r\n" % attributes
        if len(reply_meta) <= _KEY_BYTES_MAX:
            if len(self._heads) >= _CACHE_MAX:
                self._heads.clear()
            self._heads[variant, reply_meta] = head
        return head


def endpoint_of(path: bytes) -> tuple[str, bytes]:
    """Endpoint name (decoded) and operation of `/endpoints/{name}/{operation}`."""
    name, _, operation = path[len(PREFIX) :].partition(b"/")
    return unquote_to_bytes(name).decode("utf-8", "replace"), operation


def header_value(text: str) -> bytes:
    """A model's words as one header line: whatever could end the line is a space."""
    data = text.encode("utf-8") if not text.isascii() else text.encode("ascii")
    return bytes(byte if byte >= 32 and byte != 127 else 32 for byte in data).strip()
