"""A foreign model server as a child process: its port, its start until /ping answers, its end.

Also how one speaks to it: HTTP on this machine, with limits of answers.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from penstock.cleanup import shielded
from penstock.core.blame.crashed_instances import is_crash
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import GUARD, Walls
from penstock.runtimes.workers.failures import ANSWER_BYTES_MAX
from penstock.runtimes.workers.memory import child_pids
from penstock.runtimes.workers.process import WatchedProcess
from penstock.wire.http_client import HttpAnswer, HttpClientSpec, fetch, request_of

_PING_EVERY_S = 0.05
_PING_TIMEOUT_S = 2.0  #: as in AWS
_TERM_GRACE_S = 5.0
_LOG_HINT = "Its own output is in the instance's log."

_HOST: Final = "127.0.0.1"


def server_at(port: int) -> HttpClientSpec:
    return HttpClientSpec(
        host=_HOST, port=port, body_bytes_max=ANSWER_BYTES_MAX, acknowledge_at_once=True
    )


def request_at(
    port: int, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> bytes:
    return request_of(method, path, {"host": f"{_HOST}:{port}", **headers}, body)


async def ask_once(
    port: int, method: str, path: str, body: bytes = b"", *, timeout_s: float
) -> HttpAnswer | None:
    """Sends JSON and returns JSON, over a connection of its own; None: the server ended before it
    answered.

    Raises OSError: nobody listens, or there is no answer in time (TimeoutError).
    """
    headers = {"accept": "application/json", "connection": "close"}
    if body:
        headers["content-type"] = "application/json"
    request = request_at(port, method, path, headers, body)
    return await fetch(server_at(port), request, timeout_s=timeout_s)


def free_port() -> int:
    """A port on which nobody listens now. If another program takes it first, the start fails."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


class ForeignServer(WatchedProcess):
    """Use: `start`, then connect to `port`. `gone(error)` is called when it ends without a
    request."""

    def __init__(self, context: LoadContext, gone: Callable[[PenstockError], None]) -> None:
        super().__init__(context)
        self.port = free_port()
        self._name = context.copy_name
        self._on_gone = gone
        self._healthy = False

    async def start(self, environment: Mapping[str, str], walls: Walls | None) -> None:
        """Returns once /ping answers 200. Raises ModelError if the program ended or did not become
        healthy, or if the model names no command."""
        if not self._context.description.command:
            raise ModelError(
                "no-command",
                "the model names no command to run",
                hint="Give `command` in model.yaml, or map the image to a command.",
            )
        model_dir, timeout_s = self._context.model_dir, self._context.startup_timeout_s
        argv = [
            part.replace("{port}", str(self.port)).replace("{model_dir}", str(model_dir))
            for part in self._context.description.command
        ]
        self._spawn(argv, environment, model_dir, walls)
        try:
            await asyncio.wait_for(self._until_healthy(argv[0]), timeout_s)
        except TimeoutError:
            await shielded(self.close())
            raise ModelError(
                "load-timeout",
                f"{self._name}: /ping on port {self.port} was not 200 within {timeout_s:g} s",
                hint="The program must listen on {port} or $SAGEMAKER_BIND_TO_PORT.",
            ) from None
        except BaseException:
            await shielded(self.close())
            raise
        self._healthy = True

    def _spawn(
        self,
        argv: list[str],
        environment: Mapping[str, str],
        model_dir: Path,
        walls: Walls | None,
    ) -> None:
        read_end, write_end = os.pipe()
        told = walls.told() if walls is not None else -1
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", GUARD, str(told), *argv],
                stdin=subprocess.PIPE,
                pass_fds=[told] if walls is not None else [],
                stdout=write_end,
                stderr=write_end,
                cwd=str(model_dir) if model_dir.is_dir() else None,
                env={**environment, "SAGEMAKER_BIND_TO_PORT": str(self.port)},
                # Must outlive us for a moment, to end the program when we are killed
                start_new_session=True,
            )
        finally:
            os.close(write_end)
            if walls is not None:
                os.close(told)
        self._follow(process, read_end, self._pids)

    def _pids(self) -> list[int]:
        """The guard and the program, without processes that the program started."""
        assert self._process is not None
        return [self._process.pid, *child_pids(self._process.pid)]

    def _stands_still(self) -> None:
        self._log("the model's server was stopped by a signal (SIGSTOP): it is ended")
        assert self._process is not None
        self._process.kill()  # a stopped guard can't end the program; then the kernel does

    async def _until_healthy(self, program: str) -> None:
        while not self._gone.is_set():
            if await self._ping():
                return
            await asyncio.sleep(_PING_EVERY_S)
        status = self._status() or 0
        words = f"{self._name}: {program} ended with status {status} before /ping answered"
        # The guard reports a signal as a shell does (128 + number), unless the guard was killed
        # itself.
        if status and not is_crash(128 - status if status > 128 else status):
            raise ModelError("process-killed", words, hint=_LOG_HINT)
        raise ModelError("process-ended", words, hint=_LOG_HINT)

    async def _ping(self) -> bool:
        request = request_at(self.port, "GET", "/ping", {"connection": "close"})
        try:
            answer = await fetch(server_at(self.port), request, timeout_s=_PING_TIMEOUT_S)
        except OSError:
            return False
        return answer is not None and answer.status == 200

    def _status(self) -> int | None:
        return self._process.poll() if self._process else None

    def _exited(self) -> None:
        super()._exited()
        status = self._status()
        self._gone.set()
        if self._healthy and not self._closed:
            self._on_gone(
                ModelError(
                    "worker-died",
                    f"{self._name}: the model's server ended with status {status}",
                    hint=_LOG_HINT,
                )
            )

    def kill(self) -> None:
        """Ends the program and all it started, by closing the guard's standard input."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    async def close(self) -> None:
        """Sends SIGTERM, and ends everything after 5 s. Idempotent."""
        self._closed = True
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._gone.wait(), _TERM_GRACE_S)
        except TimeoutError:
            self.kill()
            await self._gone.wait()
