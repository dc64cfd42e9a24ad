"""The server's side of one HTTP/2 connection (RFC 9113), as a machine: bytes in, events out.

A driver owns the socket and the clock. Its work, in full:

    events = connection.receive(data, now=now)     act on each, in order
    connection.send_headers(...), send_data(...), send_trailers(...), send_answer(...), reset(...)
    connection.acknowledge(stream, flow_bytes)     once the application has consumed a piece
    transport.write(connection.take_output())      after each of these, while the socket takes it;
                                                   or writelines(connection.take_parts())
    close when `connection.closed`

While the socket takes no more, leave the output where it is and send no more data: replies to a
peer that does not read are bounded, and end the connection when they exceed their bound.

Bounds are in `spec`. What can't be known here, since it needs a clock, is the driver's: how long a
client may take for its preface, for a body, or for reading an answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.wire.http2 import frames
from penstock.wire.http2.control_frames import DRAIN_PING, WAKING_BYTES
from penstock.wire.http2.hpack import Field, unindexed
from penstock.wire.http2.receiving import Http2Receiver
from penstock.wire.http2.request_head import check_sent
from penstock.wire.http2.spec import Http2Spec
from penstock.wire.http2.state import ENDED, RESET_BY_US, USEFUL, Http2Stream

_PING_BYTES: Final = 8
#: Of a request behind its complete answer, as over HTTP/1.1 (`LINGER_BYTES_MAX`).
DISCARDED_BYTES_MAX: Final = 64 << 20


class Http2Connection(Http2Receiver):
    """`receive` and the sending methods below.

    A stream that is gone takes whatever is sent on it and drops it: its `StreamReset` may still be
    on the way to whoever sends.
    """

    __slots__ = ()

    def __init__(self, spec: Http2Spec | None = None, *, now: float) -> None:
        """`now`: monotonic s. Our SETTINGS are the first output, before anything is received."""
        super().__init__(spec or Http2Spec(), now=now)

    @property
    def closed(self) -> bool:
        """Nothing will be received or sent any more: write the output, and close."""
        return self._failed or (self._accepted_max != frames.STREAM_ID_MAX and not self._streams)

    @property
    def begun(self) -> bool:
        """The client's preface has come (3.4)."""
        return self._expected != -2

    @property
    def streams(self) -> int:
        """How many are open: their answer is not complete."""
        return len(self._streams)

    def complete(self, stream: int) -> bool:
        """Whether nothing more comes of a request, as far as the bytes received say."""
        state = self._streams.get(stream)
        return state is None or state.ended

    @property
    def unfinished_bytes(self) -> int:
        """Held of a frame, or of a header block, that is not complete."""
        return len(self._rest) + len(self._continued)

    @property
    def in_header_block(self) -> bool:
        """Fragments of one are awaited, and nothing else may come (6.10)."""
        return self._expected == frames.CONTINUATION

    def take_output(self) -> bytes:
        """All bytes to write since the last call; b"" = none."""
        return b"".join(self.take_parts())

    def take_parts(self) -> list[bytes | memoryview]:
        """The same, in pieces as they are: large ones are not copied."""
        output = self._output
        if output:
            self._replies_bytes = 0
            self._output = []
        return output

    # Answers

    def send_headers(
        self,
        stream: int,
        fields: Iterable[Field],
        varying: Iterable[Field] = (),
        *,
        end: bool = False,
    ) -> None:
        """The head of an answer (8.3.2): `:status` first, names in lower case.

        An interim one (1xx) may precede it. A tuple that is sent often costs the least; what
        differs each time comes behind it in `varying`, and must be right: it isn't checked.
        Raises ValueError: a name or a value that can't be sent (line ends, upper case, fields of
        HTTP/1.1 connections); nothing was sent then.
        """
        state = self._streams.get(stream)
        if state is None or state.discards >= 0:
            return
        if type(fields) is not tuple:
            fields = tuple(fields)
        block = self._encoder.known(fields)
        if block is None:
            check_sent(fields)
            block = self._encoder.encode(fields)
        for name, value in varying:
            block += unindexed(name, value)
        flags = frames.END_STREAM if end else 0
        if len(block) <= self._peer_frame_bytes_max:
            head = frames.HEAD.pack(
                len(block) << 8 | frames.HEADERS, flags | frames.END_HEADERS, stream
            )
            self._output.append(head + block)
        else:
            self._put_fragments(stream, block, flags)
        if end:
            self._end(state)

    def send_trailers(self, stream: int, fields: Iterable[Field]) -> None:
        """Ends an answer. All its data must have been taken. Raises as `send_headers`."""
        self.send_headers(stream, fields, end=True)

    def send_data(self, stream: int, data: bytes | memoryview, *, end: bool = False) -> int:
        """A piece of an answer's body; how many bytes of it were taken.

        Where this is less than all, the peer's windows are full: `WindowOpened` says when to go on
        with the rest. `end` counts only once all is taken. A view must not change before
        `take_output`.
        """
        state = self._streams.get(stream)
        size = len(data)
        if state is None or state.discards >= 0:
            return size
        taken = min(state.send_window, self._connection_send_window)
        if taken < size > 0:  # an empty piece needs no window (6.9)
            end = False
            self._blocked[stream] = state
            if taken <= 0:
                return 0
            if taken >= WAKING_BYTES:
                # A large answer leaves window by window, each for two updates. Smaller pieces earn
                # nothing: a peer that opens its windows by a few bytes at a time is of no use
                # (CVE-2019-9511).
                self._control.earn(USEFUL)
        else:
            if size:
                self._control.earn(USEFUL)
            taken = size
        state.send_window -= taken
        self._connection_send_window -= taken
        state.answered = state.answered or taken > 0
        output = self._output
        frame_bytes_max = self._peer_frame_bytes_max
        begin = 0
        if taken > frame_bytes_max:
            data = memoryview(data)  # so that its frames are no copies
        while taken - begin > frame_bytes_max:
            output.append(frames.HEAD.pack(frame_bytes_max << 8 | frames.DATA, 0, stream))
            output.append(data[begin : begin + frame_bytes_max])
            begin += frame_bytes_max
        flags = frames.END_STREAM if end else 0
        if taken > begin or end:
            output.append(frames.HEAD.pack((taken - begin) << 8 | frames.DATA, flags, stream))
            output.append(data[begin:taken] if begin or taken < size else data)
        if end:
            self._end(state)
        return taken

    def send_answer(
        self, stream: int, head: tuple[Field, ...], data: bytes, trailers: tuple[Field, ...]
    ) -> bool:
        """A whole answer at once. False: nothing was sent, and it must be sent by steps: the peer's
        windows or frames don't take it, or a head or trailers that were not sent before."""
        state = self._streams.get(stream)
        first, last = self._encoder.known(head), self._encoder.known(trailers)
        if state is None or state.discards >= 0 or first is None or last is None:
            return False
        size = len(data)
        if size > min(state.send_window, self._connection_send_window, self._peer_frame_bytes_max):
            return False
        self._control.earn(USEFUL)
        state.send_window -= size
        self._connection_send_window -= size
        state.answered = True
        pack, ends = frames.HEAD.pack, frames.END_HEADERS | frames.END_STREAM
        self._output += (
            pack(len(first) << 8 | frames.HEADERS, frames.END_HEADERS, stream),
            first,
            pack(size << 8 | frames.DATA, 0, stream),
            data,
            pack(len(last) << 8 | frames.HEADERS, ends, stream),
            last,
        )
        self._end(state)
        return True

    def reset(self, stream: int, code: int) -> None:
        """Ends a stream at once (6.4): CANCEL, INTERNAL_ERROR, or NO_ERROR and the like."""
        state = self._streams.get(stream)
        if state is not None:
            self._output.append(frames.rst_stream(stream, code))
            self._close(state, RESET_BY_US)

    def linger(self, stream: int, *, until: float) -> None:
        """The answer that follows is complete before the request is, and its client may read it
        only later, or loses it to a reset that comes at the same time (curl 7.88): until then, in
        monotonic s, the rest of the request is thrown away. `cut_lingering` looks at the time."""
        if stream in self._streams:
            self._lingering[stream] = until

    def cut_lingering(self, now: float) -> bool:
        """Resets streams that have lingered long enough; call it now and then. False: none."""
        late = [
            stream
            for stream, until in self._lingering.items()
            if now >= until and self._streams[stream].discards >= 0
        ]
        for stream in late:
            self.reset(stream, frames.NO_ERROR)
        return bool(late)

    def _end(self, state: Http2Stream) -> None:
        if state.ended:
            self._close(state, ENDED)
        elif state.id in self._lingering:
            state.discards = DISCARDED_BYTES_MAX
            self._give_back(state.unacknowledged)
            self._open_window(state, state.unacknowledged)
            state.unacknowledged = 0
        else:
            self._output.append(frames.rst_stream(state.id, frames.NO_ERROR))  # 8.1
            self._close(state, RESET_BY_US)
        self._resets.earn(1)

    def _put_fragments(self, stream: int, block: bytes, flags: int) -> None:
        """A block that is larger than a frame (6.10)."""
        size = self._peer_frame_bytes_max
        kind = frames.HEADERS
        for begin in range(0, len(block), size):
            if begin + size >= len(block):
                flags |= frames.END_HEADERS
            self._output.append(frames.frame(kind, flags, stream, block[begin : begin + size]))
            kind, flags = frames.CONTINUATION, 0

    # Bodies received

    def acknowledge(self, stream: int, flow_bytes: int) -> None:
        """The application has consumed this much of `DataReceived`: the client may send as much.

        The windows are given back by half of them at once. What a stream has not consumed when it
        ends is given back then, so nothing has to be acknowledged for one that is gone.
        """
        state = self._streams.get(stream)
        if state is None:
            return
        state.unacknowledged -= flow_bytes
        assert state.unacknowledged >= 0, "acknowledged more than was received"
        self._give_back(flow_bytes)
        if not state.ended:
            self._open_window(state, flow_bytes)

    # The connection

    def ping(self, payload: bytes) -> None:
        """Asks for a sign of life (6.7): eight bytes, which come back in `PingAnswered`."""
        assert len(payload) == _PING_BYTES
        assert payload != DRAIN_PING
        self._output.append(frames.frame(frames.PING, 0, 0, payload))

    def drain(self) -> None:
        """Lets the client finish elsewhere, in two steps (6.8), so that no request is lost.

        First it is told to begin no new streams; those that are on the way are still accepted.
        When it has seen that, which a PING proves, the last one is named, and `Drained` says so.
        `closed` comes with the last answer. A driver that has waited enough calls `go_away`.
        """
        if self._failed or self._draining or self._accepted_max != frames.STREAM_ID_MAX:
            return
        self._draining = True
        self._output.append(frames.go_away(frames.STREAM_ID_MAX, frames.NO_ERROR))
        self._output.append(frames.frame(frames.PING, 0, 0, DRAIN_PING))

    def go_away(self, code: int = frames.NO_ERROR, words: str = "") -> None:
        """Accepts no stream from now on; those that are open go on until their answers end."""
        if self._failed:
            return
        self._draining = False
        self._accepted_max = min(self._accepted_max, self._last_stream)
        self._output.append(frames.go_away(self._accepted_max, code, words.encode()))
