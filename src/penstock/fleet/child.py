"""One child process of this one: its settings, its output, its log, its end.

The parent keeps the child's standard input open. It closes when the parent dies, by whatever means,
and the child then ends: no instance outlives its server. Each child leads a process group of its
own: a Ctrl-C in the terminal reaches only the server, which drains before it stops them, and a kill
reaches the child's workers too. This module does not know what a child is for: `local.py` makes
instances of children, and `spares.py` keeps some for later.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import IO, BinaryIO, Final

import orjson

from penstock.core.machine.stopped import GUEST_LOOKS_MAX
from penstock.fleet.log_file import append
from penstock.runtimes.workers.stopped import StoppedWatch

_TAIL_BYTES: Final = 2048
_LINE_BYTES_MAX: Final = 2**20
_PIPE_BYTES: Final = 65536


class Child:
    """One child process and what belongs to it.

    A thread waits for its end: asyncio's own wait ends only when every holder of the child's
    output is gone too, a worker that outlived its instance included.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], socket: Path, log: BinaryIO, log_path: Path
    ) -> None:
        self.process = process
        self.socket = socket
        self.log = log
        self.log_path = log_path
        #: Byte where this instance's lines begin: those before are of an earlier instance
        self.log_from = log.tell()
        self.address = ""  #: the address that the child reported, where it chose the port
        self.asked_to_stop = False
        self.guest = False
        self.devices: tuple[str, ...] = ()  #: its accelerators
        self.stood_still = False
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.forgotten = asyncio.Event()
        self.output: asyncio.StreamReader = asyncio.StreamReader(limit=_LINE_BYTES_MAX)
        assert process.stdout is not None
        self._output_pipe = OutputPipe(process.stdout, self.output)
        self.tasks: list[asyncio.Task[None]] = []
        self._watch = StoppedWatch([process.pid], self._stands_still)
        threading.Thread(
            target=self._wait, args=(asyncio.get_running_loop(),), name="instance-wait", daemon=True
        ).start()

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        code = self.process.wait()
        # RuntimeError: the loop is closed, so nobody waits for the end
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(self._ended, code)

    def become_guest(self) -> None:
        """For offline work: it may stand still for longer than an instance that answers
        requests."""
        self.guest = True
        self._watch.close()
        self._watch = StoppedWatch(
            [self.process.pid], self._stands_still, looks_max=GUEST_LOOKS_MAX
        )

    def _stands_still(self) -> None:
        self.stood_still = True
        self.tell("the instance was stopped by a signal (SIGSTOP) and did not go on: it is ended")
        self.kill_group()

    def _ended(self, code: int) -> None:
        self._watch.close()
        if not self.ended.done():
            self.ended.set_result(code)

    async def wait_ended(self) -> int:
        """Returns the exit code. Cancelling one caller does not affect the others."""
        await asyncio.wait([self.ended])
        return self.ended.result()

    def send(self, number: signal.Signals) -> None:
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def kill_group(self) -> None:
        """The child leads its group (`start_new_session`), so its pid is the group's."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def write(self, fields: dict[str, object]) -> None:
        """Writes one line of JSON to the child's standard input."""
        line = orjson.dumps(fields) + b"\n"
        assert len(line) < _PIPE_BYTES, "settings are larger than a pipe holds: they would block"
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead: whoever reads its output finds out
            self.process.stdin.write(line)

    def log_to(self, log: BinaryIO, path: Path) -> None:
        """Sends the output of a spare that becomes an instance to the instance's log. What it wrote
        before is dropped."""
        self.log.close()
        self.log_path.unlink(missing_ok=True)
        self.log, self.log_path, self.log_from = log, path, log.tell()

    def close(self) -> None:
        """Closes the files of a child that has ended."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._output_pipe.close()
        self.log.close()

    def discard(self) -> None:
        """Cleans up after a spare that ended unused."""
        self.close()
        self.log_path.unlink(missing_ok=True)

    def tell(self, words: str) -> None:
        """Writes a line of the platform's own to the child's log."""
        append(self.log, words.encode("utf-8", "backslashreplace") + b"\n")

    def how_it_ended(self, code: int) -> str:
        if self.stood_still:
            return "it was stopped by a signal (SIGSTOP) and did not go on"
        return _how_it_ended(code)

    def last_words(self) -> str:
        """The last line of the log, for messages: mostly the name of the exception."""
        try:
            with self.log_path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(size - _TAIL_BYTES, self.log_from))
                lines = log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f" Its last words: {lines[-1][:400]}" if lines else ""


class OutputPipe(asyncio.ReadTransport):
    """Reads `pipe` into `reader` until its end or `close`, no faster than `reader` is emptied.

    It replaces `connect_read_pipe`. With uvloop that closes the descriptor itself, and where the
    child ends or the caller is cancelled while it connects, it leaves the file object open. When
    that object is garbage-collected it closes the same number again, which by then may be a
    connection or the database. Here the file object alone closes it, on any loop.
    """

    def __init__(self, pipe: IO[bytes], reader: asyncio.StreamReader) -> None:
        super().__init__()
        self._pipe = pipe
        self._reader = reader
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)
        reader.set_transport(self)
        self.resume_reading()

    def pause_reading(self) -> None:
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())

    def resume_reading(self) -> None:
        if not self._pipe.closed:
            self._loop.add_reader(self._pipe.fileno(), self._readable)

    def is_closing(self) -> bool:
        return self._pipe.closed

    def close(self) -> None:
        """Idempotent. The reader sees the end of the stream."""
        if not self._pipe.closed:
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self._reader.feed_eof()

    def _readable(self) -> None:
        try:
            data = os.read(self._pipe.fileno(), _PIPE_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._reader.feed_data(data)
        else:
            self.close()


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    more = ", as the operating system does when memory runs out" if -code == signal.SIGKILL else ""
    return f"signal {-code} ({name}){more}"
