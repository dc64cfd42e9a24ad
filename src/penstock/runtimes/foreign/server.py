"""A foreign model server as a child process: its port, its start until it is ready, its end.

Its path of health is /ping, unless the model names another. `core/machine/server_start.py` says how
often it is asked, and when it is certain that the server will never be ready.

Also how one speaks to it: HTTP on this machine, with limits of answers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock import scheduling
from penstock.cleanup import shielded
from penstock.core.blame.crashed_instances import is_crash
from penstock.core.machine.server_start import HealthObserved, ServerStart
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import GUARD, Walls
from penstock.runtimes.foreign.sockets import listening
from penstock.runtimes.workers.failures import ANSWER_BYTES_MAX
from penstock.runtimes.workers.memory import child_pids, tree_pids
from penstock.runtimes.workers.process import WatchedProcess
from penstock.wire.http_client import HttpAnswer, HttpClientSpec, fetch, request_of

PING: Final = "/ping"
_PING_TIMEOUT_S = 2.0  #: as in AWS
_SAID_BYTES_MAX: Final = 100  #: of an answer to that, what people are told
_TERM_GRACE_S = 5.0
#: For the end of what did not get ready in time, before the reason is told all the same: on a busy
#: machine a dozen containers that end together take longer, and whoever loads them gives up.
_END_S_MAX: Final = 6.0
#: s after the start from which sockets are looked at: sooner it is mostly still loading.
_SOCKETS_AFTER_S: Final = 1.0
#: Addresses on which a server is reached by 127.0.0.1.
_REACHED: Final = ("127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1")
_LOG_HINT = "Its own output is in the instance's log."

_SERVER: Final = "the model's server"  #: in errors, once it has been ready

_HOST: Final = "127.0.0.1"


def server_at(port: int) -> HttpClientSpec:
    return HttpClientSpec(
        host=_HOST, port=port, body_bytes_max=ANSWER_BYTES_MAX, acknowledge_at_once=True
    )


def request_at(
    at: HttpClientSpec, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> bytes:
    return request_of(method, path, {"host": f"{at.host}:{at.port}", **headers}, body)


async def ask_once(
    at: HttpClientSpec, method: str, path: str, body: bytes = b"", *, timeout_s: float
) -> HttpAnswer | None:
    """Sends JSON and returns JSON, over a connection of its own; None: the server ended before it
    answered.

    Raises OSError: nobody listens, or there is no answer in time (TimeoutError).
    """
    headers = {"accept": "application/json", "connection": "close"}
    if body:
        headers["content-type"] = "application/json"
    request = request_at(at, method, path, headers, body)
    return await fetch(at, request, timeout_s=timeout_s)


def free_port() -> int:
    """A port on which nobody listens now. If another program takes it first, the start fails."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        return int(probe.getsockname()[1])


_PORT_HINT: Final = (
    "The program must listen on 127.0.0.1, on the port that {port} in `command` stands for, as in "
    'command: [uvicorn, app:app, --port, "{port}"]; the variable SAGEMAKER_BIND_TO_PORT has it too.'
)
_HEALTH_HINT: Final = (
    "Name a path that answers 200 in model.yaml (health: /health), and that of requests where it is"
    " not /invocations (predict: /predict)."
)
#: As the first word of a command: the model's own Python, else that of the PATH, else ours.
_PYTHONS: Final = ("python", "python3")


def _with_programs(environment: Mapping[str, str], interpreter: str) -> Mapping[str, str]:
    """The programs of the model's environment come first."""
    if not interpreter:
        return environment
    path = f"{Path(interpreter).parent}{os.pathsep}{environment.get('PATH', os.defpath)}"
    return {**environment, "PATH": path}


def _listening_of(pid: int) -> list[tuple[str, int]]:
    """Of the guard's program, and of what that started."""
    return listening(tree_pids(pid)[1:])


