"""The echo of four floats through the whole path, against three other servers and the bare loop.

Every server runs alone, the load generator on the same cores, in rounds that alternate between
them, so that a slow minute of the machine hits all alike. Ours runs with admission, routing, the
instance, the dynamic batcher and metrics on, authentication off. Ours and Triton run a Python
model, and the batch is formed the same way: whatever waits when the model is free.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import boto3

from bench import wrk
from bench.processes import free_port, peer_python, penstock_up, running, wait_answer
from bench.report import ROOT, finish, spread, versions

ROW = [1.0, 2.0, 3.0, 4.0]
BARE = json.dumps(ROW).encode()
OPEN_INFERENCE = json.dumps(
    {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": ROW}]}
).encode()
PEERS = Path(__file__).parent / "peers"
DEBIAN_PYTHON = "/usr/bin/python3.11"  # pytriton's stub is linked against Debian's libpython


@dataclass(frozen=True, slots=True)
class Server:
    """One way to answer the echo: `start` yields the URL to ask."""

    name: str
    body: bytes
    start: Callable[[], contextlib.AbstractContextManager[str]]


def deploy(base_url: str, name: str, folder: Path) -> None:
    """Creates model, configuration and endpoint by boto3 and waits until it is in service."""
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    client = boto3.client("sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys)
    client.create_model(ModelName=name, PrimaryContainer={"ModelDataUrl": folder.as_uri()})
    client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "VariantName": "all",
                "ModelName": name,
                "InstanceType": "ml.local.small",
                "InitialInstanceCount": 1,
            }
        ],
    )
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})


@contextlib.contextmanager
def ours(artifact: Path) -> Iterator[str]:
    with penstock_up() as base_url:
        deploy(base_url, "echo", artifact)
        yield f"{base_url}/endpoints/echo/invocations"


@contextlib.contextmanager
def ours_native() -> Iterator[str]:
    """The same rows through ONNX: decoded to tensors, run, and encoded again."""
    with tempfile.TemporaryDirectory() as folder:
        script = ROOT / "examples" / "echo" / "onnx_identity.py"
        subprocess.run([sys.executable, str(script), folder], check=True, capture_output=True)
        with ours(Path(folder)) as url:
            yield url


@contextlib.contextmanager
def peer(argv: list[str], url: str) -> Iterator[str]:
    with running(argv):
        yield url


def bare_loop() -> contextlib.AbstractContextManager[str]:
    port = free_port()
    argv = [sys.executable, str(PEERS / "bare_loop.py"), str(port)]
    return peer(argv, f"http://127.0.0.1:{port}/")


def mosec() -> contextlib.AbstractContextManager[str]:
    port = free_port()
    argv = [str(peer_python("mosec", "mosec")), str(PEERS / "mosec_echo.py"), "--port", str(port)]
    return peer(argv, f"http://127.0.0.1:{port}/inference")


def triton() -> contextlib.AbstractContextManager[str]:
    port = free_port()
    python = peer_python("pytriton", "nvidia-pytriton", "setuptools<81", python=DEBIAN_PYTHON)
    argv = [str(python), str(PEERS / "triton_echo.py"), str(port)]
    return peer(argv, f"http://127.0.0.1:{port}/v2/models/echo/infer")


def ray_serve() -> contextlib.AbstractContextManager[str]:
    port = free_port()
    argv = [
        str(peer_python("ray", "ray[serve]")),
        str(PEERS / "ray_serve_echo.py"),
        str(port),
    ]
    return peer(argv, f"http://127.0.0.1:{port}/")


SERVERS = (
    Server("ours", BARE, lambda: ours(ROOT / "examples" / "echo" / "python")),
    Server("ours_native", json.dumps([ROW]).encode(), ours_native),
    Server("limit", BARE, bare_loop),
    Server("mosec", BARE, mosec),
    Server("triton", OPEN_INFERENCE, triton),
    Server("ray_serve", BARE, ray_serve),
)


def echoed(answer: bytes) -> list[float]:
    """The four floats in any of the servers' answers."""
    value = json.loads(answer)
    if isinstance(value, dict):
        value = value["outputs"][0]["data"] if "outputs" in value else value["predictions"][0]
    return [float(number) for number in value]


def measure(server: Server, *, connections: int, seconds: float) -> wrk.Load:
    """Starts the server, sees that it answers right, warms it and loads it."""
    with server.start() as url:
        answer = echoed(wait_answer(url, server.body, timeout_s=90.0))
        if answer != ROW:
            raise RuntimeError(f"{server.name} answered {answer} for {ROW}")
        wrk.closed_loop(url, server.body, connections=connections, seconds=1.0)
        load = wrk.closed_loop(url, server.body, connections=connections, seconds=seconds)
    if load.failed:
        raise RuntimeError(f"{server.name} failed {load.failed} of {load.requests} requests")
    return load


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench gateway")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--only", nargs="*", default=[server.name for server in SERVERS])
    options = parser.parse_args(arguments)
    samples: dict[str, list[wrk.Load]] = {}
    missing: dict[str, str] = {}
    for turn in range(options.rounds):
        for server in SERVERS:
            if server.name not in options.only or server.name in missing:
                continue
            try:
                load = measure(server, connections=options.connections, seconds=options.seconds)
            except (RuntimeError, TimeoutError) as error:
                if server.name.startswith("ours"):
                    raise
                missing[server.name] = f"not measured: {error}"
                print(f"{server.name:12} {missing[server.name]}", flush=True)
                continue
            samples.setdefault(server.name, []).append(load)
            print(
                f"round {turn + 1} {server.name:12} {load.rps:9,.0f} req/s"
                f"   P50 {load.p50_ms:7.2f} ms   P99 {load.p99_ms:7.2f} ms",
                flush=True,
            )
    report(samples, missing, options)


def report(
    samples: dict[str, list[wrk.Load]], missing: dict[str, str], options: argparse.Namespace
) -> None:
    """Ratios are of the same round, then their median."""
    mine = samples["ours"]

    def against(name: str) -> float | str:
        if name not in samples:
            return missing.get(name, "not measured")
        pairs = zip(mine, samples[name], strict=False)
        return round(statistics.median(a.rps / b.rps for a, b in pairs), 3)

    finish(
        "gateway",
        {
            "echo_rps": round(statistics.median(load.rps for load in mine)),
            "vs_triton": against("triton"),
            "vs_mosec": against("mosec"),
            "vs_ray_serve": against("ray_serve"),
            "of_limit": against("limit"),
            "p50_ms": round(statistics.median(load.p50_ms for load in mine), 3),
            "p99_ms": round(statistics.median(load.p99_ms for load in mine), 3),
        },
        rps={name: spread([load.rps for load in loads]) for name, loads in samples.items()},
        p99_ms_all={
            name: spread([load.p99_ms for load in loads]) for name, loads in samples.items()
        },
        connections=options.connections,
        seconds=options.seconds,
        versions=versions("penstock", "uvloop", "httptools", "orjson", "numpy", "openvino"),
    )
