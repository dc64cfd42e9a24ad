"""One worker process seen from the instance's event loop: start, messages, end.

The worker is a fresh interpreter with its own memory. The instance talks to it over a socket pair
(`wire`) and reads its standard output as log lines (`OutputLines`). The code that starts it
interprets its messages; `supervised` decides when another one is started after its end.

`worker_environment` is the environment of a process with a model's code, `run_s_max` a setting that
we read from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from penstock import scheduling
from penstock.cleanup import shielded
from penstock.errors import ModelError, PenstockError, logged, plain
from penstock.runtimes.base import LoadContext
from penstock.runtimes.confinement.walls import CONFINED, Walls
from penstock.runtimes.environment import at_home_in, for_models, of_environment, own_packages
from penstock.runtimes.workers import wire
from penstock.runtimes.workers.failures import error_of
from penstock.runtimes.workers.stopped import Pids, StoppedWatch

Hear = Callable[[int, int, bytes], None]  #: kind, count and payload of a message

_EOF_GRACE_S = 0.2  #: from a worker's death to the end of its socket, if a child keeps it open


class WatchedProcess:
    """A process that we started: its output goes to the log, its end and its standing still are
    noticed."""

    def __init__(self, context: LoadContext) -> None:
        self._context = context
        self._log = context.log
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._watch: StoppedWatch | None = None
        self._gone = asyncio.Event()
        self._closed = False

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def _follow(self, process: subprocess.Popen[bytes], output: int, pids: Pids) -> None:
        """`output`: the end of its output's pipe; `pids`: those that must not stand still."""
        self._process = process
        OutputLines(output, self._log)
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._exited)
        self._watch = StoppedWatch(pids, self._stands_still)

    def _stands_still(self) -> None:
        """It was stopped by a signal, and is to be ended."""
        raise NotImplementedError

    def _exited(self) -> None:
        """The process ended; it is not reaped yet."""
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        if self._watch is not None:
            self._watch.close()


