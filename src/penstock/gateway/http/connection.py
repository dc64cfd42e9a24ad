"""One HTTP/1.1 connection: bytes in, `Call`s out, answers back in order.

httptools parses (llhttp in strict mode, which refuses the forms of request smuggling: both
Content-Length and Transfer-Encoding, repeated Content-Length, bad chunk sizes, bare line feeds).
This class adds limits, the order of pipelined answers, backpressure in both directions, and the
detection of clients that have gone. Of a request it decides only whether it is complete and
allowed; doors handle the paths.

Timeouts are not timers here: the connection notes the time of its last change, and the listener's
one coarse timer calls `check`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, cast

import httptools

from penstock.core.request.head_check import FIELDS_MAX, HOST, RARE, origin_form
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.http.answer_pipeline import (
    BODY,
    CLOSE_LINE,
    CONTINUE,
    HEAD,
    IDLE,
    LINGER,
    REFUSED,
    UNDER_WAY,
)
from penstock.gateway.http.body_budget import HoldingPipeline
from penstock.gateway.http.call import Call, Door
from penstock.gateway.http.first_bytes import (
    HTTP2_OPENING,
    ShortOpening,
    chose_http2,
    is_too_short,
)
from penstock.gateway.http.known_heads import HEAD_BYTES_MAX, HEAD_END, TRIES, TRY_EVERY, KnownHead
from penstock.gateway.http.listener_state import (
    ACCEPT,
    CONNECTION,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    ListenerState,
)

log = logging.getLogger(__name__)

#: The headers among them that can refuse a head. HOST is one unless its value is known.
JUDGED: Final = frozenset((EXPECT, HOST, *RARE))
NOTHING: Final[dict[bytes, bytes]] = {}

SLASH: Final = ord("/")
LINGER_S_MAX: Final = 5.0
LINGER_BYTES_MAX: Final = 64 << 20
#: Bounds what framing and trailers add to a body: a chunk of one byte takes six on the wire.
WIRE_BYTES_PER_BODY_BYTE: Final = 8

KEEP_ALIVE_LINE: Final = b"connection: keep-alive\r\n"


class HttpConnection(HoldingPipeline):
    """The protocol of one client connection. Public methods are for `Call` and the listener."""

    __slots__ = (
        "_accept", "_body", "_body_buffer", "_body_bytes_max", "_connection_header",
        "_content_type", "_declared", "_fields", "_head_bytes_max", "_headers", "_host", "_judged",
        "_known_heads", "_known_hosts", "_lingered_bytes", "_new_head", "_parser", "_rare",
        "_read_bytes", "_unknown", "_unusual", "_url", "_wire_bytes",
    )  # fmt: skip

    def __init__(self, listener: ListenerState) -> None:
        super().__init__(listener)
        self._read_bytes = 0  #: size of the last read
        self._lingered_bytes = 0
        self._wire_bytes = 0  #: bytes of the current head or body on the wire, at least
        self._fields = listener.fields
        self._known_hosts = listener.head_check.known_hosts
        self._known_heads = listener.known_heads
        #: the head at the start of the last read, if it may be kept; else None
        self._new_head: bytes | None = None
        self._unknown = 0  #: number of reads in a row that did not begin with a known head
        self._body_bytes_max = listener.body_bytes_max_least
        self._head_bytes_max = listener.limits.head_bytes_max
        self._unusual = True
        self._forget_request()

    def _forget_request(self) -> None:
        """Prepares for the next request. Values that few requests set are reset only if they were
        set."""
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._content_type: bytes | None = None
        self._accept: bytes | None = None
        self._host: bytes | None = None  #: its value if it is a known one; other values are noted
        self._body = b""
        if self._unusual:
            self._unusual = False
            self._rare: dict[bytes, bytes] | None = None
            self._body_buffer: bytearray | None = None
            self._connection_header = False
            self._declared = 0  #: Content-Length, if it is large
            #: whether the head must be checked before the request may continue
            self._judged = self.listener.authenticator is not None

    # The transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._transport.get_extra_info("sslcontext") is None:
            # uvloop's TLS transport pauses at the mark and not above it: with 0 it would pause for
            # ever.
            self._transport.set_write_buffer_limits(high=0)
        elif self.listener.speaks_http2 and chose_http2(transport):
            self._go_on_as_http2()
            return
        self._write = self._transport.write
        self._parser = httptools.HttpRequestParser(self)
        if not self.listener.admit(self):
            self._refuse(refusals.connections_too_many(self.listener.connections_max))

    def data_received(self, data: bytes) -> None:
        phase = self._phase
        if phase >= REFUSED:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > LINGER_BYTES_MAX:
                self.abort()
            return
        self.received = self.listener.monotonic()
        self._new_head = None
        if phase == IDLE:
            unknown = self._unknown
            if (unknown < TRIES or unknown % TRY_EVERY == 0) and self._take_known(data):
                return
            self._unknown = unknown + 1
        elif phase == HEAD and not self._wire_bytes and self._opens_http2(data):
            return
        self._read_bytes = len(data)
        headers = self._headers
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as wrapped:
            log.error("reading a request failed", exc_info=wrapped.__context__ or wrapped)
            self.abort()
        except httptools.HttpParserError as malformed:
            self._refuse(refusals.malformed(malformed))
        else:
            if self._phase in UNDER_WAY:
                wire_bytes = 1
                # Bytes before it in the same read are not counted against a request.
                if headers is self._headers and (self._phase == HEAD or phase == BODY):
                    wire_bytes = len(data)
                    if phase == self._phase:
                        wire_bytes += self._wire_bytes
                self._count_wire(wire_bytes)
                if self._held:
                    self._list()

    def _opens_http2(self, data: bytes) -> bool:
        """Whether the first read of the connection is, or may become, the beginning of HTTP/2."""
        if not self.listener.speaks_http2:
            return False
        if is_too_short(data):
            self._transport.set_protocol(ShortOpening(self, self._transport, data))
            return True
        if not data.startswith(HTTP2_OPENING):
            return False
        self.listener.forget(self)
        self._go_on_as_http2(data)
        return True

    def _go_on_as_http2(self, data: bytes = b"") -> None:
        """Leaves the transport to another protocol, which counts as a connection by itself."""
        self._phase = REFUSED
        self._parser = None
        protocol = self.listener.http2_protocol()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if data:
            protocol.data_received(data)

    def eof_received(self) -> None:
        """A client that has stopped sending counts as gone: the transport closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_unfinished()
        self.listener.forget(self)
        self._phase = REFUSED
        # It refers to this object's methods: the cycle would wait for the garbage collector.
        self._parser = None
        self._abandon_all()

    # The parser's callbacks

    def on_message_begin(self) -> None:
        """At the first byte of a request: in phase IDLE the parser has no data."""
        if self._phase < REFUSED:
            self._phase = HEAD
            self._since = self.listener.now

    def on_url(self, url: bytes) -> None:
        if self._url:
            self._url += url
        elif self._phase == HEAD:
            self._url = url
            if url[0] != SLASH:
                self._unusual = self._judged = True  # the URL may name a host

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._phase != HEAD:
            return  # a trailer: none is used
        self._headers.append((name, value))
        try:
            field = self._fields[name]
        except KeyError:
            field = self.listener.learn_field(name)
        if field is None:
            return
        if field is HOST and self._host is None and value in self._known_hosts:
            self._host = value
        elif field is CONTENT_TYPE:
            self._content_type = value
        elif field is ACCEPT:
            self._accept = value
        elif field is CONTENT_LENGTH:
            if len(value) >= self.listener.length_digits:
                # llhttp has checked that this is one decimal number below 2**64.
                self._declared = int(value)
                self._unusual = self._judged = True
        elif field is CONNECTION:
            self._connection_header = self._unusual = True
        else:
            self._note(field, value)

    def _note(self, field: bytes, value: bytes) -> None:
        """Keeps a header that few requests have and that this connection or a door reads."""
        self._unusual = True
        if field in JUDGED:
            self._judged = True
        if len(self._headers) > FIELDS_MAX:
            return  # it will be refused; joining values until then would take quadratic time
        if self._rare is None:
            self._rare = {}
        before = self._rare.get(field)
        self._rare[field] = value if before is None else before + b"," + value

    def on_headers_complete(self) -> None:
        if self._phase != HEAD:
            return
        self._phase = BODY
        self._since = self.listener.now
        # An upper bound for the head; the read may contain a part of the body.
        bytes_at_most = self._read_bytes
        if self._held:
            bytes_at_most += self._held
            self._let_go()  # frees the memory of the unfinished head
        if (
            self._judged
            or self._host is None
            or bytes_at_most > self._head_bytes_max
            or len(self._headers) > FIELDS_MAX
        ) and not (self._connection_header and self._parser.should_upgrade()):
            # After an upgrade the head comes again, see `_ignore_upgrade`.
            self._judge_head(bytes_at_most)

    def _judge_head(self, bytes_at_most: int) -> None:
        """Checks what the head alone decides, before any of the body is awaited."""
        rare = self._rare or NOTHING
        error = self._head_error(rare, bytes_at_most)
        if error is not None:
            self._refuse(error)
        elif EXPECT in rare:
            self._expect(rare[EXPECT])

    def _head_error(self, rare: dict[bytes, bytes], bytes_at_most: int) -> PenstockError | None:
        listener = self.listener
        limits = listener.limits
        if len(self._headers) > FIELDS_MAX:
            return refusals.fields_too_many(FIELDS_MAX)
        if bytes_at_most > limits.head_bytes_max and (
            len(self._url) + sum(len(n) + len(v) + 4 for n, v in self._headers)
            > limits.head_bytes_max
        ):
            return refusals.head_too_large(limits)
        method, version = self._parser.get_method(), self._parser.get_http_version()
        error = listener.head_check.error(method, self._url, version, self._host, rare)
        if error is not None:
            return error
        if self._declared > self._body_bytes_max:
            error = self._body_error(self._declared)
        if error is not None:
            return error
        if listener.authenticator is not None:
            error = listener.head_error(method, origin_form(self._url), self._headers)
        if error is not None:
            return error
        if self._declared and not listener.may_have_room(self._declared, self.peer):
            return refusals.memory_full()
        return None

    def on_body(self, data: bytes) -> None:
        if self._phase != BODY:
            return
        size = len(data)
        bodies = self.bodies
        taken = bodies.bytes_taken + size  # inlined `take`: it saves a call
        if taken <= bodies.bytes_max:
            bodies.bytes_taken = taken
        elif not self._take_with_room_made(size):
            return
        self._held += size
        if not self._body:
            self._body = data
        else:
            buffer = self._body_buffer
            if buffer is None:
                # Not a list of parts: chunks of one byte each would take 40 times their size.
                self._body_buffer = buffer = bytearray(self._body)
                self._unusual = True
            buffer += data
        if self._held > self._body_bytes_max:
            error = self._body_error(self._held)
            if error is not None:
                self._refuse(error)

    def _body_error(self, size: int) -> PenstockError | None:
        """The refusal of a body that is larger than its door takes."""
        limit = self.listener.body_limit(self._url)
        return refusals.body_too_large(*limit) if size > limit.bytes_max else None

    def on_message_complete(self) -> None:
        if self._phase != BODY:
            return  # it was refused
        if self._unusual:
            if self._parser.should_upgrade():
                return  # `_ignore_upgrade` parses it again without the upgrade header
            if self._body_buffer is not None:
                self._body = bytes(self._body_buffer)
        self._phase = IDLE
        self._wire_bytes = 0
        if self._listed:
            self._unlist()
        line = b""
        listener = self.listener
        if not self._parser.should_keep_alive() or listener.draining:
            line = CLOSE_LINE
            self._phase = REFUSED
            self.speaks_1_1 = self._parser.get_http_version() != "1.0"
        elif self._connection_header and self._parser.get_http_version() == "1.0":
            line = KEEP_ALIVE_LINE
            self.speaks_1_1 = False
        call = self._new_call(line)
        if self._new_head is not None:
            self._keep_head(self._new_head, call)
        self._forget_request()
        listener.serve(call)

    # Heads that came before

    def _take_known(self, data: bytes) -> bool:
        """Takes a whole request whose head is known. False: the parser must read `data`."""
        known_heads = self._known_heads
        listener = self.listener
        if known_heads is None or listener.draining:
            return False
        body_at = data.find(HEAD_END, 0, HEAD_BYTES_MAX) + len(HEAD_END)
        if body_at < len(HEAD_END):
            return False
        head = data[:body_at]
        known = known_heads.recent.get(head) or known_heads.used_before(head)
        if known is None:
            self._new_head = head
            return False
        size, method, url, headers, content_type, accept, door = known
        bodies = self.bodies
        taken = bodies.bytes_taken + size
        if len(data) != body_at + size or taken > bodies.bytes_max:
            return False
        bodies.bytes_taken = taken
        self.held_bytes += size
        self._unknown = 0
        ids = listener.ids
        ids.count = number = ids.count + 1
        call = Call(
            self, method, url, headers, data[body_at:], number, self.received, content_type,
            accept, None, b"", door, size,
        )  # fmt: skip
        if self.current is None:
            self.current = call
        else:
            self._queue_up(call)
        try:
            if not door.handle(call):
                listener.hand_over(call)
        except Exception:
            listener.failed(call)
        return True

    def _keep_head(self, head: bytes, call: Call) -> None:
        """Keeps the head of a plain request that was the whole last read."""
        self._new_head = None  # a later request in the same read is not the whole read either
        known_heads = self._known_heads
        size = len(call.body)
        if (
            known_heads is not None
            and known_heads.wants(head)
            and len(head) + size == self._read_bytes
            and not (call.connection_line or self._judged or self._rare or self._body_buffer)
        ):
            known = KnownHead(
                size, call.method, call.url, tuple(call.headers), call.content_type, call.accept,
                call.front_door,
            )  # fmt: skip
            known_heads.keep(head, known)

    # Requests in and out

    def _new_call(self, connection_line: bytes) -> Call:
        listener = self.listener
        ids = listener.ids
        ids.count = number = ids.count + 1
        url = self._url
        if self._unusual and url and url[0] != SLASH:
            url = origin_form(url)
        door: Door = listener.fallback
        for prefix, candidate in listener.doors:
            if url.startswith(prefix):
                door = candidate
                break
        call = Call(
            self,
            self._parser.get_method(),
            url,
            self._headers,
            self._body,
            number,
            self.received,
            self._content_type,
            self._accept,
            self._rare,
            connection_line,
            door,
            self._held,
        )
        if self._held:
            self.held_bytes += self._held
            self._held = 0
        if self.current is None:
            self.current = call
        else:
            self._queue_up(call)
        return call

    # Refusals

    def _refuse(self, error: PenstockError) -> None:
        """Answers the current request with an error, after which the connection ends."""
        if self._phase >= REFUSED:
            return
        self._phase = REFUSED
        self._unread_input = True
        self._drop_unfinished()
        call = self._new_call(CLOSE_LINE)
        self._unusual = True
        self._forget_request()
        if call.url:
            call.front_door.refuse(call, error)
        else:
            call.answer_error(error)

    def _drop_unfinished(self) -> None:
        """Forgets the request that is being read and frees its memory."""
        self._body = b""
        self._body_buffer = None
        self._let_go()

    def _expect(self, expectation: bytes) -> None:
        if expectation.lower() != b"100-continue":
            self._refuse(refusals.expectation_unknown(expectation))
        elif self._parser.get_http_version() == "1.0":
            return
        elif self.current is None:
            self._write(CONTINUE)
        else:
            self._continue_owed = True

    def _ignore_upgrade(self, rest: bytes) -> None:
        """Serves a request with an Upgrade header as an HTTP/1.1 request.

        llhttp treats everything after such a head, body included, as the other protocol. So the
        request goes through a new parser without that header, as the last one of its connection.
        """
        if self._phase >= REFUSED:
            return  # its head was refused
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(refusals.connect_unserved())
            return
        self._parser = httptools.HttpRequestParser(self)
        lines = [method + b" " + self._url + b" HTTP/1.1"]
        lines += [
            name + b": " + value
            for name, value in self._headers
            if name.lower() not in (b"upgrade", b"connection")
        ]
        lines.append(b"Connection: close")
        self._phase = IDLE
        self._forget_request()
        self.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _count_wire(self, wire_bytes: int) -> None:
        """Limits heads and bodies that never end."""
        self._wire_bytes = wire_bytes
        limits = self.listener.limits
        if self._phase == HEAD:
            if wire_bytes > limits.head_bytes_max:
                self._refuse(refusals.head_too_large(limits))
            elif len(self._headers) > FIELDS_MAX:
                self._refuse(refusals.fields_too_many(FIELDS_MAX))
            else:
                # Counts the whole read: where the head begins in it is unknown.
                self._hold_head(self._read_bytes)
        elif wire_bytes > (self._body_bytes_max * WIRE_BYTES_PER_BODY_BYTE + limits.head_bytes_max):
            limit = self.listener.body_limit(self._url)
            if wire_bytes > limit.bytes_max * WIRE_BYTES_PER_BODY_BYTE + limits.head_bytes_max:
                self._refuse(refusals.body_too_large(*limit))

    # Flow and time

    def check(self, now: float) -> None:
        """Ends whatever takes too long. The listener's timer calls it."""
        limits = self.listener.limits
        waited_s = now - self._since
        if self._paused:
            stalled_s_max = self._stalled_s_max(now, self.unread_bytes, limits.body_timeout_s)
            if now - self._paused_since >= stalled_s_max:
                self.abort()
        elif self._phase == LINGER:
            if waited_s >= LINGER_S_MAX:
                self.abort()
        elif self._phase == REFUSED:
            if self.current is None and waited_s >= limits.body_timeout_s:
                self.abort()
        elif not self._reading:
            pass  # the delay is not the client's
        elif self._phase == HEAD:
            if waited_s >= limits.head_timeout_s:
                self._refuse_late("head", limits.head_timeout_s)
        elif self._phase == BODY:
            if waited_s >= limits.body_timeout_s:
                self._refuse_late("body", limits.body_timeout_s)
        elif self.current is None and waited_s >= limits.keep_alive_s:
            self._transport.close()

    def _refuse_late(self, part: str, limit_s: float) -> None:
        if self._phase == HEAD and not self._wire_bytes and self.current is None:
            self._transport.close()  # no byte came, so there is no request to answer
            return
        self._refuse(refusals.too_slow(part, limit_s))

    def stop(self) -> None:
        """Accepts no further request; ends once those in flight are answered."""
        if self.current is None and self._phase in (IDLE, HEAD) and not self._wire_bytes:
            self._transport.close()
            return
        last = self._queue[-1] if self._queue else self.current
        if last is not None and self._phase == IDLE:
            last.connection_line = CLOSE_LINE
            self._phase = REFUSED
