"""The answering side of an HTTP connection: order, backpressure, and the last byte.

Answers leave in the order of the requests, whichever is ready first. Reading pauses while the
client does not take its answers or has too many requests waiting. A request is over when its last
byte has left. For that the transport's high-water mark is 0: a write goes to the kernel at once,
`pause_writing` means exactly "some bytes did not leave", and `resume_writing` "now all have". With
TLS the mark is not 0, so a request may be over up to that many bytes early.

All parts of an answer that are made in one turn of the event loop leave in one write at its end,
the head with the first of them. Nothing is delayed longer than that.

`connection.py` extends this class; it reads requests and checks whether they are allowed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final

from penstock.gateway.http.call import Call
from penstock.gateway.http.listener_state import ListenerState

log = logging.getLogger(__name__)

IDLE: Final = 0  #: between requests
HEAD: Final = 1
BODY: Final = 2
REFUSED: Final = 3  #: nothing more is read from this connection, and it ends after its last answer
#: the last answer has left; further input is discarded so that the client can read the answer
LINGER: Final = 4
UNDER_WAY: Final = (HEAD, BODY)

#: Requests waiting on one connection before reading pauses. It pauses earlier if their bodies
#: together are larger than one may be.
PIPELINE_MAX: Final = 64
PENDING_PIECES_MAX: Final = 256
PENDING_PIECES_PACED: Final = 3  #: the head and two parts of an answer whose turn has not come
#: Unread bytes of a streamed answer beyond which its producer is asked to wait.
UNREAD_BYTES_PACED: Final = 256 << 10
#: Unread bytes of a streamed answer beyond which a producer that does not wait is cut off.
UNREAD_BYTES_MAX: Final = 16 << 20
#: Some of the largest parts may be under way before the producer has heard that it is to wait.
LARGE_PART_BYTES: Final = 1 << 20
PARTS_UNDER_WAY_MAX: Final = 4
#: A client with this many unread bytes of a streamed answer may read nothing for at most
#: `UNREAD_STALL_S_MAX`: a slow reader is served, but one that has stopped must not hold memory.
UNREAD_BYTES_STALLED: Final = 1 << 20
UNREAD_STALL_S_MAX: Final = 10.0
#: The same for one whose producer waits for it.
PACED_STALL_S_MAX: Final = 30.0
#: Parts that together reach this size leave at once: joining more costs more than a system call.
TURN_BYTES_MAX: Final = 65_536

CLOSE_LINE: Final = b"connection: close\r\n"
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


class AnswerPipeline(asyncio.Protocol):
    """The requests of one connection whose answers have not left. Public methods are for `Call`."""

    __slots__ = (
        "_continue_owed", "_drain_waiters", "_out", "_out_bytes", "_paced", "_part_bytes_max",
        "_paused", "_paused_since",
        "_phase", "_queue", "_reading", "_since", "_streamed_bytes", "_taken_bytes", "_transport",
        "_unread_input", "_unwritten", "_write", "bodies", "current", "held_bytes", "listener",
        "speaks_1_1",
    )  # fmt: skip

    _transport: asyncio.Transport
    _write: Any  #: the transport's write method, looked up once

    def __init__(self, listener: ListenerState) -> None:
        self.listener = listener
        #: the request whose answer may be written now; None: there is none
        self.current: Call | None = None
        self.speaks_1_1 = True
        self.bodies = listener.bodies
        self.held_bytes = 0  #: size of the bodies of requests that are not answered
        self._queue: deque[Call] = deque()  #: later requests of the connection, in order
        self._phase = HEAD
        self._since = listener.now
        self._paused = False  #: the transport holds bytes that the client has not read
        self._paused_since = 0.0
        self._paced: Call | None = None  #: the call whose producer is asked to wait
        self._part_bytes_max = 0  #: the largest part of a streamed answer so far
        self._reading = True
        #: answered requests whose last bytes are still in the transport
        self._unwritten: list[Call] = []
        self._unread_input = False  #: the client may still be sending data that nobody will read
        self._drain_waiters: list[asyncio.Future[None]] = []
        self._continue_owed = False
        self._out: list[bytes] = []  #: parts of the current answer from this turn of the loop
        self._out_bytes = 0
        self._streamed_bytes = 0  #: bytes of streamed parts passed to the transport so far
        self._taken_bytes = 0  #: increases whenever a slow client reads bytes

    def put_last(self, call: Call, data: bytes) -> None:
        """The last bytes of the current answer."""
        self._write(data)
        if self._queue or self._phase or call.connection_line or self._paused:
            self._finish(call)
            return
        # The common case on its own: no other request is under way on this connection.
        self.current = None
        self._since = self.listener.now
        call.front_door.written(call)

    def put(self, call: Call, data: bytes, *, last: bool) -> None:
        """Bytes of an answer, whether or not it is the current one."""
        if self.current is not call:
            self._keep_for_later(call, data)
            return
        if last:
            if self._out:
                self._out.append(data)
                self._write_out()
            elif data:
                self._write(data)
            self._finish(call)
            return
        out = self._out
        out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= TURN_BYTES_MAX:
            self.flush()
        elif len(out) == 1:
            self.listener.flush_soon(self.flush)

    def flush(self) -> None:
        """Writes what was made in this turn of the loop. Does nothing if there is nothing."""
        if self._out:
            self._write_out()
            if self._paused:
                unread_bytes = self._transport.get_write_buffer_size()
                self._cut_if_unread(unread_bytes)
                if unread_bytes > UNREAD_BYTES_PACED and self._paced is None:
                    self._paced = self.current
                    if self.current is not None:
                        self.current.pace(waits=True)

    def _write_out(self) -> None:
        out, self._out = self._out, []
        self._out_bytes = 0
        if len(out[-1]) < TURN_BYTES_MAX:
            out = [b"".join(out)]
        for data in out:
            self._part_bytes_max = max(self._part_bytes_max, len(data))
            self._streamed_bytes += len(data)
            self._write(data)

    def _keep_for_later(self, call: Call, data: bytes) -> None:
        pending = call.pending
        if pending is None:
            call.pending = [data]
            return
        pending.append(data)
        if len(pending) == PENDING_PIECES_PACED:
            call.pace(waits=True)  # until its turn
        if len(pending) >= PENDING_PIECES_MAX:
            call.pending = [b"".join(pending)]
            self._cut_if_unread(len(call.pending[0]))

    def _cut_if_unread(self, size: int) -> None:
        under_way = self._part_bytes_max if self._part_bytes_max >= LARGE_PART_BYTES else 0
        if size > max(UNREAD_BYTES_MAX, PARTS_UNDER_WAY_MAX * under_way):
            log.warning("a client does not read its answer: connection cut")
            self.abort()

    def _finish(self, call: Call) -> None:
        """After the last byte of the current answer: the next answer's turn, or the end."""
        # A loop and no recursion: one read can bring thousands of requests.
        while True:
            self.current = None
            if self._paced is call:
                self._paced = None
            if self._phase not in UNDER_WAY:
                self._since = self.listener.now
            if self._paused:
                self._unwritten.append(call)
            else:
                call.front_door.written(call)
            if call.connection_line == CLOSE_LINE:
                self._end()
                return
            if not self._queue:
                break
            call = self.current = self._queue.popleft()
            if call.pending is not None:
                data, call.pending = b"".join(call.pending), None
                self._write(data)
                call.pace(waits=False)
            if not call.finished:
                self._wake_drain_waiters()
                break
        if self.current is None and self._continue_owed:
            self._continue_owed = False
            self._write(CONTINUE)
        if not self._reading:
            self._update_reading()

    def _end(self) -> None:
        """The last answer of this connection was written."""
        dropped = list(self._queue)
        self._queue.clear()
        for call in dropped:
            call.abandon()
        if self._unread_input and self._transport.can_write_eof():
            # Closing while the client still sends would reset the connection and lose the answer.
            self._phase = LINGER
            self._since = self.listener.now
            self._transport.write_eof()
            self._update_reading()
        else:
            self._phase = REFUSED
            self._transport.close()

    def pause_writing(self) -> None:
        self._paused = True
        self._paused_since = self.listener.now
        self._taken_bytes = self._streamed_bytes - self._transport.get_write_buffer_size()
        self._update_reading()

    def resume_writing(self) -> None:
        self._paused = False
        paced, self._paced = self._paced, None
        if paced is not None:
            paced.pace(waits=False)
        self._report_written()
        self._wake_drain_waiters()
        self._update_reading()

    @property
    def http_version(self) -> str:
        return "1.1" if self.speaks_1_1 else "1.0"

    @property
    def unread_bytes(self) -> int:
        """Bytes that the client has not read; 0 while it keeps up."""
        return self._transport.get_write_buffer_size() if self._paused else 0

    def _stalled_s_max(self, now: float, unread_bytes: int, limit_s: float) -> float:
        """How long a slow client may read nothing from now on, in s; notes how much it has read."""
        taken = self._streamed_bytes - unread_bytes
        if taken > self._taken_bytes:
            self._taken_bytes = taken
            self._paused_since = now
        if unread_bytes > UNREAD_BYTES_STALLED:
            return min(UNREAD_STALL_S_MAX, limit_s)
        return limit_s if self._paced is None else min(PACED_STALL_S_MAX, limit_s)

    def give_back(self, size: int) -> None:
        """The body of one of its requests is not needed any more."""
        self.held_bytes -= size
        self.bodies.bytes_taken -= size  # inlined `give`: it saves a call
        if not self._reading:
            self._update_reading()

    def take_back(self, call: Call) -> None:
        """The body that `call` holds is not needed any more."""
        size = call.body_held
        call.body_held = 0
        call.body = b""
        self.held_bytes -= size  # inlined `give_back`: it saves a call
        self.bodies.bytes_taken -= size
        if not self._reading:
            self._update_reading()

    def _queue_up(self, call: Call) -> None:
        """Adds a request: its answer comes after those of the requests before it."""
        self._queue.append(call)
        if self._pipeline_full:
            self._update_reading()

    @property
    def _pipeline_full(self) -> bool:
        queue = self._queue
        return len(queue) >= PIPELINE_MAX or (
            bool(queue) and self.held_bytes > self.listener.limits.body_bytes_max
        )

    def _update_reading(self) -> None:
        """Reads only while the client takes its answers and the pipeline is short."""
        wanted = self._phase == LINGER or (not self._paused and not self._pipeline_full)
        if wanted != self._reading and not self._transport.is_closing():
            self._reading = wanted
            if wanted:
                self._since = self.listener.now  # data that came during the pause was not late
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _report_written(self) -> None:
        if self._unwritten:
            calls, self._unwritten = self._unwritten, []
            for call in calls:
                call.front_door.written(call)

    def _wake_drain_waiters(self) -> None:
        waiters, self._drain_waiters = self._drain_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_writable(self, call: Call) -> None:
        """Returns when it is the call's turn and the client has read everything so far, or has
        gone."""
        self.flush()
        while call.connection is not None and (self._paused or self.current is not call):
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drain_waiters.append(waiter)
            await waiter

    def _abandon_all(self) -> None:
        """The client has gone: nobody will read the remaining answers."""
        gone = [self.current] if self.current is not None else []
        gone += self._queue
        self.current = None
        self._out = []
        self._queue.clear()
        for call in gone:
            call.abandon()
        self._report_written()
        self._wake_drain_waiters()

    def abort(self) -> None:
        self.flush()
        self._transport.abort()

    def about(self, name: str) -> Any:
        """What the transport knows: `peername`, `sockname`, `sslcontext`."""
        return self._transport.get_extra_info(name)
