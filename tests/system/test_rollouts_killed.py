"""Rollouts in whose middle the server, an instance, a worker or the database is killed: each ends
at the new model or at the old one, and each call of unmodified boto3 is answered by one of them.

`KILLS=100` is the whole of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from botocore.config import Config
from tests.kit.polling import wait_until
from tests.kit.postgres import PostgresServer
from tests.kit.processes import runs
from tests.kit.python_models import python_model
from tests.kit.repeating import Repeating
from tests.kit.servers import Server, up

from penstock.runtimes.workers.memory import tree_pids

KILLS = int(os.environ.get("KILLS", "4"))
VICTIMS = ("server", "new instance", "old instance", "worker")
STORES = {"sqlite": VICTIMS, "postgresql": ("database", *VICTIMS)}
MODELS = ("blue", "green")
#: Retries last longer than the server takes to come back: some seconds, on a slow machine 30.
RETRIES = Config(retries={"max_attempts": 16, "mode": "standard"}, read_timeout=60)

pytestmark = [pytest.mark.system, pytest.mark.timeout(240 + 90 * KILLS)]

MODEL = """
import json

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    said = body.decode() if isinstance(body, bytes) else body
    return json.dumps({"by": "NAME", "said": said}), "application/json"
"""


class ShopCallers(Repeating):
    """Each waits for the answer to its call before it sends the next one."""

    def __init__(self, server: Server) -> None:
        super().__init__(threads=3)
        self._client = server.client("sagemaker-runtime", config=RETRIES)
        self.by: Counter[str] = Counter()
        self.wrong: list[str] = []

    def step(self) -> None:
        said = uuid.uuid4().hex
        answer = self._client.invoke_endpoint(
            EndpointName="shop", Body=said, ContentType="text/plain"
        )
        told = json.loads(answer["Body"].read())
        with self.lock:
            self.by[told["by"]] += 1
            if said not in told["said"]:
                self.wrong.append(told)


def policy(chance: random.Random) -> dict[str, Any]:
    kind = chance.choice(["ALL_AT_ONCE", "CANARY", "LINEAR", "ROLLING"])
    size = {"Type": "CAPACITY_PERCENT", "Value": chance.choice([10, 25, 50])}
    wait_s = chance.choice([0, 1, 2])
    if kind == "ROLLING":
        return {"RollingUpdatePolicy": {"MaximumBatchSize": size, "WaitIntervalInSeconds": wait_s}}
    member = {"CANARY": {"CanarySize": size}, "LINEAR": {"LinearStepSize": size}}.get(kind, {})
    routing = {"Type": kind, "WaitIntervalInSeconds": wait_s, **member}
    policy = {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": 1}
    return {"BlueGreenUpdatePolicy": policy}


class RolloutNemesis:
    def __init__(
        self, server: Server, chance: random.Random, database: PostgresServer | None
    ) -> None:
        self.killed: Counter[str] = Counter()
        self._server = server
        self._database = database
        self._chance = chance

    def strike(self, victim: str) -> None:
        """At some moment of the rollout that has just begun, or right after it."""
        self._chance.choice([self._at_once, self._when_two_serve])()
        if victim == "server":
            self._server.kill()
            self._server.start()
        elif victim == "database":
            assert self._database is not None
            self._database.kill()
            self._database.start()
        else:
            self._kill_process(victim)
        self.killed[victim] += 1

    def _at_once(self) -> None:
        """The new instance starts."""

    def _when_two_serve(self) -> None:
        """Both models are ready, or the rollout is over."""
        wait_until(
            lambda: len(self._server.ready_copies("shop")) != 1 or not self.under_way(),
            "two models",
            90,
        )

    def under_way(self) -> bool:
        client = self._server.client("sagemaker")
        return bool(client.describe_endpoint(EndpointName="shop")["EndpointStatus"] == "Updating")

    def _kill_process(self, victim: str) -> None:
        there = [copy for copy in self._server.copies("shop") if copy["pid"]]
        if not there:
            return
        copies = sorted(there, key=lambda copy: int(copy["generation"]))
        pid = int(copies[-1 if victim == "new instance" else 0]["pid"])
        if victim == "worker":
            pid = self._chance.choice(list(tree_pids(pid)))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not runs(pid), f"the end of {pid}", 30)


@pytest.fixture(params=STORES)
def database(request: pytest.FixtureRequest) -> Iterator[PostgresServer | None]:
    """Of the server; None: a file of its own."""
    if request.param == "sqlite":
        yield None
        return
    made = PostgresServer()
    try:
        yield made.start()
    finally:
        made.remove()


def test_each_rollout_ends_at_one_model_whoever_is_killed(
    tmp_path: Path, database: PostgresServer | None
) -> None:
    chance = random.Random(7)
    ends: Counter[str] = Counter()
    victims = STORES["sqlite" if database is None else "postgresql"]
    flags = () if database is None else ("--database", database.url)
    with up(tmp_path, *flags) as server:
        for name in MODELS:
            python_model(tmp_path / name, MODEL.replace("NAME", name))
            server.prepare(name, tmp_path / name)
        client = server.client("sagemaker")
        client.create_endpoint(EndpointName="shop", EndpointConfigName=MODELS[0])
        serving = server.wait_in_service("shop")["EndpointConfigName"]
        nemesis = RolloutNemesis(server, chance, database)
        with ShopCallers(server) as callers:
            for number in range(KILLS):
                wanted = MODELS[1 - MODELS.index(serving)]
                client.update_endpoint(
                    EndpointName="shop", EndpointConfigName=wanted, DeploymentConfig=policy(chance)
                )
                nemesis.strike(victims[number % len(victims)])
                wait_until(lambda: not nemesis.under_way(), "the rollout's end", 120)
                serving = server.wait_in_service("shop")["EndpointConfigName"]
                ends["new" if serving == wanted else "old"] += 1
                told = {json.loads(server.post("/endpoints/shop/invocations", b"1")[1])["by"]}
                assert told == {serving}
        answered = callers.by.total()
        print(f"{KILLS} kills, {dict(nemesis.killed)}: {dict(ends)}; {answered} calls answered")
        assert callers.wrong == []
        assert set(callers.by) <= set(MODELS)
        wait_until(lambda: len(server.copies("shop")) == 1, "one copy", 60)
