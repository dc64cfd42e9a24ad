"""Ten times more load than an endpoint can carry: it answers what it can, and refuses at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.open_loop import open_loop
from tests.system.harness import Server, python_model

pytestmark = pytest.mark.system

#: Sleeping stands for a busy accelerator: the two cores stay free for the servers under test.
SLOW = """
import time

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    time.sleep(0.020)
    return body, content_type
"""
CAPACITY_RPS = 1 / 0.020
BATCHING = """
schema: 1
runtime: python
batching: {rows_max: 1, queue_rows_max: 8}
"""


def test_at_ten_times_capacity_goodput_holds_and_the_rest_is_refused_at_once(
    fresh_server: Server, tmp_path: Path
) -> None:
    """The two limits are the project's promise, not a benchmark: 90 % of the maximum, 50 ms.

    Every request is answered or refused in every flood. The limits must hold in one of eight: a
    machine that stands still for a moment spoils one flood, a server that is too slow all of them.
    """
    fresh_server.deploy("slow", python_model(tmp_path / "slow", SLOW, model_yaml=BATCHING))
    url = f"{fresh_server.url}/endpoints/slow/invocations"
    most = open_loop(url, ["[1.0]"], rate=2 * CAPACITY_RPS, seconds=4, connections=32)
    floods = []
    for seed in range(1, 9):
        flood = open_loop(
            url, ["[1.0]"], rate=10 * CAPACITY_RPS, seconds=6, connections=64, seed=seed
        )
        assert flood.failed == 0
        assert flood.refused > 0
        assert flood.answered + flood.refused == flood.sent
        if flood.rps >= 0.9 * most.rps and flood.refused_p99_ms < 50:
            return
        floods.append(flood)
    pytest.fail(f"beside {most}, none of {floods} kept both limits")
