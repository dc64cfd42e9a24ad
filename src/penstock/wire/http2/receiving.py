"""What a client's frames do to an HTTP/2 connection (RFC 9113, 4 to 6).

One function for each type of frame. A broken rule is a `PeerFault`, which ends the connection, or
`_fault_of_stream`, which ends one stream. Numbers in parentheses are sections of RFC 9113.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.wire.http2 import frames
from penstock.wire.http2.control_frames import Http2ControlFrames
from penstock.wire.http2.events import (
    ConnectionFailed,
    DataReceived,
    Http2Event,
    RequestReceived,
    TrailersReceived,
)
from penstock.wire.http2.frames import (
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    STREAM_ID_MAX,
)
from penstock.wire.http2.hpack import (
    REFUSED_LISTS_MAX,
    FieldsFarTooLarge,
    FieldsTooLarge,
    HpackError,
)
from penstock.wire.http2.request_head import MalformedRequest
from penstock.wire.http2.state import (
    ENDED,
    NEVER_OPENED,
    RESET_BY_PEER,
    RESET_BY_US,
    USEFUL,
    Http2Stream,
    PeerFault,
)

#: Fragments of one header block. Each may be as large as a frame, so few suffice; without a bound
#: empty ones would go on for ever (CVE-2024-27316).
FRAGMENTS_MAX: Final = 32

#: A frame with so much of a body is likely to be one of many.
_LARGE_BYTES: Final = 4_096

_TOO_LARGE: Final = ((b":status", b"431"),)


class Http2Receiver(Http2ControlFrames):
    """The third layer of `Http2Connection`: bytes into events."""

    __slots__ = ()

    def receive(self, data: bytes | bytearray | memoryview, *, now: float) -> list[Http2Event]:
        """What these bytes of the client mean; they may be cut anywhere. Never raises.

        `now`: monotonic s. The driver acts on the events in their order, and then writes
        `take_output`. After `ConnectionFailed`, which is the last, there are no events any more.
        """
        events: list[Http2Event] = []
        if self._failed:
            return events
        self._now = now
        if type(data) is not bytes:
            data = bytes(data)
        rest = self._rest
        if rest and len(rest) + len(data) < self._needed:
            rest += data
            return events
        at = 0
        try:
            while rest:  # the frame that has begun is completed by itself: what follows stays
                until = at + self._needed - len(rest)
                rest += memoryview(data)[at:until]
                if until > len(data):
                    return events
                at = until
                begun = bytes(rest)
                rest.clear()
                rest += memoryview(begun)[self._take_frames(begun, 0, events) :]
            at = self._take_frames(data, at, events)
            if self._replies_bytes > self._spec.unread_bytes_max:
                raise PeerFault(ENHANCE_YOUR_CALM, "replies that the peer does not read")
        except PeerFault as fault:
            self._fail(fault.code, fault.words)
            events.append(ConnectionFailed(fault.code, fault.words))
            return events
        if at < len(data):
            rest += memoryview(data)[at:]
        return events

    def _take_frames(self, data: bytes, at: int, events: list[Http2Event]) -> int:
        """Acts on all whole frames from `at` on; where the first incomplete one begins."""
        end = len(data)
        if self._expected == -2:
            size = len(frames.PREFACE)
            if data[at : at + size] != frames.PREFACE[: end - at]:
                raise PeerFault(PROTOCOL_ERROR, "not HTTP/2")  # 3.4
            if end - at < size:
                return at
            at += size
            self._expected = frames.SETTINGS
        unpack = frames.HEAD.unpack_from
        frame_bytes_max = self._spec.frame_bytes_max
        while end - at >= frames.HEAD_BYTES:
            head, flags, stream = unpack(data, at)
            size = head >> 8
            if size > frame_bytes_max:
                raise PeerFault(FRAME_SIZE_ERROR, f"a frame of {size} bytes")  # 4.2
            begin = at + frames.HEAD_BYTES
            after = begin + size
            if after > end:
                self._needed = after - at
                return at
            kind = head & 0xFF
            if self._expected >= 0 and kind != self._expected:
                raise PeerFault(
                    PROTOCOL_ERROR, f"a frame of type {kind}, out of order"
                )  # 3.4, 6.10
            if kind == frames.DATA and not flags and size >= _LARGE_BYTES:
                after = self._on_run_of_data(data, begin, after, stream & STREAM_ID_MAX, events)
            elif kind < len(_HANDLERS):
                _HANDLERS[kind](self, data, begin, after, flags, stream & STREAM_ID_MAX, events)
            else:  # 5.5
                self._spend_control()
            at = after
        self._needed = frames.HEAD_BYTES
        return at

    # Bodies (6.1)

    def _on_data(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        flow_bytes = end - begin  # with padding (6.9.1)
        if flags & frames.PADDED:
            begin, end = _unpadded(data, begin, end, 0)
        ended = flags & frames.END_STREAM != 0
        self._take_data(ident, flow_bytes, data[begin:end], 1, ended, events)

    def _on_run_of_data(
        self, data: bytes, begin: int, after: int, ident: int, events: list[Http2Event]
    ) -> int:
        """A frame of a large body, and those of the same stream behind it, as one piece; where they
        end. One of 1 MB has 64 frames, which cost more than its bytes if each is an event."""
        view = memoryview(data)
        pieces, end, ended = [view[begin:after]], len(data), False
        while end - after >= frames.HEAD_BYTES and not ended:
            head, flags, stream = frames.HEAD.unpack_from(data, after)
            size = head >> 8
            begin = after + frames.HEAD_BYTES
            plain = head & 0xFF == frames.DATA and not flags & ~frames.END_STREAM
            if not (plain and stream & STREAM_ID_MAX == ident and size):
                break
            if size > self._spec.frame_bytes_max or begin + size > end:
                break  # too large, or not whole: not for here to judge
            after, ended = begin + size, flags != 0
            pieces.append(view[begin:after])
        piece = b"".join(pieces)
        self._take_data(ident, len(piece), piece, len(pieces), ended, events)
        return after

    def _take_data(
        self,
        ident: int,
        flow_bytes: int,
        piece: bytes,
        frames_count: int,
        ended: bool,
        events: list[Http2Event],
    ) -> None:
        self._receive_window -= flow_bytes
        if self._receive_window < 0:
            raise PeerFault(FLOW_CONTROL_ERROR, "more data than the connection's window")
        stream = self._streams.get(ident)
        if stream is None or stream.ended:
            self._on_stray_data(ident, flow_bytes, events)
            return
        stream.receive_window -= flow_bytes
        stream.unacknowledged += flow_bytes
        if stream.receive_window < 0:
            self._fault_of_stream(ident, FLOW_CONTROL_ERROR, "more data than its window", events)
            return
        size = len(piece)
        if stream.discards >= 0:
            self._discard(stream, flow_bytes, ended=ended)
            return
        if size:
            self._control.earn(USEFUL * frames_count)
        elif not ended:
            self._spend_control()  # CVE-2019-9518
        if stream.length_left >= 0:
            stream.length_left -= size
            if stream.length_left < 0 or (ended and stream.length_left):
                words = "a body that differs from its content-length"  # 8.1.1
                self._fault_of_stream(ident, PROTOCOL_ERROR, words, events)
                return
        stream.ended = ended
        events.append(DataReceived(ident, piece, flow_bytes, ended))

    def _discard(self, stream: Http2Stream, flow_bytes: int, *, ended: bool) -> None:
        """The rest of a request whose answer is complete. A client that sends all of it before it
        reads the answer must have the windows for it."""
        if ended:
            self._close(stream, ENDED)
            return
        stream.discards -= max(flow_bytes, 1)  # an empty frame must not be free
        if stream.discards < 0:
            self._output.append(frames.rst_stream(stream.id, frames.NO_ERROR))
            self._close(stream, RESET_BY_US)
            return
        stream.unacknowledged -= flow_bytes
        self._give_back(flow_bytes)
        self._open_window(stream, flow_bytes)

    def _on_stray_data(self, ident: int, flow_bytes: int, events: list[Http2Event]) -> None:
        """On a stream that takes no data. It counts for the connection all the same (6.9)."""
        self._spend_control()
        how = RESET_BY_PEER if ident in self._streams else self._ending(ident)
        self._give_back(flow_bytes)
        if how == ENDED:
            raise PeerFault(STREAM_CLOSED, f"data on stream {ident}, which has ended")  # 5.1
        if how != RESET_BY_US:
            self._fault_of_stream(ident, STREAM_CLOSED, "data behind its end", events)

    # Header blocks (6.2, 6.10)

    def _on_headers(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        if not ident & 1:  # a client's streams are odd (5.1.1), 0 is the connection (6.2)
            raise PeerFault(PROTOCOL_ERROR, f"headers on stream {ident}")
        if flags & (frames.PADDED | frames.PRIORITIZED):
            # The priority itself means nothing any more (5.3.2).
            priority_bytes = 5 if flags & frames.PRIORITIZED else 0
            if flags & frames.PADDED:
                begin, end = _unpadded(data, begin, end, priority_bytes)
            elif end - begin < priority_bytes:
                raise PeerFault(FRAME_SIZE_ERROR, "headers without the priority they announce")
            begin += priority_bytes
        if flags & frames.END_HEADERS:
            self._on_block(data[begin:end], flags & frames.END_STREAM != 0, ident, events)
            return
        self._continued += memoryview(data)[begin:end]
        self._continued_stream = ident
        self._continued_ends = flags & frames.END_STREAM != 0
        self._fragments = 1
        self._expected = frames.CONTINUATION

    def _on_continuation(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        if self._expected != frames.CONTINUATION or ident != self._continued_stream:
            raise PeerFault(PROTOCOL_ERROR, "a continuation of nothing")  # 6.10
        self._continued += memoryview(data)[begin:end]
        self._fragments += 1
        block_bytes_max = REFUSED_LISTS_MAX * self._spec.header_list_bytes_max
        if self._fragments > FRAGMENTS_MAX or len(self._continued) > block_bytes_max:
            raise PeerFault(ENHANCE_YOUR_CALM, "a header block that does not end")
        if flags & frames.END_HEADERS:
            block = bytes(self._continued)
            self._continued.clear()
            self._expected = -1
            self._on_block(block, self._continued_ends, ident, events)

    def _on_block(self, block: bytes, ends: bool, ident: int, events: list[Http2Event]) -> None:
        try:
            if ident > self._last_stream:
                self._on_request(block, ends, ident, events)
            else:
                self._on_trailers(block, ends, ident, events)
        except MalformedRequest as error:
            self._fault_of_stream(ident, PROTOCOL_ERROR, str(error), events)
        except FieldsTooLarge:
            self._refuse_too_large(ends, ident, events)
        except FieldsFarTooLarge as error:
            raise PeerFault(ENHANCE_YOUR_CALM, "a header list far beyond its bound") from error
        except HpackError as error:
            raise PeerFault(frames.COMPRESSION_ERROR, str(error)) from error  # 4.3

    def _on_request(self, block: bytes, ends: bool, ident: int, events: list[Http2Event]) -> None:
        self._last_stream = ident
        if ident > self._accepted_max:  # our GOAWAY crossed it, and says that it was not read
            self._remember(ident, RESET_BY_US)
            self._heads.skip(block)
            self._spend_control()
            return
        head = self._heads.head(block)
        if len(self._streams) >= self._spec.streams_max:  # 5.1.2; safe to send again (8.7)
            self._fault_of_stream(ident, REFUSED_STREAM, "too many streams", events)
            return
        if head.length > 0 and ends:
            raise MalformedRequest("a content-length without a body")  # 8.1.1
        self._streams[ident] = Http2Stream(
            ident,
            ended=ends,
            send_window=self._peer_window_bytes,
            receive_window=self._spec.stream_window_bytes,
            length=head.length,
        )
        self._control.earn(USEFUL)
        events.append(
            RequestReceived(
                ident, head.method, head.path, head.authority, head.scheme, head.fields, ends
            )
        )

    def _on_trailers(self, block: bytes, ends: bool, ident: int, events: list[Http2Event]) -> None:
        stream = self._streams.get(ident)
        if stream is None or stream.ended:
            self._heads.skip(block)
            self._spend_control()
            how = RESET_BY_PEER if stream is not None else self._ending(ident)
            if how == NEVER_OPENED:  # 5.1.1
                raise PeerFault(PROTOCOL_ERROR, f"stream {ident} begins below an earlier one")
            if how == ENDED:  # 5.1
                raise PeerFault(STREAM_CLOSED, f"headers on stream {ident}, which has ended")
            if how != RESET_BY_US:
                self._fault_of_stream(ident, STREAM_CLOSED, "headers behind its end", events)
            return
        fields = self._heads.trailers(block)
        if not ends:
            raise MalformedRequest("trailers that do not end the stream")  # 8.1
        if stream.discards >= 0:
            self._close(stream, ENDED)
            return
        if stream.length_left > 0:
            raise MalformedRequest("a body that is shorter than its content-length")  # 8.1.1
        stream.ended = True
        events.append(TrailersReceived(ident, fields))

    def _refuse_too_large(self, ends: bool, ident: int, events: list[Http2Event]) -> None:
        """Headers beyond the bound are answered 431 (10.5.1), trailers end their stream."""
        if ident in self._streams:
            self._fault_of_stream(ident, ENHANCE_YOUR_CALM, "trailers beyond their bound", events)
            return
        flags = frames.END_HEADERS | frames.END_STREAM
        block = self._encoder.encode(_TOO_LARGE)
        self._reply(frames.frame(frames.HEADERS, flags, ident, block))
        if not ends:
            self._reply(frames.rst_stream(ident, frames.NO_ERROR))  # 8.1
        self._remember(ident, RESET_BY_US)
        self._spend_reset()


def _unpadded(data: bytes, begin: int, end: int, fixed_bytes: int) -> tuple[int, int]:
    """Where the content is, with its fixed fields, between the padding's length and the padding."""
    if end - begin < 1 + fixed_bytes:
        raise PeerFault(FRAME_SIZE_ERROR, "a frame without the fields that it announces")
    padding = data[begin]
    if padding > end - begin - 1 - fixed_bytes:  # 6.1, 6.2
        raise PeerFault(PROTOCOL_ERROR, "padding that is longer than its frame")
    return begin + 1, end - padding


_Handler = Callable[[Http2Receiver, bytes, int, int, int, int, list[Http2Event]], None]
#: By frame type. Functions, not bound methods: those would make a connection a cycle of references.
_HANDLERS: Final[tuple[_Handler, ...]] = (
    Http2Receiver._on_data,
    Http2Receiver._on_headers,
    Http2Receiver._on_priority,
    Http2Receiver._on_rst_stream,
    Http2Receiver._on_settings,
    Http2Receiver._on_push_promise,
    Http2Receiver._on_ping,
    Http2Receiver._on_go_away,
    Http2Receiver._on_window_update,
    Http2Receiver._on_continuation,
)
