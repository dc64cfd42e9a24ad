"""Processes are killed under load: nothing accepted is lost, and what was asked for comes back."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kit.gate import Gate
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.python_models import BUSY_ECHO, python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

#: What requests say, and their answers.
BODIES = [b"[%d.0]" % number for number in range(6)]


@pytest.fixture
def gate() -> Iterator[Gate]:
    with Gate() as made:
        yield made


@pytest.fixture
def two_copies(empty_server: Server, tmp_path: Path) -> Server:
    """A server with endpoint `echo`, two copies on two instances."""
    empty_server.deploy("echo", python_model(tmp_path / "echo", BUSY_ECHO), count=2)
    return empty_server


def ask(server: Server, body: bytes) -> tuple[int, bytes]:
    return server.post("/endpoints/echo/invocations", body)


def is_ready(server: Server) -> bool:
    """What a load balancer asks: False once nothing new is taken, or nobody listens any more."""
    try:
        with urllib.request.urlopen(f"{server.url}/v2/health/ready", timeout=10):
            return True
    except OSError:
        return False


def test_a_killed_instance_loses_no_accepted_request_and_comes_back(two_copies: Server) -> None:
    victim = two_copies.ready_copies("echo")[0]["pid"]
    with Load(two_copies.port, "/endpoints/echo/invocations") as load:
        wait_until(lambda: load.answered > 200, "load", 60)
        os.kill(victim, signal.SIGKILL)
        before = load.answered
        wait_until(lambda: load.answered > before + 300, "answers after the kill", 30)
        wait_until(
            lambda: (
                len(two_copies.ready_copies("echo")) == 2
                and victim not in [copy["pid"] for copy in two_copies.ready_copies("echo")]
            ),
            "a new instance in place of the killed one",
            30,
        )
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])


def test_a_killed_worker_loses_no_accepted_request_and_comes_back(two_copies: Server) -> None:
    """The Python model's own process dies; its instance gives the requests back and restarts it."""
    victim = two_copies.ready_copies("echo")[0]["worker_pids"][0]
    with Load(two_copies.port, "/endpoints/echo/invocations") as load:
        wait_until(lambda: load.answered > 200, "load", 60)
        os.kill(victim, signal.SIGKILL)
        before = load.answered
        wait_until(lambda: load.answered > before + 300, "answers after the kill", 30)
        wait_until(
            lambda: (
                len(two_copies.ready_copies("echo")) == 2
                and all(
                    victim not in copy["worker_pids"] for copy in two_copies.ready_copies("echo")
                )
            ),
            "a new worker in place of the killed one",
            30,
        )
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])


def test_the_only_copy_dies_and_everything_is_answered_when_it_is_back(
    empty_server: Server, gate: Gate, tmp_path: Path
) -> None:
    """What was accepted waits for the copy, in the model's hands or behind it, and so does what
    comes while there is none."""
    empty_server.deploy("echo", python_model(tmp_path / "echo", gate.model))
    (copy,) = empty_server.ready_copies("echo")
    with ThreadPoolExecutor(5) as callers:
        gate.shut()
        accepted = [callers.submit(ask, empty_server, body) for body in BODIES[:4]]
        wait_until(lambda: empty_server.outstanding("echo") == 4, "four in flight", 30)
        wait_until(lambda: gate.waiting, "one in the model's hands", 30)
        os.kill(copy["pid"], signal.SIGKILL)
        wait_until(lambda: b"load" in gate.waiting, "a new copy that loads", 60)
        accepted.append(callers.submit(ask, empty_server, b"[9.0]"))
        wait_until(lambda: empty_server.in_flight() == 5, "the fifth in flight", 30)
        assert not any(each.done() for each in accepted)
        gate.open()
        expected = [*BODIES[:4], b"[9.0]"]
        assert [each.result(60) for each in accepted] == [(200, body) for body in expected]


def test_a_killed_server_comes_back_with_every_endpoint_and_leaves_no_orphans(
    two_copies: Server,
) -> None:
    pids = [copy["pid"] for copy in two_copies.ready_copies("echo")]
    workers = [pid for copy in two_copies.ready_copies("echo") for pid in copy["worker_pids"]]
    with Load(two_copies.port, "/endpoints/echo/invocations") as load:
        wait_until(lambda: load.answered > 200, "load", 60)
        two_copies.kill()
        wait_until(
            lambda: not any(alive(pid) for pid in (*pids, *workers)),
            "the end of the instances of the killed server",
            60,
        )
        two_copies.start()
        described = two_copies.wait_in_service("echo")
        before = load.statuses[200]
        wait_until(lambda: load.statuses[200] > before + 200, "answers again", 30)
    assert described["EndpointConfigName"] == "echo"
    assert set(load.statuses) <= {200, 503}, load.errors
    assert load.wrong == []


def test_a_server_killed_while_an_endpoint_is_being_created_finishes_creating_it(
    empty_server: Server, tmp_path: Path
) -> None:
    empty_server.deploy("echo", python_model(tmp_path / "echo", BUSY_ECHO), wait=False)
    empty_server.kill()
    empty_server.start()
    assert empty_server.wait_in_service("echo")["EndpointStatus"] == "InService"
    assert empty_server.post("/endpoints/echo/invocations", b"[1.0]") == (200, b"[1.0]")


def test_a_server_killed_while_an_endpoint_is_being_deleted_finishes_deleting_it(
    two_copies: Server,
) -> None:
    client = two_copies.client("sagemaker")
    client.delete_endpoint(EndpointName="echo")
    two_copies.kill()
    two_copies.start()
    wait_until(lambda: not client.list_endpoints()["Endpoints"], "the endpoint gone", 30)


def test_sigterm_answers_what_is_in_flight_and_exits_with_zero(
    fresh_server: Server, gate: Gate, tmp_path: Path
) -> None:
    """Six on two copies: one in the hands of each model, the rest behind them."""
    fresh_server.deploy("echo", python_model(tmp_path / "echo", gate.model), count=2)
    pids = [copy["pid"] for copy in fresh_server.ready_copies("echo")]
    assert len(pids) == 2
    assert fresh_server.process is not None
    with ThreadPoolExecutor(6) as callers:
        gate.shut()
        accepted = [callers.submit(ask, fresh_server, body) for body in BODIES]
        wait_until(lambda: fresh_server.outstanding("echo") == 6, "six in flight", 30)
        wait_until(lambda: len(gate.waiting) == 2, "one in each model's hands", 30)
        fresh_server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not is_ready(fresh_server), "nothing new is taken", 60)
        assert ask(fresh_server, b"[9.0]")[0] == 503
        assert not any(each.done() for each in accepted)
        gate.open()
        assert [each.result(60) for each in accepted] == [(200, body) for body in BODIES]
    assert fresh_server.process.wait(40) == 0
    assert not any(alive(pid) for pid in pids)
