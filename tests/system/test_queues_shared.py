"""A queue in front of a busy copy: it is seen, and it does not stay there when a copy comes up.

Answers wait at a gate, so who has begun and who waits is a fact.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kit.gate import Gate
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server

pytestmark = pytest.mark.system

REQUESTS = 12
MODEL = """
import os
import socket

def model_fn(model_dir):
    return None

def transform_fn(model, body, content_type, accept):
    with socket.create_connection(("127.0.0.1", {port})) as gate:
        gate.sendall(b"computing\\n")
        gate.recv(1)
    return str(os.getpid()), content_type
"""


def outstanding(server: Server) -> list[int]:
    return sorted(copy["outstanding"] for copy in server.copies("slow"))


def test_a_queue_is_counted_and_shared_with_the_copy_that_comes_up(
    empty_server: Server, tmp_path: Path
) -> None:
    """Ray Serve 22601: what waits in front of a busy copy is in flight, and so seen by whoever
    scales. 32652: a new copy serves half of it, and does not stand idle beside it."""
    server = empty_server
    with ThreadPoolExecutor(REQUESTS) as clients, Gate() as gate:
        code = MODEL.replace("{port}", str(gate.port))
        server.deploy("slow", python_model(tmp_path / "slow", code))
        gate.shut()
        asked = [
            clients.submit(server.post, "/endpoints/slow/invocations", b"{}")
            for _ in range(REQUESTS)
        ]
        wait_until(lambda: outstanding(server) == [REQUESTS], "a queue", 60)
        wait_until(lambda: server.in_flight("slow") == REQUESTS, "all in the metrics", 60)
        server.client("sagemaker").update_endpoint_weights_and_capacities(
            EndpointName="slow",
            DesiredWeightsAndCapacities=[{"VariantName": "all", "DesiredInstanceCount": 2}],
        )
        server.wait_in_service("slow")
        half = [REQUESTS // 2] * 2
        wait_until(lambda: outstanding(server) == half, "a shared queue", 60)
        wait_until(lambda: len(gate.waiting) == 2, "both copies compute", 60)
        wait_until(lambda: server.in_flight("slow") == REQUESTS, "all in the metrics", 60)
        gate.open()
        answers = [each.result(60) for each in asked]
    assert [status for status, _ in answers] == [200] * REQUESTS
    assert sorted(Counter(body for _, body in answers).values()) == half
