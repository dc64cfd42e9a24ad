"""Processes are stopped (SIGSTOP) under load: they live and answer nobody, and nothing is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.python_models import BUSY_ECHO, python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

DEADLINE = {"x-penstock-deadline-ms": "20000"}
COPIES = 3


def pid_of(copy: dict[str, Any], what: str) -> int:
    return int(copy["pid"] if what == "instance" else copy["worker_pids"][0])


@pytest.mark.parametrize("what", ["instance", "worker"])
def test_no_request_is_lost_with_a_process_that_was_stopped_and_another_takes_its_place(
    empty_server: Server, tmp_path: Path, what: str
) -> None:
    """An instance was noticed after half a minute and a worker after one: each request that met
    it ran out of time."""
    empty_server.deploy("echo", python_model(tmp_path / "echo", BUSY_ECHO), count=COPIES)

    def ready() -> list[int]:
        copies = empty_server.copies("echo")
        return [pid_of(one, what) for one in copies if one["state"] == "ready"]

    victim = ready()[0]
    with Load(empty_server.port, "/endpoints/echo/invocations", headers=DEADLINE) as load:
        wait_until(lambda: load.answered > 200, "load", 30)
        os.kill(victim, signal.SIGSTOP)
        wait_until(lambda: not alive(victim), "the end of what was stopped", 60)
        wait_until(
            lambda: len(ready()) == COPIES and victim not in ready(), "another one in its place", 30
        )
        before = load.answered
        wait_until(lambda: load.answered > before + 200, "answers after that", 30)
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
