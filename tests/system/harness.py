"""Real servers for system tests: `penstock up` as a process, called over its sockets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from tests.environments import python_of
from tools.free_port import free_port

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"

#: Servers have their instances on this fleet where the environment names one: the same tests hold
#: on a Ray cluster (`with_ray.py` makes one and runs them).
FLEET = os.environ.get("TESTS_FLEET", "")

KEYS = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}


def wait_until(condition: Callable[[], Any], *, seconds: float, what: str) -> Any:
    """Polls until `condition` gives something true; fails with `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {seconds} s")


class Server:
    """One `penstock up`, on ports and a state directory of its own."""

    def __init__(
        self,
        state_dir: Path,
        *flags: str,
        prefix: tuple[str, ...] = (),
        python: str = sys.executable,
    ) -> None:
        """`prefix`: a command that runs the server's, such as `prlimit`. `python`: the interpreter
        that it runs under.

        One process, as on a machine with few cores; PENSTOCK_LISTEN_GATEWAYS=2 runs tests with two
        gateways.
        """
        self.prefix = prefix
        if FLEET and "--fleet" not in flags:
            flags, python = (*flags, "--fleet", FLEET), str(python_of("ray"))
        self.python = python
        self.state_dir = state_dir
        self.flags = flags
        self.port, self.grpc_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = state_dir.parent / f"server-{self.port}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, word: str = "penstock ready") -> Server:
        """`word`: what it says once it is what it is to be."""
        argv = [
            *(*self.prefix, self.python, "-m", "penstock", "up", "--host", "127.0.0.1"),
            *("--port", str(self.port), "--grpc-port", str(self.grpc_port)),
            *("--state-dir", str(self.state_dir), *self.flags),
        ]
        offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                argv,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PENSTOCK_LISTEN_GATEWAYS": "1"} | os.environ,
            )
        try:
            wait_until(
                lambda: word in self.log(offset) or self.process.poll() is not None,
                seconds=90,  # idle it takes two; beside other work it was seen to take over 30
                what="the word ready",
            )
        except BaseException:
            self.kill()
            raise
        assert self.process.poll() is None, self.log(offset)
        return self

    def log(self, offset: int = 0) -> str:
        return self.log_path.read_bytes()[offset:].decode("utf-8", "replace")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def client(self, service: str, **options: Any) -> Any:
        config = Config(retries={"max_attempts": 1, "mode": "standard"}, read_timeout=60)
        return boto3.client(
            service, endpoint_url=self.url, **KEYS, **({"config": config} | options)
        )

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.loads(answer.read())

    def post(
        self, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body, whatever the status is."""
        request = urllib.request.Request(
            self.url + path,
            data=body,
            headers={"Content-Type": "application/json"} | (headers or {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def in_flight(self) -> int:
        """Requests in flight of all endpoints, those that wait for a copy included."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        rows = [line for line in lines if line.startswith("penstock_in_flight{")]
        return int(sum(float(row.rpartition(" ")[2]) for row in rows))

    def copies(self, endpoint: str) -> list[dict[str, Any]]:
        return [
            copy for copy in self.get("/admin/copies")["copies"] if copy["endpoint"] == endpoint
        ]

    def deploy(
        self, name: str, folder: Path, *, count: int = 1, instance_type: str = "ml.local.small"
    ) -> None:
        """Creates model, configuration and endpoint, all named `name`, and waits."""
        create(self, name, folder, count=count, instance_type=instance_type)
        self.wait_in_service(name)

    def wait_in_service(self, name: str, *, seconds: float = 60) -> dict[str, Any]:
        client = self.client("sagemaker")

        def settled() -> dict[str, Any] | None:
            described: dict[str, Any] = client.describe_endpoint(EndpointName=name)
            return described if described["EndpointStatus"] in {"InService", "Failed"} else None

        described = wait_until(settled, seconds=seconds, what=f"{name} in service")
        assert described["EndpointStatus"] == "InService", described.get("FailureReason")
        return dict(described)


def create(
    server: Server,
    name: str,
    folder: Path,
    *,
    count: int = 1,
    instance_type: str = "ml.local.small",
    endpoint: bool = True,
) -> None:
    client = server.client("sagemaker")
    client.create_model(ModelName=name, PrimaryContainer={"ModelDataUrl": folder.as_uri()})
    client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "VariantName": "all",
                "ModelName": name,
                "InstanceType": instance_type,
                "InitialInstanceCount": count,
            }
        ],
    )
    if endpoint:
        client.create_endpoint(EndpointName=name, EndpointConfigName=name)


def python_model(folder: Path, code: str, *, model_yaml: str = "") -> Path:
    """An artifact with `code/inference.py`; `model_yaml` adds batching and the like."""
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "inference.py").write_text(textwrap.dedent(code))
    if model_yaml:
        (folder / "model.yaml").write_text(textwrap.dedent(model_yaml))
    return folder


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def remove_all(server: Server) -> None:
    """Endpoints, their configurations, components and models; returns once no copy is left."""
    client = server.client("sagemaker")

    def nothing_left() -> bool:
        components = client.list_inference_components()["InferenceComponents"]
        for one in components:
            if one["InferenceComponentStatus"] != "Deleting":
                client.delete_inference_component(
                    InferenceComponentName=one["InferenceComponentName"]
                )
        endpoints = client.list_endpoints()["Endpoints"]
        for one in endpoints:
            if one["EndpointStatus"] != "Deleting":
                client.delete_endpoint(EndpointName=one["EndpointName"])
        return not (components or endpoints or server.get("/admin/copies")["copies"])

    wait_until(nothing_left, seconds=90, what="no endpoint and no copy")
    while configs := client.list_endpoint_configs()["EndpointConfigs"]:
        for one in configs:
            client.delete_endpoint_config(EndpointConfigName=one["EndpointConfigName"])
    while models := client.list_models()["Models"]:
        for one in models:
            client.delete_model(ModelName=one["ModelName"])
