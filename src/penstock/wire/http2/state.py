"""What both halves of an HTTP/2 connection share: streams, windows, output, allowances, endings.

A stream here is open, or its request is complete (`ended`: half-closed by the client), or it is
gone: once our side has ended it, nothing is left to do. A client that was still sending gets
RST_STREAM with NO_ERROR then (RFC 9113, 8.1), so no stream stays half open behind its answer. The
exception is a stream that was told to `linger`: what still comes is thrown away for a while first.

Of streams that are gone, the last few hundred are remembered by how they ended, since frames may
still be on their way to those that we reset (5.1).
"""

from __future__ import annotations

from typing import Final

from penstock.wire.http2 import frames
from penstock.wire.http2.allowance import FloodAllowance
from penstock.wire.http2.events import Http2Event, StreamReset
from penstock.wire.http2.hpack import HpackEncoder
from penstock.wire.http2.request_head import HeadReader
from penstock.wire.http2.spec import Http2Spec

# How a stream ended
NEVER_OPENED: Final = 0  #: skipped by a higher id (5.1.1), or so long ago that it is forgotten
ENDED: Final = 1  #: by both sides
RESET_BY_PEER: Final = 2
RESET_BY_US: Final = 3

#: Of these, as many again are remembered while the next ones fill.
_GONE_MAX: Final = 128

#: What a useful frame gives back to the allowance of control frames. grpcio sends two
#: WINDOW_UPDATEs for a small message and, now and then, a PING to measure the path.
USEFUL: Final = 4


