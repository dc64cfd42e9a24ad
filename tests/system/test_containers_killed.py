"""Containers, those who attend to them, and the whole server are killed under load, one after the
other: each call of unmodified boto3 gets its own answer, and nothing is left behind.

`KILLS=20` is the whole of it.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from botocore.config import Config
from tests.kit.container_images import containers, containers_of, engine, engine_says, image
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.repeating import Repeating
from tests.kit.servers import Server, up

KILLS = int(os.environ.get("KILLS", "4"))
VICTIMS = ("container", "server", "attendant", "instance")
#: Retries last longer than the server takes to come back: some seconds, on a slow machine 30.
RETRIES = Config(retries={"max_attempts": 16, "mode": "standard"}, read_timeout=60)

pytestmark = [pytest.mark.system, pytest.mark.timeout(240 + 60 * KILLS)]


class Callers(Repeating):
    """Each waits for the answer to its call before it sends the next one."""

    def __init__(self, server: Server) -> None:
        super().__init__(threads=4)
        self._client = server.client("sagemaker-runtime", config=RETRIES)
        self.answered = 0
        self.wrong: list[str] = []

    def step(self) -> None:
        said = uuid.uuid4().hex
        answer = self._client.invoke_endpoint(EndpointName="killed", Body=said)
        told = answer["Body"].read().decode()
        with self.lock:
            self.answered += 1
            if said not in told:
                self.wrong.append(told)


class ContainerNemesis:
    def __init__(self, server: Server) -> None:
        self.killed: Counter[str] = Counter()
        self._server = server

    def strike(self, victim: str) -> None:
        getattr(self, f"_kill_{victim}")()
        self.killed[victim] += 1

    def await_two(self) -> None:
        """Both copies are ready, with a container each."""

        def two() -> bool:
            with suppress(OSError):  # the server starts
                copies = self._server.ready_copies("killed")
                return len(copies) == 2 == len(containers_of("killed"))
            return False

        wait_until(two, "two copies with a container each", 90)

    def _kill_container(self) -> None:
        name = containers_of("killed")[self.killed["container"] % 2]
        engine_says("kill", name)
        wait_until(lambda: name not in containers(), f"the end of {name}", 60)

    def _kill_attendant(self) -> None:
        self._kill_process(int(next(iter(attendants())).partition(":")[0]))

    def _kill_instance(self) -> None:
        self._kill_process(self._server.copies("killed")[self.killed["instance"] % 2]["pid"])

    def _kill_server(self) -> None:
        self._server.kill()
        self._server.start()

    def _kill_process(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), f"the end of {pid}", 30)


def attendants() -> list[str]:
    """Of the endpoint's containers, the same one first each time."""
    told = containers("penstock.attendant")
    return [told[name] for name in containers_of("killed") if name in told]


def test_each_call_is_answered_whoever_is_killed(tmp_path: Path) -> None:
    engine()
    networks = engine_says("network", "ls", "--quiet")
    with up(tmp_path) as server:
        client = server.client("sagemaker")
        client.create_model(ModelName="killed", PrimaryContainer={"Image": image()})
        server.endpoint("killed", InitialInstanceCount=2)
        nemesis = ContainerNemesis(server)
        with Callers(server) as callers:
            for number in range(KILLS):
                before = callers.answered
                nemesis.await_two()
                wait_until(lambda least=before + 50: callers.answered > least, "answers", 90)
                nemesis.strike(VICTIMS[number % len(VICTIMS)])
            nemesis.await_two()
        print(f"{KILLS} kills, {dict(nemesis.killed)}: {callers.answered} calls answered")
        assert callers.wrong == []
        server.delete("killed")
        wait_until(lambda: not containers_of("killed"), "nothing left", 60)
    assert engine_says("network", "ls", "--quiet") == networks
    mounts = Path("/proc/self/mounts").read_text()
    assert str(tmp_path) not in mounts
