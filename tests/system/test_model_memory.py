"""Twice as many models as fit are called, again and again: memory stays within its budget as the
operating system measures it, nobody is refused, and no model is thrown out just after it came."""

from __future__ import annotations

import collections
import http.client
import json
import random
import re
import shutil
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.kit.multi_model import create_multi_model
from tests.kit.repeating import Repeating
from tests.kit.servers import EXAMPLES, Server

pytestmark = pytest.mark.system

MODELS = 24
SECONDS = 20.0
#: Of the instance's 1 GiB: about half of the models fit beside its process.
SHARE = 0.25
CALLERS = 4
#: The least that a minimum residency is (`core/residency/evictor.py`), however fast its loads are.
STAYS_S_MIN = 0.5


def made(prefix: Path) -> list[str]:
    """Encoders of one shape and different weights, of some 15 MB of memory each."""
    sys.path.insert(0, str(EXAMPLES / "support"))
    try:
        import embedder
    finally:
        sys.path.pop(0)
    names = [f"customer-{number:02}" for number in range(MODELS)]
    for number, name in enumerate(names):
        folder = prefix / name
        folder.mkdir(parents=True)
        shutil.copyfile(
            EXAMPLES / "query_intent" / "artifact" / "tokenizer.json", folder / "tokenizer.json"
        )
        shape = embedder.Shape(layers=2, width=256, heads=4)
        embedder.write(folder, customer=number, name=name, seed=0, shape=shape)
    return names


class HighestMemory(Repeating):
    """Looks at what a process tree takes, again and again."""

    def __init__(self, pid: int) -> None:
        super().__init__(pause_s=0.05)
        self.highest_bytes = 0
        self._pid = pid

    def step(self) -> None:
        rollup = Path(f"/proc/{self._pid}/smaps_rollup").read_text()
        [line] = [line for line in rollup.splitlines() if line.startswith("Pss:")]
        self.highest_bytes = max(self.highest_bytes, int(line.split()[1]) * 1024)


def thrown_out_for_memory(server: Server) -> collections.Counter[str]:
    """How often each model went because others had grown: the budget goes before its stay."""
    logs = (file.read_text() for file in (server.state_dir / "logs").rglob("*.log"))
    return collections.Counter(re.findall(r"model (\S+) unloaded: over-budget", "".join(logs)))


def too_short(story: list[dict[str, Any]]) -> list[float]:
    """How long the model stayed where that was too short before it went for another one, in s."""
    stays = [
        before["ago_s"] - after["ago_s"]
        for before, after in pairwise(story)
        if before["what"] == "loaded" and after["why"] == "least-recently-used"
    ]
    return [stay for stay in stays if stay < STAYS_S_MIN]


def test_twice_the_memory_of_models_is_called(fresh_server: Server, tmp_path: Path) -> None:
    names = made(tmp_path / "models")
    create_multi_model(
        fresh_server,
        "many",
        tmp_path / "models",
        environment={"PENSTOCK_MODEL_CACHE_SHARE": str(SHARE)},
    )
    [copy] = fresh_server.copies("many")
    budget_bytes = SHARE * copy["memory_bytes_max"]
    statuses: collections.Counter[int] = collections.Counter()
    wrong: list[str] = []
    until = time.monotonic() + SECONDS

    def call(seed: int) -> None:
        rng = random.Random(seed)
        weights = [1 / (rank + 1) for rank in range(MODELS)]
        connection = http.client.HTTPConnection("127.0.0.1", fresh_server.port, timeout=60)
        while time.monotonic() < until:
            [name] = rng.choices(names, weights)
            headers = {
                "Content-Type": "application/json",
                "X-Amzn-SageMaker-Target-Model": name,
            }
            body = json.dumps({"inputs": "where is my order"})
            connection.request("POST", "/endpoints/many/invocations", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            statuses[answer.status] += 1
            if answer.status != 200:
                wrong.append(text.decode())

    with HighestMemory(copy["pid"]) as memory:
        callers = [threading.Thread(target=call, args=(seed,)) for seed in range(CALLERS)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert set(statuses) == {200}, wrong[:3]
    [copy] = fresh_server.copies("many")
    seen: dict[str, Any] = copy["models"]
    assert seen["models_loaded"] < MODELS, "all models fit: nothing was tried"
    assert memory.highest_bytes <= budget_bytes, (memory.highest_bytes, budget_bytes)
    stories = {name: fresh_server.get(f"/admin/endpoints/many/models/{name}") for name in names}
    residency = {name: story["hosts"][0]["residency"] for name, story in stories.items()}
    short = {name: stays for name, one in residency.items() if (stays := too_short(one["story"]))}
    assert not short, short
    loads = {name: one["loads"] for name, one in residency.items()}
    grown = thrown_out_for_memory(fresh_server)
    assert sum(grown.values()) <= sum(loads.values()) / 4, (loads, grown)