class PeerFault(Exception):
    """The peer broke a rule that ends the connection (5.4.1)."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words


class Http2Stream:
    __slots__ = (
        "answered", "consumed", "discards", "ended", "id", "length_left", "receive_window",
        "send_window", "unacknowledged",
    )  # fmt: skip

    def __init__(
        self, ident: int, *, ended: bool, send_window: int, receive_window: int, length: int
    ) -> None:
        self.id = ident
        self.ended = ended  #: the client has sent END_STREAM
        self.answered = False  #: a piece of the answer's body was sent
        #: bytes of the request that may still come behind the complete answer; -1 = it isn't
        self.discards = -1
        self.send_window = send_window  #: bytes; below zero after a change of settings (6.9.2)
        self.receive_window = receive_window  #: bytes that the client may still send
        self.unacknowledged = 0  #: bytes received that the application has not yet consumed
        self.consumed = 0  #: bytes consumed that the client was not yet told of
        self.length_left = length  #: content-length, less what came; -1 = not stated


class Http2State:
    """The first layer of `Http2Connection`, which says what a caller may use of it."""

    __slots__ = (
        "_accepted_max", "_blocked", "_connection_send_window", "_consumed", "_continued",
        "_continued_ends", "_continued_stream", "_control", "_draining", "_encoder", "_expected",
        "_failed", "_fragments", "_gone", "_gone_before", "_heads", "_last_stream", "_lingering",
        "_needed",
        "_now", "_output", "_peer_frame_bytes_max", "_peer_window_bytes", "_receive_window",
        "_replies_bytes", "_resets", "_rest", "_spec", "_streams",
    )  # fmt: skip

    def __init__(self, spec: Http2Spec, *, now: float) -> None:
        """Queues our SETTINGS, the server's preface (3.4). `now`: monotonic s."""
        self._spec = spec
        self._now = now
        self._control = FloodAllowance(
            spec.control_frames_burst, spec.control_frames_per_s, now=now
        )
        #: streams whose answer may end before the request: until when, in monotonic s
        self._lingering: dict[int, float] = {}
        self._resets = FloodAllowance(spec.resets_burst, spec.resets_per_s, now=now)
        self._encoder = HpackEncoder()
        self._heads = HeadReader(spec.header_list_bytes_max)
        self._streams: dict[int, Http2Stream] = {}
        self._gone: dict[int, int] = {}  #: stream id -> how it ended
        self._gone_before: dict[int, int] = {}
        self._last_stream = 0  #: the highest that the client has begun
        self._accepted_max = frames.STREAM_ID_MAX  #: what a GOAWAY has promised to answer
        self._draining = False
        self._failed = False

        # What the peer sends
        self._rest = bytearray()  #: the beginning of a frame
        self._needed = len(frames.PREFACE)  #: bytes of `_rest` with which it can go on
        self._expected = -2  #: type of the next frame; -1 = any, -2 = the preface comes first
        self._continued = bytearray()  #: fragments of a block (6.10)
        self._continued_stream = 0
        self._continued_ends = False
        self._fragments = 0
        self._receive_window = spec.connection_window_bytes  #: of the connection
        self._consumed = 0  #: bytes consumed that the client was not yet told of

        # What we send
        self._output: list[bytes | memoryview] = []
        self._replies_bytes = 0  #: to control frames, within `_output`
        self._connection_send_window = frames.WINDOW_BYTES_DEFAULT
        self._peer_window_bytes = frames.WINDOW_BYTES_DEFAULT
        self._peer_frame_bytes_max = frames.FRAME_BYTES_DEFAULT
        self._blocked: dict[int, Http2Stream] = {}  #: wait for windows; the longest first
        self._output.append(
            frames.settings(
                {
                    frames.MAX_CONCURRENT_STREAMS: spec.streams_max,
                    frames.INITIAL_WINDOW_SIZE: spec.stream_window_bytes,
                    frames.MAX_FRAME_SIZE: spec.frame_bytes_max,
                    frames.MAX_HEADER_LIST_SIZE: spec.header_list_bytes_max,
                }
            )
        )
        if spec.connection_window_bytes > frames.WINDOW_BYTES_DEFAULT:  # no setting for it (6.9.2)
            increment = spec.connection_window_bytes - frames.WINDOW_BYTES_DEFAULT
            self._output.append(frames.window_update(0, increment))

    def _reply(self, frame: bytes) -> None:
        """An answer to a control frame; bounded, since the peer may send and not read."""
        self._output.append(frame)
        self._replies_bytes += len(frame)

    def _spend_control(self) -> None:
        if not self._control.spend(now=self._now):
            raise PeerFault(frames.ENHANCE_YOUR_CALM, "too many frames that carry no request")

    def _spend_reset(self) -> None:
        if not self._resets.spend(now=self._now):
            raise PeerFault(frames.ENHANCE_YOUR_CALM, "too many streams that end without an answer")

    def _give_back(self, count: int) -> None:
        """Opens the connection's window again, by half of it at once."""
        self._consumed += count
        if self._consumed * 2 >= self._spec.connection_window_bytes:
            self._output.append(frames.window_update(0, self._consumed))
            self._receive_window += self._consumed
            self._consumed = 0

    def _open_window(self, stream: Http2Stream, count: int) -> None:
        """Opens a stream's window again, by half of it at once."""
        stream.consumed += count
        if stream.consumed * 2 >= self._spec.stream_window_bytes:
            self._output.append(frames.window_update(stream.id, stream.consumed))
            stream.receive_window += stream.consumed
            stream.consumed = 0

    def _close(self, stream: Http2Stream, how: int) -> None:
        """Forgets a stream; what it did not consume will never be, and goes back."""
        ident = stream.id
        del self._streams[ident]
        if self._blocked:
            self._blocked.pop(ident, None)
        if self._lingering:
            self._lingering.pop(ident, None)
        self._remember(ident, how)
        if stream.unacknowledged:
            self._give_back(stream.unacknowledged)

    def _remember(self, ident: int, how: int) -> None:
        self._gone[ident] = how
        if len(self._gone) >= _GONE_MAX:
            self._gone_before, self._gone = self._gone, {}

    def _ending(self, ident: int) -> int:
        """How a stream ended. Raises PeerFault for one that is idle: not yet begun (5.1)."""
        if ident > self._last_stream or not ident & 1:
            raise PeerFault(frames.PROTOCOL_ERROR, f"a frame on stream {ident}, which is idle")
        return self._gone.get(ident) or self._gone_before.get(ident, NEVER_OPENED)

    def _fault_of_stream(self, ident: int, code: int, words: str, events: list[Http2Event]) -> None:
        """The peer broke a rule that ends one stream (5.4.2), which may be gone or never was."""
        self._reply(frames.rst_stream(ident, code))
        stream = self._streams.get(ident)
        if stream is None:
            self._remember(ident, RESET_BY_US)
        else:
            self._close(stream, RESET_BY_US)
            events.append(StreamReset(ident, code, words))
        self._spend_reset()

    def _fail(self, code: int, words: str) -> None:
        """Ends the connection (5.4.1): a last GOAWAY is queued, and nothing is read any more."""
        self._failed = True
        last_stream = min(self._last_stream, self._accepted_max)  # which only sinks (6.8)
        self._output.append(frames.go_away(last_stream, code, words.encode()))
        self._streams.clear()
        self._lingering.clear()
        self._blocked.clear()
        self._rest.clear()
        self._continued.clear()