class WorkerProcess(WatchedProcess, asyncio.Protocol):
    """Use: `start`, then `write` messages, `kill` at any time.

    `hear` gets each message after the first. `gone(error)` is called once, when a started worker
    has ended, with or without a request to end.
    """

    def __init__(
        self, context: LoadContext, hear: Hear, gone: Callable[[PenstockError], None]
    ) -> None:
        super().__init__(context)
        self._hear = hear
        self._on_gone = gone
        self._decoder = wire.MessageDecoder()
        self._transport: asyncio.Transport | None = None
        self._ready: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._serving = False
        self._error: ModelError | None = None  #: why it ended

    async def start(
        self,
        module: str,
        init: Mapping[str, Any],
        environment: Mapping[str, str],
        walls: Walls | None,
        *,
        python: str = "",
        descriptors: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Runs `module` and sends it `init`; returns the worker's report about its model.

        `python`: another interpreter than ours. `descriptors` are inherited, with their numbers as
        arguments. Raises ModelError: the model's own failure, its death, or `load-timeout`.
        """
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        read_end, write_end = os.pipe()
        passed = [theirs.fileno(), *descriptors]
        try:
            process = self._spawn(
                python or sys.executable, module, passed, write_end, environment, walls
            )
        finally:
            theirs.close()
            os.close(write_end)
        self._follow(process, read_end, [process.pid])
        transport, _ = await self._loop.create_connection(lambda: self, sock=ours)
        self._transport = transport
        self._transport.write(wire.message(wire.INIT, orjson.dumps(init)))
        try:
            told = await asyncio.wait_for(
                asyncio.shield(self._ready), self._context.startup_timeout_s
            )
            if self._error is not None:
                raise self._error  # it ended after it had reported READY
            self._serving = True
            return told
        except TimeoutError:
            await shielded(self.close())
            raise load_timeout(self._context) from None
        except BaseException:
            await shielded(self.close())
            raise

    def _spawn(
        self,
        python: str,
        module: str,
        descriptors: list[int],
        output: int,
        environment: Mapping[str, str],
        walls: Walls | None,
    ) -> subprocess.Popen[bytes]:
        """Starts the walls first, then `module`, with the descriptors' numbers as arguments."""
        argv = [python, "-m", module, *map(str, descriptors)]
        told = -1
        if walls is not None:
            told = walls.told()
            argv = confined_argv(argv, told, ours=python == sys.executable)
            descriptors = [*descriptors, told]
        try:
            with scheduling.children_compute():
                return subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=descriptors,
                    cwd=str(self._context.model_dir),
                    env={
                        **environment,
                        "PYTHONPATH": _python_path(environment, python),
                        "PYTHONUNBUFFERED": "1",
                    },
                    process_group=0,  # it can be ended alone, and ends with the instance's session
                )
        finally:
            if told >= 0:
                os.close(told)

    def write(self, message: bytes) -> bool:
        """False: the process is gone."""
        if self._transport is None or self._closed or not self._serving:
            return False
        self._transport.write(message)
        return True

    def kill(self) -> None:
        """Ends the process and everything that it started. `gone` is called as for any death."""
        if self._process is not None and not self._gone.is_set():
            # It was not waited for yet, so its number still stands for this group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _stands_still(self) -> None:
        self._log("the model's process was stopped by a signal (SIGSTOP) and did not go on: ended")
        self.kill()

    async def close(self, grace_s: float = 2.0) -> None:
        """Asks the worker to end, then kills it. Idempotent."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()  # the worker sees the end of its socket and exits
        if self._process is not None and not self._gone.is_set():
            try:
                await asyncio.wait_for(self._gone.wait(), grace_s)
            except TimeoutError:
                self.kill()
                await self._gone.wait()

    # asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Unreadable data means that the model's code wrote to our socket: the process is ended."""
        try:
            for kind, count, payload in self._decoder.feed(data):
                if kind in (wire.READY, wire.FAILED):
                    self._begun(kind, payload)
                else:
                    self._hear(kind, count, payload)
        except Exception as error:
            self._log(f"the model's process said what can't be read: {plain(error, 300)}")
            self._abort()
            self.kill()

    def _begun(self, kind: int, payload: bytes) -> None:
        """Handles the one answer to INIT."""
        if self._ready.done():
            return
        if kind == wire.READY:
            self._ready.set_result(orjson.loads(payload))
        else:
            self._ready.set_exception(error_of(payload))

    def connection_lost(self, exc: Exception | None) -> None:
        """Reports the end once the process is reaped, because only then it is known how it ended.
        A worker that goes on without its socket is killed."""
        self._transport = None
        if self._gone.is_set():
            self._lost()
        else:
            self._loop.call_later(_EOF_GRACE_S, self.kill)

    def _exited(self) -> None:
        """Reaps the process. Its last replies may still be in the socket."""
        super()._exited()
        self.kill()  # its children may have outlived it
        if self._process is not None:
            self._process.poll()
        self._gone.set()
        if self._transport is None:
            self._lost()
        else:
            self._loop.call_later(_EOF_GRACE_S, self._abort)

    def _abort(self) -> None:
        """A child of the worker keeps the socket open: closes it."""
        if self._transport is not None:
            self._transport.abort()

    def _lost(self) -> None:
        """Answers all waiting calls, once."""
        words = f"{self._context.copy_name}: {self._end()}"
        self._error = ModelError("worker-died", words, hint=_LOG_HINT)
        if not self._closed:
            logged(self._error, self._log)
        if not self._ready.done():
            self._ready.set_exception(self._error)
            self._ready.exception()  # of a start that was given up nobody reads it
        if self._serving:
            self._serving = False
            self._on_gone(self._error)

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


