"""Load as perf_analyzer makes it: each answer is the right one, and all of them are counted."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.kit import triton_files as files
from tests.kit.environments import python_of
from tests.kit.polling import wait_until
from tests.kit.servers import ROOT, up

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

COUNT = 150
CONCURRENCIES = (1, 2, 4, 8, 16, 32)
DOUBLES = """
class TritonPythonModel:
    def execute(self, requests):
        return [answer(y=given(request, "x") * 2) for request in requests]
"""


def test_every_answer_is_right_at_any_concurrency(tmp_path: Path) -> None:
    files.python(
        tmp_path / "doubles", DOUBLES,
        inputs=[("x", "FP32", [4])], outputs=[("y", "FP32", [4])], rows_max=8,
        more="dynamic_batching { max_queue_delay_microseconds: 500 }\ninstance_group { count: 2 }",
    )  # fmt: skip
    with up(tmp_path) as server:
        server.deploy("doubles", tmp_path / "doubles")
        script = ROOT / "tests" / "system" / "scripts" / "triton_load.py"
        addresses = [f"127.0.0.1:{server.port}", f"127.0.0.1:{server.grpc_port}"]
        asked = ["doubles", str(COUNT), ",".join(map(str, CONCURRENCIES))]
        ended = subprocess.run(
            [str(python_of("client-tritonclient")), str(script), *addresses, *asked],
            stdout=subprocess.PIPE, text=True, check=True, timeout=240,
        )  # fmt: skip
        told = [json.loads(line) for line in ended.stdout.splitlines()]
        assert [one["concurrency"] for one in told] == [c for c in CONCURRENCIES for _ in range(2)]
        assert [one["outcomes"] for one in told] == [{"right": COUNT}] * len(told)

        def counted() -> bool:
            """The instance reports what it has counted from time to time."""
            [told_of] = server.get("/v2/models/doubles/stats")["model_stats"]
            return int(told_of["inference_stats"]["success"]["count"]) == COUNT * len(told)

        wait_until(counted, "all are counted", 30)
        assert server.in_flight() == 0
