"""What a client's frames without a request in them do (RFC 9113, 6.3 to 6.9).

Numbers in parentheses are sections of RFC 9113. Every frame here is spent from an allowance.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.http2 import frames
from penstock.wire.http2.events import (
    Drained,
    GoAwayReceived,
    Http2Event,
    PingAnswered,
    StreamReset,
    WindowOpened,
)
from penstock.wire.http2.frames import (
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    PROTOCOL_ERROR,
    WINDOW_BYTES_MAX,
)
from penstock.wire.http2.state import RESET_BY_PEER, Http2State, PeerFault

#: Values in one SETTINGS frame, as nghttp2 has it: each may change the window of every stream.
SETTINGS_MAX: Final = 32
#: A connection's window below this wakes nobody, so a peer that opens it byte by byte does not
#: have every waiting stream tried for each. One that reads opens far more (6.9.2).
WAKING_BYTES: Final = 4_096
#: The PING that follows the first GOAWAY of `drain`.
DRAIN_PING: Final = b"draining"


class Http2ControlFrames(Http2State):
    """The second layer of `Http2Connection`. All handlers have the same parameters."""

    __slots__ = ()

    # Streams and windows

    def _on_priority(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        self._spend_control()
        if ident == 0:  # 6.3
            raise PeerFault(PROTOCOL_ERROR, "priority of the connection")
        if end - begin != 5:
            words = "a priority that is not 5 bytes"
            if ident > self._last_stream or not ident & 1:
                raise PeerFault(FRAME_SIZE_ERROR, words)  # an idle stream can't be reset (6.4)
            self._fault_of_stream(ident, FRAME_SIZE_ERROR, words, events)

    def _on_rst_stream(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        if end - begin != 4:  # 6.4
            raise PeerFault(FRAME_SIZE_ERROR, "a reset that is not 4 bytes")
        self._spend_control()
        stream = self._streams.get(ident)
        if stream is None:
            self._ending(ident)  # must not be idle
            return
        if not stream.answered:
            self._spend_reset()
        self._close(stream, RESET_BY_PEER)
        events.append(StreamReset(ident, int.from_bytes(data[begin:end]), ""))

    def _on_window_update(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        if end - begin != 4:  # 6.9
            raise PeerFault(FRAME_SIZE_ERROR, "a window update that is not 4 bytes")
        self._spend_control()
        increment = int.from_bytes(data[begin:end]) & WINDOW_BYTES_MAX
        if ident == 0:
            if increment == 0:
                raise PeerFault(PROTOCOL_ERROR, "a window that opens by nothing")  # 6.9
            self._connection_send_window += increment
            if self._connection_send_window > WINDOW_BYTES_MAX:
                raise PeerFault(FLOW_CONTROL_ERROR, "the connection's window overflows")  # 6.9.1
            if self._blocked and self._connection_send_window >= WAKING_BYTES:
                self._wake(events)
            return
        stream = self._streams.get(ident)
        if stream is None:
            self._ending(ident)  # must not be idle
        elif increment == 0:
            self._fault_of_stream(ident, PROTOCOL_ERROR, "a window that opens by nothing", events)
        else:
            stream.send_window += increment
            if stream.send_window > WINDOW_BYTES_MAX:
                self._fault_of_stream(ident, FLOW_CONTROL_ERROR, "its window overflows", events)
            elif (
                ident in self._blocked and min(stream.send_window, self._connection_send_window) > 0
            ):
                del self._blocked[ident]
                events.append(WindowOpened(ident))

    def _wake(self, events: list[Http2Event]) -> None:
        """Every stream that waits and whose own window is open."""
        for ident, stream in list(self._blocked.items()):
            if stream.send_window > 0:
                del self._blocked[ident]
                events.append(WindowOpened(ident))

    # The connection

    def _on_settings(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        self._spend_control()
        if ident:  # 6.5
            raise PeerFault(PROTOCOL_ERROR, "settings of a stream")
        if self._expected == frames.SETTINGS:
            if flags & frames.ACK:
                raise PeerFault(PROTOCOL_ERROR, "settings of the client do not come first")  # 3.4
            self._expected = -1
        size = end - begin
        if flags & frames.ACK:
            if size:
                raise PeerFault(FRAME_SIZE_ERROR, "an acknowledgement with settings")
            return
        if size % 6:
            raise PeerFault(FRAME_SIZE_ERROR, "settings that are not 6 bytes each")
        if size > 6 * SETTINGS_MAX:
            raise PeerFault(ENHANCE_YOUR_CALM, "too many settings at once")
        for number, value in frames.read_settings(data[begin:end]):
            self._set(number, value, events)
        self._reply(frames.frame(frames.SETTINGS, frames.ACK, 0))

    def _set(self, number: int, value: int, events: list[Http2Event]) -> None:
        """One setting (6.5.2); those that bound what we do not send, and unknown ones, pass."""
        if number == frames.INITIAL_WINDOW_SIZE:
            if value > WINDOW_BYTES_MAX:
                raise PeerFault(FLOW_CONTROL_ERROR, f"an initial window of {value} bytes")
            change = value - self._peer_window_bytes
            self._peer_window_bytes = value
            for stream in self._streams.values():  # 6.9.2
                stream.send_window += change
                if stream.send_window > WINDOW_BYTES_MAX:
                    raise PeerFault(FLOW_CONTROL_ERROR, "a setting makes a window overflow")
            if change > 0 and self._connection_send_window > 0:
                self._wake(events)
        elif number == frames.MAX_FRAME_SIZE:
            if not frames.FRAME_BYTES_DEFAULT <= value <= frames.FRAME_BYTES_MAX:
                raise PeerFault(PROTOCOL_ERROR, f"a maximum frame size of {value} bytes")
            self._peer_frame_bytes_max = value
        elif number == frames.HEADER_TABLE_SIZE:
            self._encoder.resize(value)
        elif number == frames.ENABLE_PUSH and value > 1:
            raise PeerFault(PROTOCOL_ERROR, f"ENABLE_PUSH is {value}")

    def _on_push_promise(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        raise PeerFault(PROTOCOL_ERROR, "a client does not push")  # 8.4

    def _on_ping(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        self._spend_control()
        if ident:  # 6.7
            raise PeerFault(PROTOCOL_ERROR, "a ping of a stream")
        if end - begin != 8:
            raise PeerFault(FRAME_SIZE_ERROR, "a ping that is not 8 bytes")
        payload = data[begin:end]
        if not flags & frames.ACK:
            self._reply(frames.frame(frames.PING, frames.ACK, 0, payload))
        elif payload == DRAIN_PING and self._draining:
            self._finish_drain(events)
        else:
            events.append(PingAnswered(payload))

    def _finish_drain(self, events: list[Http2Event]) -> None:
        """What the client sent before it knew of the first GOAWAY has come: the second (6.8)."""
        self._draining = False
        self._accepted_max = self._last_stream
        self._output.append(frames.go_away(self._last_stream, frames.NO_ERROR))
        events.append(Drained(self._last_stream))

    def _on_go_away(
        self, data: bytes, begin: int, end: int, flags: int, ident: int, events: list[Http2Event]
    ) -> None:
        self._spend_control()
        if ident:  # 6.8
            raise PeerFault(PROTOCOL_ERROR, "a GOAWAY of a stream")
        if end - begin < 8:
            raise PeerFault(FRAME_SIZE_ERROR, "a GOAWAY below 8 bytes")
        events.append(GoAwayReceived(*frames.read_go_away(data[begin:end])))
