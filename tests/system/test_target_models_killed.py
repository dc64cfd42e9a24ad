"""Asynchronous requests for target models while the processes that load them are killed: all of
them are answered, and none has a failure.

Each kill hits a load that is under way; none hits a third load of one model in a row.
`LOAD_KILLS=20` is the whole of it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.kit.asynchronous import AsyncSite
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.python_models import python_model
from tests.kit.servers import Server

KILLS = int(os.environ.get("LOAD_KILLS", "4"))
MODELS = max(2, KILLS // 2 + 1)
REQUESTS_EACH = 5

pytestmark = [pytest.mark.system, pytest.mark.timeout(180 + 20 * KILLS)]

SLOW = """
import time
def model_fn(model_dir):
    time.sleep(2)
    return 1
def predict_fn(data, model):
    return {"number": data["number"]}
"""


def names() -> list[str]:
    return [f"m{number}" for number in range(MODELS)]


def loading(server: Server) -> set[str]:
    rows = server.get("/admin/endpoints/many/models?limit=1000")["models"]
    return {row["model"] for row in rows if row["state"] == "loading"}


def kill_a_load(server: Server, kills: Counter[str]) -> None:
    """The worker of models that are being loaded, and were not killed twice."""

    def victim() -> tuple[int, set[str]] | None:
        on_their_way = loading(server)
        [copy] = server.copies("many")
        told = server.get(f"/admin/endpoints/many/copies/{copy['copy']}")
        # There are none where its instance, or the copy, has only just begun.
        for worker in told.get("workers", {}).get("workers", {}).values():
            here = on_their_way.intersection(worker["models"])
            if here and worker["pid"] and all(kills[model] < 2 for model in here):
                return int(worker["pid"]), here
        return None

    wait_until(victim, "a load to kill", 120)
    time.sleep(random.random())  # where in the load it strikes
    pid, models = wait_until(victim, "a load to kill", 120)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not alive(pid), "its end", 30)
    kills.update(models)


def test_no_kill_while_a_model_is_loaded_costs_a_request(tmp_path: Path) -> None:
    prefix = tmp_path / "models"
    for name in names():
        python_model(prefix / name, SLOW)
    server = Server(tmp_path / "state").start()
    try:
        site = AsyncSite(server, tmp_path)
        server.client("sagemaker").create_model(
            ModelName="many",
            PrimaryContainer={"ModelDataUrl": f"{prefix.as_uri()}/", "Mode": "MultiModel"},
        )
        site.endpoint("many", model="many")
        asked = {f"{name}-{number}.json" for name in names() for number in range(REQUESTS_EACH)}
        for file in sorted(asked):
            name, _, number = file.removesuffix(".json").partition("-")
            body = {"number": int(number)}
            assert site.ask("many", body, file, **{"Target-Model": name})
        kills: Counter[str] = Counter()
        for _ in range(KILLS):
            kill_a_load(server, kills)

        def all_answered() -> bool:
            assert site.failures() == {}, "kills are nobody's failure"
            return set(site.answers()) == asked

        wait_until(all_answered, "all that was accepted", 180)
        print(f"{len(asked)} answered, killed {dict(kills)}", flush=True)
        for file, answer in site.answers().items():
            assert json.loads(answer) == {"number": int(file[:-5].partition("-")[2])}
    finally:
        server.stop()
