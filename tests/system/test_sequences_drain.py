"""Copies that leave while sequences are open on them: an update, and a lower count of copies."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit import sequence_models as models
from tests.kit.polling import wait_until
from tests.kit.sequence_models import outputs_of, step, total_of
from tests.kit.servers import Server

pytestmark = pytest.mark.system


@pytest.fixture(params=["1", "2"], ids=["one-gateway", "two-gateways"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    started = Server(tmp_path / "state", "--gateways", request.param).start()
    yield started
    started.stop()


def ask(server: Server, *asked: Any) -> dict[str, Any]:
    status, answer = server.post("/v2/models/adds/infer", step(*asked))
    assert status == 200, answer
    told: dict[str, Any] = json.loads(answer)
    return told


def process(answer: dict[str, Any]) -> int:
    return int(outputs_of(answer)["seen"][0][3])


def workers(server: Server) -> set[int]:
    return {pid for copy in server.copies("adds") for pid in copy["worker_pids"]}


def test_open_sequences_go_on_where_they_are_until_they_end(server: Server, tmp_path: Path) -> None:
    """Through an update first, then through a scale-in."""
    folder = models.adding(tmp_path / "adds", rows_max=32, corrid="STRING")
    server.deploy("adds", folder)
    old = process(ask(server, 1, "kept", "("))
    ask(server, 5, "forgotten", "(")

    server.config("adds-2", ModelName="adds", InitialInstanceCount=2)
    server.client("sagemaker").update_endpoint(EndpointName="adds", EndpointConfigName="adds-2")
    wait_until(lambda: len(workers(server) - {old}) == 2, "the new copies", 60)
    wait_until(lambda: process(ask(server, 0, "new", "()")) != old, "new routes", 60)
    for turn in range(1, 20):
        answer = ask(server, 1, "kept")
        assert (total_of(answer), process(answer)) == (1 + turn, old)
    assert old in workers(server)
    ask(server, 1, "forgotten", ")")
    assert total_of(ask(server, 1, "kept", ")")) == 21
    wait_until(lambda: old not in workers(server), "the end of the old copy", 60)

    begun = {f"s{n}": process(ask(server, n, f"s{n}", "(")) for n in range(8)}
    # a gateway counts the sequences that came to it: two of them may each be one apart
    gateways = int(server.flags[server.flags.index("--gateways") + 1])
    assert Counter(begun.values()).most_common()[0][1] <= 3 + gateways, begun
    server.client("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="adds",
        DesiredWeightsAndCapacities=[{"VariantName": "all", "DesiredInstanceCount": 1}],
    )
    wait_until(lambda: copies_of_new_ones(server) == 1, "the copy that leaves", 60)
    for name, pid in begun.items():
        answer = ask(server, 1, name)
        assert (total_of(answer), process(answer)) == (int(name[1:]) + 1, pid)
    for name in begun:
        ask(server, 0, name, ")")
    wait_until(lambda: len(workers(server)) == 1, "one copy", 60)


def copies_of_new_ones(server: Server) -> int:
    """How many copies have eight sequences that begin now. (They end before this returns.)"""
    copies = {process(ask(server, 0, f"n{n}", "(")) for n in range(8)}
    for n in range(8):
        ask(server, 0, f"n{n}", ")")
    return len(copies)


def test_an_idle_sequence_holds_no_copy_up(server: Server, tmp_path: Path) -> None:
    server.deploy("adds", models.adding(tmp_path / "adds", idle_s=1.0))
    old = process(ask(server, 1, 5, "("))
    server.config("adds-2", ModelName="adds", InitialInstanceCount=1)
    server.client("sagemaker").update_endpoint(EndpointName="adds", EndpointConfigName="adds-2")
    wait_until(lambda: old not in workers(server), "the end of the old copy", 60)
    status, answer = server.post("/v2/models/adds/infer", step(1, 5))
    assert (status, b"Sequence 5 of model 'adds' is lost" in answer) == (400, True), answer
