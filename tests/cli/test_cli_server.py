"""`penstock up` and `penstock serve` as processes: they start alone, and end when told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.polling import wait_until
from tests.kit.servers import EXAMPLES, Server
from tools.free_port import free_port

pytestmark = pytest.mark.system


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    running = Server(tmp_path / "state").start()
    yield running
    running.stop()


def penstock(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "penstock", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_status_0(server: Server, number: signal.Signals) -> None:
    assert server.process is not None
    server.process.send_signal(number)
    assert server.process.wait(30) == 0
    assert "Traceback" not in server.log()


def test_what_another_server_has_is_named(server: Server, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "other"), str(server.state_dir)
    http, grpc = str(server.port), str(server.grpc_port)

    def refused(state_dir: str, port: str, grpc_port: str) -> str:
        words = ("--state-dir", state_dir, "--port", port, "--grpc-port", grpc_port)
        ended = penstock("up", *words)
        assert ended.returncode == 1
        code, hint = ended.stderr.splitlines()
        assert hint.startswith("hint: ")
        return code

    free = [str(free_port()) for _ in range(2)]
    assert refused(theirs, *free).startswith("error[state-dir-in-use]: ")
    assert refused(mine, http, free[0]).startswith("error[port-in-use]: ")
    assert refused(mine, free[0], grpc).startswith("error[port-in-use]: ")


def test_serve_deploys_one_model_and_says_how_to_call_it(tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "log"
    argv = [
        *(sys.executable, "-m", "penstock", "serve", str(EXAMPLES / "echo" / "python")),
        *("--name", "echo", "--port", str(port), "--grpc-port", str(free_port())),
        *("--state-dir", str(tmp_path / "state")),
    ]
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        wait_until(lambda: "endpoint echo is in service" in log.read_text(), "in service", 60)
        curl = next(line for line in log.read_text().splitlines() if "curl" in line)
        url = f"http://127.0.0.1:{port}"
        assert f"{url}/endpoints/echo/invocations" in curl
        called = penstock("invoke", "echo", "[1.0, 2.0]", "--url", url, "--json")
        assert json.loads(called.stdout)["body"] == [1.0, 2.0]
    finally:
        os.kill(process.pid, signal.SIGTERM)
    assert process.wait(30) == 0
