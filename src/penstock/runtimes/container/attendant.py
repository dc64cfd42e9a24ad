"""Runs a container in the foreground, and removes it when it ends or when the instance does.

`python attendant.py`: one line of JSON on standard input says what to run (`Job`). The end of
standard input means that the instance ended (even by SIGKILL): the container is killed and removed.
SIGTERM is passed on to the container. Its output is this process's, its status too. Where this
process is killed itself, the container's label says so to whoever looks for those left behind.

A socket stays in the network namespace in which it was made. So a child of this process enters the
container's, makes sockets there, and passes them to the instance (`namespace.py`), which connects
them to the loopback inside. The container itself gets no way out by this. The child is a process of
its own, because the engine's commands need the machine's network, and because only a process of one
thread may enter a user namespace, in which an engine without root has its containers.

Imports the standard library alone, and nothing of ours: it starts once for each container.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_PR_SET_PDEATHSIG = 1
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
#: Pause before the next look for the container's first process: in a file, or by the engine.
_LOOK_S_FILE, _LOOK_S_ENGINE = 0.01, 0.05
_KILL_AGAIN_S, _KILLS_MAX = 1.0, 30
#: Exit status for a container that can't be reached.
_NO_WAY_IN = 125
#: Exit status of the child that can't enter.
_NOT_ENTERED = 1
#: Sockets of a message: a server that closes each connection needs one for each request.
_SOCKETS = 8
#: An address that no machine has (RFC 5737): the way to it shows the container's own.
_ELSEWHERE = ("192.0.2.1", 9)


class Attendant:
    def __init__(self, job: dict[str, Any]) -> None:
        self._engine: str = job["engine"]
        self._name: str = job["name"]
        self._job = job
        self._began = _started_at("self")
        self._instance = socket.socket(fileno=job["instance"])
        self._maker = 0  #: process id of the child that makes sockets; 0 = there is none yet
        self._inside = ""  #: process id of the container's first process, once it is known
        self._engine_hangs = False

    def run(self) -> int:
        client = self._started()
        signal.signal(signal.SIGTERM, self._pass_on)
        status = self._until_its_end(client)
        self._remove(status)
        return status if status >= 0 else 128 - status

    def _started(self) -> subprocess.Popen[bytes]:
        """`run` of the engine's client, which ends with the container. Variables travel in a file
        that has no name."""
        variables = os.memfd_create("penstock-variables")
        os.write(variables, self._job["env_file"].encode())
        me = f"{os.getpid()}:{self._began}"
        passed = [option for name in self._job["passed"] for option in ("--env", name)]
        pid_file = self._job["pid_file"]
        argv = [
            self._engine, "run", "--name", self._name, "--label", f"{self._job['label']}={me}",
            "--env-file", f"/dev/fd/{variables}", *passed,
            *(["--pidfile", pid_file] if pid_file else []), *self._job["options"],
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

    def _until_its_end(self, client: subprocess.Popen[bytes]) -> int:
        pidfd, maker = os.pidfd_open(client.pid), -1
        waits_for = [0, pidfd]
        look_s = _LOOK_S_FILE if self._job["pid_file"] else _LOOK_S_ENGINE
        while True:
            readable, _, _ = select.select(waits_for, [], [], None if self._maker else look_s)
            if pidfd in readable:
                return client.wait()
            if 0 in readable:  # nobody writes: the instance is gone
                return self._killed(client)
            if not self._maker and (pid := self._pid()):
                self._inside = pid
                if _began_after(self._began, pid):
                    with contextlib.suppress(OSError):  # the instance is gone: soon seen above
                        self._instance.send(json.dumps({"pid": int(pid)}).encode())
                self._maker = _socket_maker(pid, self._began, self._instance)
                self._instance.close()
                maker = os.pidfd_open(self._maker)
                waits_for.append(maker)
            elif maker in readable:
                waits_for.remove(maker)
                status = os.waitstatus_to_exitcode(os.waitpid(self._maker, 0)[1])
                if status != _NOT_ENTERED:
                    why = "the process that makes sockets in the container's network ended"
                elif not self._job["published"]:
                    why = "the container's network can't be entered"
                else:
                    continue
                print(f"penstock: {why}, so it is ended")
                self._killed(client)
                return _NO_WAY_IN

    def _killed(self, client: subprocess.Popen[bytes]) -> int:
        """Tries again, because a container that is made and not started yet can't be killed. One of
        an engine that hangs (Podman does, at the lock of a client that was killed) ends without it.
        """
        for _ in range(_KILLS_MAX):
            self._ask("kill", self._name)
            if self._engine_hangs:
                break
            with contextlib.suppress(subprocess.TimeoutExpired):
                return client.wait(_KILL_AGAIN_S)
        if self._inside and _began_after(self._began, self._inside):
            with contextlib.suppress(OSError):
                os.kill(int(self._inside), signal.SIGKILL)
        client.kill()
        return client.wait()

    def _pid(self) -> str:
        """The container's first process; "": it does not run yet."""
        place = self._job["pid_file"]
        if not place:
            pid = self._ask("container", "inspect", "--format", "{{.State.Pid}}", self._name)
            return pid if pid.isdigit() and int(pid) else ""
        try:
            return Path(place).read_text().strip()
        except OSError:
            return ""

    def _remove(self, status: int) -> None:
        """Says first what the engine knows of the end, for the reason that people see."""
        form = "{{.State.OOMKilled}}"
        if status and self._ask("container", "inspect", "--format", form, self._name) == "true":
            print(self._job["out_of_memory"], flush=True)
        self._ask("rm", "--force", "--volumes", self._name)

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        subprocess.Popen(
            [self._engine, "kill", "--signal", "TERM", self._name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _ask(self, *words: str) -> str:
        """Its answer; "": it gave none, or hung before, and is not asked again."""
        if self._engine_hangs:
            return ""
        patience_s = self._job["patience_s"]
        try:
            done = subprocess.run(
                [self._engine, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=patience_s,
                check=False,
            )
        except OSError:
            return ""
        except subprocess.TimeoutExpired:
            self._engine_hangs = True
            print(
                f"penstock: `{self._engine} {shlex.join(words)}` did not answer within "
                f"{patience_s:g} s, so the container ends without it; once the engine answers, "
                f"`{self._engine} rm --force {self._name}` removes what is left",
                flush=True,
            )
            return ""
        return done.stdout.decode("utf-8", "replace").strip()


def _socket_maker(pid: str, began: str, instance: socket.socket) -> int:
    """Starts the child, and returns its process id. It ends with this process, with the instance's
    end of the connection, and at once (`_NOT_ENTERED`) where it can't enter the namespace."""
    end_with_this_process = _ended_with_this_process()
    child = os.fork()
    if child:
        return child
    status = _NOT_ENTERED
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # the ends of these are signs to others
            os.dup2(nothing, descriptor)
        _enter(pid, began)
        end_with_this_process()  # entering a user namespace takes that back
        status = 0
        _make_sockets(instance)
    finally:
        os._exit(status)


def _enter(pid: str, began: str) -> None:
    """Raises OSError. An engine without root has its containers in a user namespace, which gives
    the right to enter theirs."""
    place = f"/proc/{pid}/ns"
    own = os.stat(f"{place}/net").st_ino == os.stat("/proc/self/ns/net").st_ino
    if own or not _began_after(began, pid):
        raise OSError(f"{place}/net is not a container's that was just started here")
    try:
        _set(f"{place}/net", _CLONE_NEWNET)
    except PermissionError:
        _set(f"{place}/user", _CLONE_NEWUSER)
        _set(f"{place}/net", _CLONE_NEWNET)


def _set(place: str, kind: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, kind):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), place)
    finally:
        os.close(descriptor)


def _make_sockets(instance: socket.socket) -> None:
    """Sends some at once, and as many again for each message."""
    while True:
        made = [socket.socket() for _ in range(_SOCKETS)]
        told = json.dumps({"address": _own_address()}).encode()
        socket.send_fds(instance, [told], [each.fileno() for each in made])
        for each in made:
            each.close()
        if not instance.recv(1):
            return


def _own_address() -> str:
    """Of this network namespace, for servers that don't listen on its loopback; "" = none."""
    with socket.socket(type=socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(_ELSEWHERE)
        return str(probe.getsockname()[0])
    return ""


def _ended_with_this_process() -> Callable[[], None]:
    prctl, attendant = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != attendant:
            os.kill(os.getpid(), signal.SIGKILL)

    return ask


def _began_after(began: str, pid: str) -> bool:
    """Whether the process began after the attendant. Where the engine's machine is another one, the
    number is, if anybody's here, that of an older process."""
    try:
        return int(_started_at(pid)) > int(began)
    except OSError:
        return False


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
