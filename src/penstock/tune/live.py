"""A real server with one endpoint per candidate, side by side, under short load.

Idle copies cost memory, not time, so one start serves all candidates. The server is a separate
process with a temporary state directory; it listens on loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import ModelDescription
from penstock.errors import ModelError
from penstock.sim.outcome import percentile
from penstock.tune.load import open_loop
from penstock.tune.search import SearchPoint, Setting

_START_S_MAX = 120.0
_STOP_S_MAX = 15.0
_READY = re.compile(r"penstock ready: http://([^:/\s]+):(\d+)")


class LiveServer:
    """Endpoints `tune-0`, `tune-1`, ... of the candidates, in the candidates' order."""

    def __init__(self, host: str, port: int, body: bytes, pid: int) -> None:
        self.pid = pid
        self._host = host
        self._port = port
        self._body = body

    def run(self, at: int, setting: Setting, rate_rps: float, seconds: float) -> SearchPoint:
        """One load on the candidate number `at`, from 0."""
        load = open_loop(
            self._host,
            self._port,
            _path(at),
            self._body,
            rate_rps=rate_rps,
            seconds=seconds,
            seed=at + 1,
        )
        figures = asyncio.run(load)
        return SearchPoint(
            setting,
            rate_rps,
            figures.answered / figures.seconds,
            percentile(list(figures.latencies_s), 0.99) if figures.answered else float("inf"),
            1 - figures.answered / max(1, figures.sent),
        )

    def wait_answers(self, count: int, log: Path, process: subprocess.Popen[bytes]) -> None:
        """Waits until each of `count` endpoints answers the body. Raises ModelError with the
        log."""
        deadline = time.monotonic() + _START_S_MAX
        for at in range(count):
            problem = "no answer"
            while time.monotonic() < deadline and process.poll() is None:
                try:
                    self._ask(at)
                    problem = ""
                    break
                except urllib.error.HTTPError as error:
                    problem = error.read(500).decode("utf-8", "replace")
                except OSError as error:
                    problem = str(error)
                time.sleep(0.2)
            if problem:
                raise ModelError(
                    "tune-live-failed",
                    f"the server did not answer for candidate {at + 1}: {problem}",
                    hint=f"Its log ends: {log.read_text()[-600:]}",
                )

    def _ask(self, at: int) -> None:
        request = urllib.request.Request(
            f"http://{self._host}:{self._port}{_path(at)}",
            data=self._body,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=10.0) as answer:  # noqa: S310 - as above
            answer.read()


@contextlib.contextmanager
def serving(
    model_dir: Path,
    description: ModelDescription,
    settings: Sequence[Setting],
    *,
    instance_type: str,
    body: bytes,
) -> Iterator[LiveServer]:
    """A server with one endpoint per setting; ends with the block."""
    with tempfile.TemporaryDirectory(prefix="penstock-tune-") as folder:
        home = Path(folder)
        arguments = ["up", "--host", "127.0.0.1", "--port", "0", "--grpc-port", "0"]
        arguments += ["--state-dir", str(home / "state"), "--instance-type", instance_type]
        for at, setting in enumerate(settings):
            artifact = home / f"artifact-{at}"
            copied(model_dir, setting.applied(description), artifact)
            arguments += ["--deploy", f"tune-{at}={artifact}"]
        log = home / "log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                # The settings of the user's own server do not apply to this one.
                env={k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")},
            )
        try:
            host, port = _address(log, process)
            server = LiveServer(host, port, body, process.pid)
            server.wait_answers(len(settings), log, process)
            yield server
        finally:
            _end(process)


def copied(model_dir: Path, description: ModelDescription, target: Path) -> None:
    """The artifact's files, linked where possible, with a model.yaml of `description`."""
    shutil.copytree(model_dir, target, copy_function=_link)
    written = target / model_yaml.FILE_NAME
    written.unlink(missing_ok=True)  # else writing would follow the link
    written.write_text(model_yaml.dump(description))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)


def _path(at: int) -> str:
    return f"/endpoints/tune-{at}/invocations"


def _address(log: Path, process: subprocess.Popen[bytes]) -> tuple[str, int]:
    deadline = time.monotonic() + _START_S_MAX
    while time.monotonic() < deadline and process.poll() is None:
        found = _READY.search(log.read_text())
        if found:
            return found[1], int(found[2])
        time.sleep(0.05)
    raise ModelError(
        "tune-live-failed",
        "the server for the verification did not start",
        hint=f"Its log ends: {log.read_text()[-600:]}",
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
