"""One worker process seen from the instance's event loop: start, one batch at a time, end.

The worker is a fresh interpreter with its own memory; the instance talks to it over a socket pair
and reads its standard output as log lines. A byte of shared memory (`progress`) holds the number of
the batch item the worker is busy with, so that a hang can be laid at the right request.

This class reports that the worker is gone; when to start another is `supervision.py`'s decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from penstock.errors import ModelError, PenstockError, logged, plain
from penstock.runtimes.base import Payload, PayloadReply
from penstock.runtimes.confinement.walls import Walls
from penstock.runtimes.workers import wire as worker_wire
from penstock.runtimes.workers.failures import error_of
from penstock.runtimes.workers.output_lines import OutputLines

Done = Callable[[list[PayloadReply] | None], None]

_EOF_GRACE_S = 0.2  #: from a worker's death to the end of its socket, should a child hold it open


class WorkerProcess(asyncio.Protocol):
    """Use: `start`, then `send` batch after batch (one under way), `kill` at any time.

    `on_gone(error)` is called once, when a started worker has ended without being asked to.
    """

    module = "penstock.runtimes.python.worker"  #: what the interpreter runs

    def __init__(
        self,
        name: str,
        log: Callable[[str], None],
        on_gone: Callable[[PenstockError], None],
        *,
        walls: Walls | None = None,
    ):
        self._name = name
        self._walls = walls
        self._log = log
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._decoder = worker_wire.MessageDecoder()
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._output: OutputLines | None = None
        self._progress: mmap.mmap | None = None
        self._ready: asyncio.Future[dict[str, Any]] | None = None
        self._done: Done | None = None
        self._serving = False
        self._gone = asyncio.Event()
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def item_in_progress(self) -> int:
        """Index in the batch of the item that the worker computes; `worker_wire.ALL_ITEMS`: all."""
        return int.from_bytes(self._progress[:4], "little") if self._progress else 0

    async def start(
        self, init: Mapping[str, Any], environment: Mapping[str, str], timeout_s: float
    ) -> dict[str, Any]:
        """Runs the interpreter and loads the model; returns what the worker says of it.

        Raises ModelError: the model's own failure, its death, or `load-timeout`.
        """
        self._ready = self._loop.create_future()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        progress = os.memfd_create("penstock-progress")
        os.ftruncate(progress, mmap.PAGESIZE)
        self._progress = mmap.mmap(progress, mmap.PAGESIZE)
        read_end, write_end = os.pipe()
        try:
            self._spawn([theirs.fileno(), progress], write_end, init, environment)
        finally:
            theirs.close()
            os.close(progress)
            os.close(write_end)
        assert self._process is not None
        self._output = OutputLines(read_end, self._log)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._exited)
        transport, _ = await self._loop.create_connection(lambda: self, sock=ours)
        self._transport = transport
        self._transport.write(worker_wire.message(worker_wire.INIT, orjson.dumps(init)))
        try:
            return await asyncio.wait_for(asyncio.shield(self._ready), timeout_s)
        except TimeoutError:
            await self.close()
            raise ModelError(
                "load-timeout",
                f"{self._name}: the model's code did not load within {timeout_s:g} s",
                hint="Raise ContainerStartupHealthCheckTimeoutInSeconds, or make model_fn faster.",
            ) from None
        except BaseException:
            await self.close()
            raise

    def _spawn(
        self,
        descriptors: list[int],
        output: int,
        init: Mapping[str, Any],
        environment: Mapping[str, str],
    ) -> None:
        """Behind the walls first, then `module`, with the descriptors' numbers as arguments."""
        argv = [self.module, *map(str, descriptors)]
        told = -1
        if self._walls is not None:
            told = self._walls.told()
            argv = ["penstock.runtimes.confinement.confined", str(told), *argv]
            descriptors = [*descriptors, told]
        try:
            self._process = subprocess.Popen(
                [init.get("python") or sys.executable, "-m", *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=descriptors,
                cwd=str(init["model_dir"]),
                env={
                    **environment,
                    "PYTHONPATH": self.python_path(environment),
                    "PYTHONUNBUFFERED": "1",
                },
                process_group=0,  # ended alone; in the instance's session, ended with it
            )
        finally:
            if told >= 0:
                os.close(told)

    @staticmethod
    def python_path(environment: Mapping[str, str]) -> str:
        return python_path(environment)

    def send(self, batch: Sequence[Payload], done: Done) -> bool:
        """Starts a batch. `done(None)`: the worker died before it answered. False: not sent."""
        assert self._done is None, "a worker computes one batch at a time"
        if self._transport is None or self._closed or not self._serving:
            return False
        self._done = done
        if self._progress is not None:
            self._progress[:4] = b"\0\0\0\0"  # what it says is of this batch
        self._transport.write(worker_wire.pack_batch(batch))
        return True

    def kill(self) -> None:
        """Ends the process and everything it started. The outcome arrives as for any death."""
        if self._process is not None and not self._gone.is_set():
            # Not yet waited for, so that the number still stands for this group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def close(self, grace_s: float = 2.0) -> None:
        """Asks the worker to end, then kills it. Idempotent; `on_gone` is not called."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()  # the worker reads the end of its socket and leaves
        if self._process is not None and not self._gone.is_set():
            try:
                await asyncio.wait_for(self._gone.wait(), grace_s)
            except TimeoutError:
                self.kill()
                await self._gone.wait()

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """What can't be read is a model's code writing where only ours should: its process ends."""
        try:
            for kind, count, payload in self._decoder.feed(data):
                self._message(kind, count, payload)
        except Exception as error:
            self._log(f"the model's process said what can't be read: {plain(error, 300)}")
            self._abort()
            self.kill()

    def _message(self, kind: int, count: int, payload: bytes) -> None:
        if kind == worker_wire.REPLIES:
            if self._done is not None:
                replies = worker_wire.unpack_replies(payload, count)
                done, self._done = self._done, None
                done(replies)
        else:
            self._begun(kind, payload)

    def _begun(self, kind: int, payload: bytes) -> None:
        """READY or FAILED, the one answer to INIT."""
        if self._ready is None or self._ready.done():
            return
        if kind == worker_wire.READY:
            told = orjson.loads(payload)
            self._serving = True
            self._ready.set_result(told)
        else:
            self._ready.set_exception(error_of(payload))

    def connection_lost(self, exc: Exception | None) -> None:
        """How it ended is known once it is reaped; a worker that lives on without us is killed."""
        self._transport = None
        if self._gone.is_set():
            self._lost()
        else:
            self._loop.call_later(_EOF_GRACE_S, self.kill)

    def _exited(self) -> None:
        """The process ended: reap it. Its last replies may still be in the socket."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.kill()  # what it started may have outlived it
        if self._process is not None:
            self._process.poll()
        self._gone.set()
        if self._transport is None:
            self._lost()
        else:
            self._loop.call_later(_EOF_GRACE_S, self._abort)

    def _abort(self) -> None:
        """A child of the worker holds the socket open."""
        if self._transport is not None:
            self._transport.abort()

    def _lost(self) -> None:
        """Answers whoever still waits, once."""
        error = ModelError("worker-died", f"{self._name}: {self._end()}", hint=_LOG_HINT)
        if not self._closed:
            logged(error, self._log)
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(error)
        if self._serving:
            self._serving = False
            if not self._closed:
                self._on_gone(error)  # first: nothing more is to be sent to this lane
        done, self._done = self._done, None
        if done is not None:
            done(None)

    def _end(self) -> str:
        code = self._process.poll() if self._process else None
        if code is None:
            return "the model's process is gone"
        if code < 0:
            name = signal.Signals(-code).name
            more = " (out of memory?)" if name == "SIGKILL" else ""
            return f"the model's process was ended by {name}{more}"
        return f"the model's process exited with status {code}"


_LOG_HINT = "The model's own output is in the instance's log."


def python_path(environment: Mapping[str, str]) -> str:
    """Our package first, wherever it is imported from, then what the model asks for."""
    ours = str(Path(__file__).resolve().parents[3])
    theirs = environment.get("PYTHONPATH", "")
    return f"{ours}{os.pathsep}{theirs}" if theirs else ours