class ForeignServer(WatchedProcess):
    """Use: `start`, then connect as `at` says. `gone(error)` is called when it ends without a
    request."""

    port_hint = _PORT_HINT
    health_hint = _HEALTH_HINT

    def __init__(self, context: LoadContext, gone: Callable[[PenstockError], None]) -> None:
        super().__init__(context)
        self.port = free_port()
        self.at = server_at(self.port)
        self._name = context.copy_name
        self._on_gone = gone
        self._healthy = False
        self._ending: asyncio.Task[None] | None = None  #: of what did not get ready in time
        self._seen = HealthObserved()  #: the last look while it starts
        self.path = context.description.health or PING

    async def start(self, environment: Mapping[str, str], walls: Walls | None) -> None:
        """Returns once its path of health answers 200. Raises ModelError if the program ended or
        did not become healthy, or if the model names no command."""
        began = self._loop.time()
        if not self._context.description.command:
            raise ModelError(
                "no-command",
                "the model names no command to run",
                hint="Give `command` in model.yaml, or map the image to a command.",
            )
        model_dir = self._context.model_dir
        argv = [
            part.replace("{port}", str(self.port)).replace("{model_dir}", str(model_dir))
            for part in self._context.description.command
        ]
        if argv[0] in _PYTHONS:
            found = shutil.which(argv[0], path=environment.get("PATH"))
            argv[0] = self._context.interpreter or found or sys.executable
        self._spawn(argv, _with_programs(environment, self._context.interpreter), model_dir, walls)
        await self._begin(argv[0], began)

    async def _begin(self, program: str, began: float) -> None:
        """Waits until what was spawned is healthy. Its time counts from `began`, when its start was
        asked for: whoever loads it counts from there. Raises ModelError; then it has ended, or
        ends."""
        timeout_s = self._context.startup_timeout_s
        try:
            left_s = began + timeout_s - self._loop.time()
            await asyncio.wait_for(self._until_healthy(program), max(0.0, left_s))
        except TimeoutError:
            self._ending = asyncio.create_task(self.close())
            await shielded(asyncio.wait({self._ending}, timeout=_END_S_MAX))
            raise ModelError(
                "load-timeout",
                f"{self._name}: {self.path} on port {self.port} was not 200 within {timeout_s:g} s;"
                f" {self._last_seen()}",
                hint=self.port_hint,
            ) from None
        except BaseException:
            await shielded(self.close())
            raise
        self._healthy = True

    @property
    def pids(self) -> list[int]:
        """Processes whose memory and time are the server's, with all below them."""
        return [self.pid] if self.pid else []

    def place_of(self, shown: Path) -> Path:
        """The path of a shown folder, as the server sees it."""
        return shown

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
            with scheduling.children_compute():
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
        began = self._loop.time()
        start = ServerStart(now=began)
        while not self._gone.is_set():
            late = self._loop.time() >= began + _SOCKETS_AFTER_S
            self._seen = await self._look(sockets=late)
            step = start.looked(self._seen, now=self._loop.time())
            if step.reason == "ready":
                return
            if step.failed:
                raise self._never_ready(step.reason)
            if step.note:
                waited = self._loop.time() - began
                self._log(f"GET {self.path} for {waited:.0f} s: {self._last_seen()}")
            with suppress(TimeoutError):  # the end of the program ends the pause
                await asyncio.wait_for(self._gone.wait(), step.pause_s)
        status = self._status() or 0
        words = f"{self._name}: {self._end_of(program, status)} before {self.path} answered"
        # The guard reports a signal as a shell does (128 + number), unless the guard was killed
        # itself.
        if status and not is_crash(128 - status if status > 128 else status):
            raise ModelError("process-killed", words, hint=_LOG_HINT)
        raise ModelError("process-ended", words, hint=_LOG_HINT)

    async def _look(self, *, sockets: bool) -> HealthObserved:
        seen = await self._asked(self.at)
        if seen.status is not None or not sockets:
            return seen
        assert self._process is not None
        found = await asyncio.to_thread(_listening_of, self._process.pid)
        others = [each for each in found if each[1] != self.port or each[0] not in _REACHED]
        asked = [(await self._asked(server_at(port))).status for _, port in others]
        serves = any([self._would_serve(status) for status in asked])
        shown = tuple(f"[{at}]:{port}" if ":" in at else f"{at}:{port}" for at, port in others)
        return replace(seen, elsewhere=shown, serves_elsewhere=serves)

    def _would_serve(self, status: int | None) -> bool:
        """Whether what answers at another port is the server that was meant. One that was told its
        port may have another one beside it, for its metrics: that has no path of health."""
        told = any("{port}" in part for part in self._context.description.command)
        return status == 200 or (status is not None and not told)

    async def _asked(self, at: HttpClientSpec) -> HealthObserved:
        request = request_at(at, "GET", self.path, {"connection": "close"})
        try:
            answer = await fetch(at, request, timeout_s=_PING_TIMEOUT_S)
        except TimeoutError:
            return HealthObserved(words=f"did not answer within {_PING_TIMEOUT_S:g} s")
        except OSError:
            return HealthObserved()
        if answer is None:
            return HealthObserved()
        said = " ".join(answer.body[:_SAID_BYTES_MAX].decode("utf-8", "replace").split())
        return HealthObserved(answer.status, words=said)

    def _last_seen(self) -> str:
        seen = self._seen
        if answer := seen.answer_of(self.path):
            return answer
        if seen.elsewhere:
            places = ", ".join(seen.elsewhere)
            return f"it listens on {places}, and {{port}} is {self.port} on {_HOST}"
        return f"nobody listens on port {self.port} yet"

    def _never_ready(self, reason: str) -> ModelError:
        words = f"{self._name}: {self._last_seen()}"
        if reason == "path-refused":
            return ModelError(
                "health-refused",
                words,
                hint=self.health_hint,
            )
        return ModelError("listens-elsewhere", words, hint=self.port_hint)

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
                    f"{self._name}: {self._end_of(_SERVER, status or 0)}",
                    hint=_LOG_HINT,
                )
            )

    def _end_of(self, program: str, status: int) -> str:
        return f"{program} ended with status {status}"

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