def load_timeout(context: LoadContext) -> ModelError:
    """The error for a model whose code took longer to load than its owner allows."""
    return ModelError(
        "load-timeout",
        f"{context.copy_name}: the model's code did not load within"
        f" {context.startup_timeout_s:g} s",
        hint="Raise ContainerStartupHealthCheckTimeoutInSeconds, or make model_fn faster.",
    )


RUN_S_MAX = 60.0  #: s, as in AWS
#: glibc gives memory back as soon as some is free at the end of its heap, and a batch of large
#: tensors would ask the kernel for all of its pages again. The server's own settings come first.
_KEEPS_FREED = {
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20), "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}  # fmt: skip


def worker_environment(context: LoadContext, scratch: Path) -> dict[str, str]:
    """The server's variables that models may see, SageMaker's variables, then the model's own."""
    threads = str(
        context.description.threads_per_lane
        or max(1, int(context.cores / max(1, context.description.lanes)))
    )
    file = Path(context.description.file)
    servers = for_models() | at_home_in(str(scratch))
    if context.interpreter:
        servers = of_environment(servers, context.interpreter)
    return {
        **({} if "GLIBC_TUNABLES" in servers else _KEEPS_FREED),
        **servers,
        "OMP_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        "SM_MODEL_DIR": str(context.model_dir),
        "SAGEMAKER_BASE_DIR": str(context.model_dir),
        "SAGEMAKER_MODEL_SERVER_WORKERS": str(context.description.lanes),
        **({"SAGEMAKER_BATCH": "true"} if context.offline else {}),
        **context.variables,
        # The local path: the model's variable has a container's folder, or an address in S3.
        "SAGEMAKER_PROGRAM": file.name,
        "SAGEMAKER_SUBMIT_DIRECTORY": str((context.model_dir / file).parent),
    }


def run_s_max(environment: dict[str, str]) -> float:
    """SAGEMAKER_MODEL_SERVER_TIMEOUT in s: a longer run counts as a hang. Raises ModelError."""
    given = environment.get("SAGEMAKER_MODEL_SERVER_TIMEOUT", "")
    if not given:
        return RUN_S_MAX
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise ModelError(
            "invalid-environment",
            f"SAGEMAKER_MODEL_SERVER_TIMEOUT is {given!r}, a number of seconds is needed",
        )
    return seconds


def confined_argv(argv: list[str], told: int, *, ours: bool) -> list[str]:
    """`argv` behind walls, which are read from the descriptor `told`. `ours`: it runs a module by
    our own Python, which then makes the walls itself: no second interpreter starts."""
    if ours:
        return [argv[0], "-m", "penstock.runtimes.confinement.confined", str(told), *argv[2:]]
    return [sys.executable, "-I", "-S", CONFINED, str(told), "--", *argv]


def _python_path(environment: Mapping[str, str], python: str) -> str:
    """The path of our own package first, then the model's own setting."""
    ours = str(Path(__file__).resolve().parents[3])
    if python != sys.executable:
        ours = own_packages()
    theirs = environment.get("PYTHONPATH", "")
    return f"{ours}{os.pathsep}{theirs}" if theirs else ours


_LINE_BYTES_MAX = 8192  #: longer lines of output are cut there


class OutputLines:
    """Reads a pipe until its end on the running loop and hands over each line."""

    def __init__(self, read_end: int, log: Callable[[str], None]) -> None:
        self._fd = read_end
        self._log = log
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        os.set_blocking(read_end, False)
        self._loop.add_reader(read_end, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._log(line[:_LINE_BYTES_MAX].decode("utf-8", "replace").rstrip("\r"))

    def close(self) -> None:
        """Hands over an unfinished last line. Idempotent."""
        if self._fd < 0:
            return
        fd, self._fd = self._fd, -1
        with contextlib.suppress(OSError, ValueError):
            self._loop.remove_reader(fd)
        os.close(fd)
        if self._rest:
            self._log(self._rest.decode("utf-8", "replace"))
            self._rest = b""
