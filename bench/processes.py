"""Starting and ending the servers that a benchmark compares; everything listens on loopback."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.free_port import free_port

from bench.report import ROOT

JSON_HEADERS = {"Content-Type": "application/json"}


def post(
    url: str, body: bytes, *, timeout_s: float = 10.0, headers: Mapping[str, str] = JSON_HEADERS
) -> bytes:
    """One POST, of JSON where `headers` say nothing else; raises on any answer but 2xx."""
    request = urllib.request.Request(url, data=body, headers=dict(headers))
    with urllib.request.urlopen(request, timeout=timeout_s) as answer:
        return bytes(answer.read())


def wait_answer(
    url: str, body: bytes, *, timeout_s: float, headers: Mapping[str, str] = JSON_HEADERS
) -> bytes:
    """Asks until the server answers 2xx. Raises TimeoutError with the last failure."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return post(url, body, headers=headers)
        except (OSError, urllib.error.URLError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} did not answer within {timeout_s} s: {error}") from error
            time.sleep(0.1)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that was started."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def ended(self) -> bool:
        return self.process.poll() is not None


@contextlib.contextmanager
def running(argv: Sequence[str], *, env: dict[str, str] | None = None) -> Iterator[Running]:
    """Runs a server in a process group of its own, which ends afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as sink:
            process = subprocess.Popen(
                list(argv),
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        try:
            yield Running(process, log)
            if process.poll() is not None:
                raise RuntimeError(f"{argv[0]} ended early:\n{log.read_text()[-2000:]}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its log ends:\n{log.read_text()[-2000:]}") from error
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    for sign, patience_s in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextlib.contextmanager
def penstock_up(
    python: Path | str = sys.executable,
    *,
    program: Sequence[str] = ("penstock",),
    settings: Mapping[str, str] | None = None,
    state_dir: Path | None = None,
    grpc_port: int | None = None,
) -> Iterator[str]:
    """A server; yields its base URL.

    `program`: the module that is run, and arguments before those of the command `up`. `settings`:
    of the server, as variables of its environment. `state_dir`: None: an empty one. `grpc_port`:
    None: a free one.
    """
    with penstock_process(
        python, program=program, settings=settings, state_dir=state_dir, grpc_port=grpc_port
    ) as (base_url, _):
        yield base_url


@contextlib.contextmanager
def penstock_process(
    python: Path | str = sys.executable,
    *,
    program: Sequence[str] = ("penstock",),
    settings: Mapping[str, str] | None = None,
    state_dir: Path | None = None,
    grpc_port: int | None = None,
) -> Iterator[tuple[str, int]]:
    """The same; yields the id of its process too."""
    port, grpc_port = free_port(), grpc_port or free_port()
    with tempfile.TemporaryDirectory() as empty:
        state = str(state_dir or empty)
        argv = [
            *(str(python), "-m", *program, "up", "--host", "127.0.0.1"),
            *("--port", str(port), "--grpc-port", str(grpc_port), "--state-dir", state),
        ]
        with running(argv, env={"PYTHONPATH": str(ROOT / "src"), **(settings or {})}) as server:
            deadline = time.monotonic() + 60.0
            while "penstock ready: " not in server.log.read_text():
                if server.ended():
                    raise RuntimeError(f"penstock up ended:\n{server.log.read_text()[-2000:]}")
                if time.monotonic() > deadline:
                    raise TimeoutError("penstock up was not ready")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}", server.pid
