"""Runs a container in the foreground, and removes it when it ends or when the instance does.

`python attendant.py`: one line of JSON on standard input says what to run (`Job`). The end of
standard input means that the instance ended (even by SIGKILL): the container is killed and removed.
SIGTERM is passed on to the container. Its output is this process's, its status too. Where this
process is killed itself, the container's label says so to whoever looks for those left behind.

A container without a network is reached all the same: this process listens on a loopback port of
the machine, and a child of it enters the container's network and forwards (`forward.py`).

Imports the standard library alone, and nothing of ours: it starts once for each container.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1
_LOOK_S = 0.05
_ANSWER_S_MAX = 30.0
#: Exit status for a container without a network that can't be reached.
_NO_WAY_IN = 125


class Attendant:
    def __init__(self, job: dict[str, Any]) -> None:
        self._engine: str = job["engine"]
        self._name: str = job["name"]
        self._job = job
        self._client: subprocess.Popen[bytes] | None = None
        self._forward: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        listener = None
        if self._job["isolated"]:
            listener = socket.create_server(("127.0.0.1", self._job["port"]), backlog=128)
        self._client = self._started()
        signal.signal(signal.SIGTERM, self._pass_on)
        status = self._until_its_end(self._client, listener)
        self._remove(status)
        return status if status >= 0 else 128 - status

    def _started(self) -> subprocess.Popen[bytes]:
        """`run` of the engine's client, which ends with the container. Variables travel in a file
        that has no name."""
        variables = os.memfd_create("penstock-variables")
        os.write(variables, self._job["env_file"].encode())
        me = f"{os.getpid()}:{_started_at('self')}"
        passed = [option for name in self._job["passed"] for option in ("--env", name)]
        argv = [
            self._engine, "run", "--name", self._name, "--label", f"{self._job['label']}={me}",
            "--env-file", f"/dev/fd/{variables}", *passed, *self._job["options"],
        ]  # fmt: skip
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **self._job["passed"]},
                pass_fds=[variables],
                start_new_session=True,
                preexec_fn=_ended_with_this_process(),  # noqa: PLW1509 - one thread
            )
        finally:
            os.close(variables)

    def _until_its_end(
        self, client: subprocess.Popen[bytes], listener: socket.socket | None
    ) -> int:
        pidfd = os.pidfd_open(client.pid)
        waits_for = [0, pidfd]
        while True:
            to_enter = listener is not None and self._forward is None
            readable, _, _ = select.select(waits_for, [], [], _LOOK_S if to_enter else None)
            if pidfd in readable:
                return client.wait()
            if 0 in readable:  # nobody writes: the instance is gone
                self._ask("kill", self._name)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return client.wait(_ANSWER_S_MAX)
                client.kill()
                return client.wait()
            if to_enter and listener is not None:
                pid = self._ask("container", "inspect", "--format", "{{.State.Pid}}", self._name)
                if pid.isdigit() and int(pid):
                    self._forward = _forwarder(listener, pid)
                    waits_for.append(os.pidfd_open(self._forward.pid))
            elif self._forward is not None and self._forward.poll() is not None:
                print("penstock: the container's network can't be entered, so it is ended")
                self._ask("kill", self._name)
                client.wait()
                return _NO_WAY_IN

    def _remove(self, status: int) -> None:
        """Says first what the engine knows of the end, for the reason that people see."""
        form = "{{.State.OOMKilled}}"
        if status and self._ask("container", "inspect", "--format", form, self._name) == "true":
            print(self._job["out_of_memory"], flush=True)
        self._ask("rm", "--force", "--volumes", self._name)
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        subprocess.Popen(
            [self._engine, "kill", "--signal", "TERM", self._name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _ask(self, *words: str) -> str:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [self._engine, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_ANSWER_S_MAX,
                check=False,
            )
            return done.stdout.decode("utf-8", "replace").strip()
        return ""


def _forwarder(listener: socket.socket, pid: str) -> subprocess.Popen[bytes]:
    program = str(Path(__file__).with_name("forward.py"))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", program, str(listener.fileno()), pid],
        stdin=subprocess.DEVNULL,
        pass_fds=[listener.fileno()],
        preexec_fn=_ended_with_this_process(),  # noqa: PLW1509 - one thread
    )


def _ended_with_this_process() -> Callable[[], None]:
    prctl, attendant = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != attendant:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def _started_at(pid: str) -> str:
    """As `engine.started_at`."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]


def _job() -> dict[str, Any]:
    """Reads no more than the line: what comes behind it is the end."""
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            sys.exit(0)
        line += piece
    read: dict[str, Any] = json.loads(line)
    return read


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return Attendant(_job()).run()
    except OSError as error:
        print(f"{error.filename or 'the container'}: {error.strerror or error}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main())
