"""Hundreds of interleaved sequences over two copies whose processes are killed: each answer is the
sum of its own sequence, or its caller is told that the sequence is lost.

`SEQUENCES=10000` is more of it, in all combinations of settings, and so is `KILLS=100`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kit import sequence_models as models
from tests.kit.environments import python_of
from tests.kit.polling import wait_until
from tests.kit.servers import ROOT, Server

SEQUENCES = int(os.environ.get("SEQUENCES", "200"))
#: Its configuration, and the most rows of a batch.
STRATEGIES = {"oldest": ("oldest { max_candidate_sequences: 64 }", 8), "direct": ("direct { }", 20)}
#: Strategies and numbers of gateways.
VARIANTS = [("oldest", 1), ("direct", 2)]
if "SEQUENCES" in os.environ:
    VARIANTS += [("direct", 1), ("oldest", 2)]
THREADS = 4
SEED = int(os.environ.get("SEED", "29"))
KILLS = int(os.environ.get("KILLS", "3"))
BETWEEN_KILLS = 200  #: answers

pytestmark = [pytest.mark.system, pytest.mark.timeout(300 + SEQUENCES)]

#: What a caller may be told beside an answer.
CLEAR = {"answered", "lost", "not-started"}


def tour(server: Server, name: str, kill: Callable[[int], None]) -> dict[str, Any]:
    """What came of all sequences. `kill` is called with the number of the kill, evenly."""
    script = ROOT / "tests" / "system" / "scripts" / "triton_sequences.py"
    asked = [name, SEQUENCES, THREADS, SEED]
    addresses = [f"127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}"]
    command = [str(python_of("client-tritonclient")), str(script), *addresses, *map(str, asked)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stdin is not None
        answered = kills = 0
        last: dict[str, Any] = {}
        for line in running.stdout:
            last = json.loads(line)
            if kills < KILLS and last.get("answered", 0) >= answered + BETWEEN_KILLS:
                kill(kills)
                kills += 1
                answered = last["answered"]
                if kills == KILLS:
                    running.stdin.close()
    assert running.returncode == 0
    return last


def both(server: Server, *, without: set[int]) -> list[dict[str, Any]] | None:
    """The two copies, once the processes in `without` were replaced. A copy is said to be ready
    for a moment after its worker was killed, with that worker or with none; with a second kill in
    that moment a request may have ended two workers in a row, and is rightly blamed for that."""
    ready = [copy for copy in server.ready_copies("adds") if copy["worker_pids"]]
    pids = {pid for copy in ready for pid in (copy["pid"], *copy["worker_pids"])}
    return ready if len(ready) == 2 and pids.isdisjoint(without) else None


@pytest.mark.parametrize(("batching", "gateways"), VARIANTS)
def test_no_kill_mixes_up_a_state(tmp_path: Path, batching: str, gateways: int) -> None:
    strategy, rows_max = STRATEGIES[batching]
    server = Server(tmp_path / "state", "--gateways", str(gateways)).start()
    try:
        folder = models.adding(
            tmp_path / "adds", batching=strategy, rows_max=rows_max, corrid="STRING"
        )
        server.deploy("adds", folder, count=2)

        killed: set[int] = set()

        def kill(number: int) -> None:
            """Workers and whole instances, each in turn, while another copy is well."""
            copies = wait_until(lambda: both(server, without=killed), "two copies", 90)
            copy = copies[number % 2]
            pids = copy["worker_pids"] if number % 3 else [copy["pid"]]
            killed.update(pids)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

        told = tour(server, "adds", kill)
        print(json.dumps(told))
        assert told["wrong_count"] == 0, told["wrong"]
        outcomes = told["outcomes"]
        assert outcomes["answered"] >= 3 * SEQUENCES
        assert outcomes.get("lost", 0) > 0
        assert set(outcomes) <= CLEAR, outcomes
    finally:
        server.stop()
