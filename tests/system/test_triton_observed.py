"""A real server with two gateways, as Triton's clients and dashboards see it."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.kit import triton_files
from tests.kit.environments import python_of
from tests.kit.polling import wait_until
from tests.kit.servers import Server, up

pytestmark = [pytest.mark.system, pytest.mark.integration]

SETTINGS = """
[listen]
forward_headers = ["x-tenant"]

[control]
response_cache_bytes_max = 1000000

[telemetry]
triton_metrics = true
"""
#: Answers with the number of its runs and its request's parameters.
COUNTER = """
class TritonPythonModel:
    def initialize(self, args):
        self.runs = 0

    def execute(self, requests):
        made = []
        for request in requests:
            self.runs += 1
            said = f"{self.runs} {request.parameters()}"
            made.append(answer(said=np.array([[said]] * len(given(request, "x")), object)))
        return made
"""
#: Each door asks twice with a header and twice without; prints what was said.
CLIENT = """
import json, sys
import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

said = []
for module, address in zip((triton_http, triton_grpc), sys.argv[1:]):
    client = module.InferenceServerClient(address)
    tensor = module.InferInput("x", (1, 1), "FP32")
    tensor.set_data_from_numpy(np.array([[7.0]], np.float32))
    for headers in (None, None, {"x-tenant": "blue"}, {"x-tenant": "blue"}):
        result = client.infer("counter", [tensor], headers=headers)
        said.append(result.as_numpy("said").ravel()[0].decode())
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "penstock.toml").write_text(SETTINGS)
        model = triton_files.python(
            folder / "repository" / "counter", COUNTER, more="response_cache { enable: true }",
            inputs=[("x", "FP32", [1])], outputs=[("said", "STRING", [1])],
        )  # fmt: skip
        settings = str(folder / "penstock.toml")
        with up(folder, "--gateways", "2", "--config", settings) as server:
            server.deploy("counter", model.parent)
            yield server


def ask(server: Server, *x: float, **headers: str) -> str:
    tensor = {"name": "x", "datatype": "FP32", "shape": [len(x), 1], "data": x}
    body = json.dumps({"inputs": [tensor]}).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, answer = server.post("/v2/models/counter/infer", body, named)
    assert status == 200, answer
    return str(json.loads(answer)["outputs"][0]["data"][0])


def page(server: Server) -> dict[str, float]:
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(server.page())
        for sample in family.samples
        if sample.name.startswith("nv_") and sample.labels["model"] == "counter"
        and sample.labels.get("reason", "BACKEND") == "BACKEND"
    }  # fmt: skip


def stats(server: Server) -> dict[str, Any]:
    [row] = server.get("/v2/models/counter/stats")["model_stats"]
    return dict(row)


def test_equal_requests_are_computed_once_and_headers_make_them_different(site: Server) -> None:
    assert [ask(site, 1.0) for _ in range(6)] == ["1 {}"] * 6
    assert ask(site, 1.0, X_Tenant="red", X_Other="x") == '2 {"X-Tenant": "red"}'
    assert ask(site, 1.0, 2.0) == "3 {}", "a batch of two rows"
    assert site.post("/v2/models/counter/infer", b"{}")[0] == 400
    wanted = {"cache_hit": 5, "cache_miss": 3, "success": 8, "fail": 1, "compute_infer": 3}

    def counted() -> bool:
        found = stats(site)["inference_stats"]
        return {name: found[name]["count"] for name in wanted} == wanted

    wait_until(counted, "the statistics", 40)
    row = stats(site)
    assert (row["inference_count"], row["execution_count"]) == (4, 3)
    assert [(one["batch_size"], one["compute_infer"]["count"]) for one in row["batch_stats"]] == [
        (1, 2), (2, 1),
    ]  # fmt: skip
    shown = page(site)
    expected = {
        "nv_inference_request_success": 8,
        "nv_inference_request_failure": 1,
        "nv_inference_count": 4,
        "nv_inference_exec_count": 3,
        "nv_inference_pending_request_count": 0,
        "nv_cache_num_hits_per_model": 5,
        "nv_cache_num_misses_per_model": 3,
    }
    assert {name: shown[name] for name in expected} == expected
    assert shown["nv_inference_compute_infer_duration_us"] > 0


def test_tritonclient_shares_the_cache_over_both_doors(site: Server) -> None:
    addresses = f"127.0.0.1:{site.port}", f"127.0.0.1:{site.grpc_port}"
    done = subprocess.run(
        [str(python_of("client-tritonclient")), "-c", CLIENT, *addresses],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert said[:4] == said[4:]
    plain, tenant = said[0], said[2]
    assert said[:4] == [plain, plain, tenant, tenant]
    assert plain.endswith(" {}")
    assert tenant.endswith(' {"x-tenant": "blue"}')


def test_the_level_of_the_log_is_set_in_all_processes_that_serve(site: Server) -> None:
    assert site.get("/v2/logging")["log_info"] is True
    status, answer = site.post("/v2/logging", b'{"log_info": false}')
    assert (status, json.loads(answer)["log_info"]) == (200, False)

    def levels() -> set[bool]:
        """Each of these is a connection of its own, so both gateways are asked."""
        return {site.get("/v2/logging")["log_info"] for _ in range(20)}

    wait_until(lambda: levels() == {False}, "every gateway is told", 30)
    status, answer = site.post("/v2/logging", b'{"log_info": true}')
    assert (status, json.loads(answer)["log_info"]) == (200, True)
    status, answer = site.post("/v2/trace/setting", b'{"trace_level": ["TENSORS"]}')
    assert (status, b"telemetry.trace_share" in answer) == (501, True)
