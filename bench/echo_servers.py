"""The servers that bench/gateway.py compares, the settings that each is tried with, and the doors.

A door is a way to ask: four floats in plain JSON, or the same four as a tensor of the Open
Inference Protocol, in JSON or in binary. Two servers are compared at the same door only. Ours runs
as it is shipped; of every other server those settings are tried that its own documentation names
for throughput, and it is compared at the best of them.
"""

from __future__ import annotations

import contextlib
import json
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.environments import make
from tools.free_port import free_port

from bench.deployment import deploy
from bench.processes import JSON_HEADERS, penstock_up, running
from bench.report import ROOT, versions_in

ROW = [1.0, 2.0, 3.0, 4.0]
PEERS = Path(__file__).parent / "peers"
_BINARY = struct.pack("<4f", *ROW)
_BINARY_HEAD = json.dumps(
    {
        "inputs": [
            {
                "name": "x",
                "shape": [1, 4],
                "datatype": "FP32",
                "parameters": {"binary_data_size": len(_BINARY)},
            }
        ],
        "parameters": {"binary_data_output": True},
    }
).encode()
_TRITON_CONFIG = """\
backend: "python"
max_batch_size: 64
input { name: "x" data_type: TYPE_FP32 dims: [ 4 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] }
dynamic_batching { }
"""


@dataclass(frozen=True, slots=True)
class Door:
    """How the four floats are asked for. `read` finds them in the answer's body."""

    body: bytes
    read: Callable[[bytes], list[float]]
    headers: Mapping[str, str] = field(default_factory=lambda: dict(JSON_HEADERS))


def _of_tensor(answer: bytes) -> list[float]:
    return [float(number) for number in json.loads(answer)["outputs"][0]["data"]]


def _of_json(answer: bytes) -> list[float]:
    value = json.loads(answer)
    row = value["predictions"][0] if isinstance(value, dict) else value
    return [float(number) for number in row]


JSON_ROW = Door(json.dumps(ROW).encode(), _of_json)
JSON_ROWS = Door(json.dumps([ROW]).encode(), _of_json)
TENSOR = Door(
    json.dumps(
        {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": ROW}]}
    ).encode(),
    _of_tensor,
)
BINARY_TENSOR = Door(
    _BINARY_HEAD + _BINARY,
    lambda answer: list(struct.unpack("<4f", answer[-len(_BINARY) :])),
    {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(_BINARY_HEAD)),
    },
)
DOORS = {"json": JSON_ROW, "tensor": TENSOR, "binary": BINARY_TENSOR, "onnx": JSON_ROWS}


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to start a server: what its environment says beyond ours."""

    name: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Server:
    """`start` yields the URL of each of its doors."""

    name: str
    settings: tuple[Setting, ...]
    start: Callable[[Setting], contextlib.AbstractContextManager[dict[str, str]]]
    environment: str = ""  #: of tools/environments.py; empty: ours
    packages: tuple[str, ...] = ()  #: whose versions are told


AS_SHIPPED = (Setting("as shipped", {}),)
MOSEC_SETTINGS = tuple(
    Setting(
        f"{workers} worker{'s' * (workers > 1)}, batch {rows}",
        {"WORKERS": str(workers), "ROWS": str(rows), "WAIT_MS": "1"},
    )
    for workers in (1, 2)
    for rows in (1, 8, 32, 128)
)
TRITON_SETTINGS = tuple(
    Setting(
        f"batch {rows}, wait {wait_us} us, {instances} instance{'s' * (instances > 1)}",
        {"ROWS": str(rows), "WAIT_US": str(wait_us), "INSTANCES": str(instances)},
    )
    for rows, wait_us, instances in (
        (1, 0, 1), (32, 0, 1), (128, 0, 1), (128, 500, 1), (128, 0, 2),
    )
)  # fmt: skip
#: Ray's own switch for throughput is on in all; "direct": the replica answers HTTP itself, without
#: the proxy. That is one replica: a balancer before several (Ray brings HAProxy) would listen on
#: all interfaces of the machine, and costs what it takes of the two cores.
RAY_SETTINGS = tuple(
    Setting(
        name,
        {
            "REPLICAS": str(replicas), "ROWS": str(rows), "ONGOING": str(ongoing),
            "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
            "RAY_SERVE_ENABLE_DIRECT_INGRESS": "1" if "direct" in name else "0",
        },
    )
    for name, replicas, rows, ongoing in (
        ("direct", 1, 0, 1024),
        ("direct, batch 32", 1, 32, 1024),
        ("direct, 64 ongoing", 1, 0, 64),
        ("proxy", 1, 0, 1024),
        ("proxy, 2 replicas", 2, 0, 1024),
        ("proxy, batch 32", 1, 32, 1024),
    )
)  # fmt: skip


@contextlib.contextmanager
def ours(_: Setting) -> Iterator[dict[str, str]]:
    """Three endpoints: a Python model of SageMaker's functions, one of Triton's class, and ONNX."""
    with penstock_up() as base_url, tempfile.TemporaryDirectory() as parent:
        native, tensors = Path(parent, "native"), Path(parent, "tensors")
        script = ROOT / "examples" / "echo" / "onnx_identity.py"
        subprocess.run([sys.executable, str(script), str(native)], check=True, capture_output=True)
        (tensors / "1").mkdir(parents=True)
        (tensors / "1" / "model.py").write_text((PEERS / "echo_tensors.py").read_text())
        (tensors / "config.pbtxt").write_text(_TRITON_CONFIG)
        deploy(base_url, "echo", ROOT / "examples" / "echo" / "python")
        deploy(base_url, "tensors", tensors)
        deploy(base_url, "native", native)
        infer = f"{base_url}/v2/models/tensors/infer"
        yield {
            "json": f"{base_url}/endpoints/echo/invocations",
            "tensor": infer,
            "binary": infer,
            "onnx": f"{base_url}/endpoints/native/invocations",
        }


@contextlib.contextmanager
def bare_loop(_: Setting) -> Iterator[dict[str, str]]:
    port = free_port()
    with running([sys.executable, str(PEERS / "bare_loop.py"), str(port)]):
        yield {"json": f"http://127.0.0.1:{port}/"}


@contextlib.contextmanager
def mosec(setting: Setting) -> Iterator[dict[str, str]]:
    port = free_port()
    argv = [str(make("mosec")), str(PEERS / "mosec_echo.py")]
    argv += ["--address", "127.0.0.1", "--port", str(port), "--log-level", "warning"]
    with running(argv, env=dict(setting.environment)):
        yield {"json": f"http://127.0.0.1:{port}/inference"}


@contextlib.contextmanager
def triton(setting: Setting) -> Iterator[dict[str, str]]:
    port, grpc_port = free_port(), free_port()
    argv = [str(make("pytriton")), str(PEERS / "triton_echo.py"), str(port), str(grpc_port)]
    with running(argv, env=dict(setting.environment)):
        infer = f"http://127.0.0.1:{port}/v2/models/echo/infer"
        yield {"tensor": infer, "binary": infer}


@contextlib.contextmanager
def ray_serve(setting: Setting) -> Iterator[dict[str, str]]:
    proxy_port, own_port = free_port(), free_port()
    environment = {
        **setting.environment,
        "RAY_SERVE_DEFAULT_HTTP_HOST": "127.0.0.1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(own_port),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(own_port + 9),
    }
    argv = [str(make("ray")), str(PEERS / "ray_serve_echo.py"), str(proxy_port)]
    port = own_port if environment["RAY_SERVE_ENABLE_DIRECT_INGRESS"] == "1" else proxy_port
    with running(argv, env=environment):
        yield {"json": f"http://127.0.0.1:{port}/"}


SERVERS = (
    Server("ours", AS_SHIPPED, ours),
    Server("limit", AS_SHIPPED, bare_loop),
    Server("mosec", MOSEC_SETTINGS, mosec, "mosec", ("mosec", "orjson")),
    Server("triton", TRITON_SETTINGS, triton, "pytriton", ("nvidia-pytriton", "numpy")),
    Server("ray_serve", RAY_SETTINGS, ray_serve, "ray", ("ray", "uvicorn", "orjson")),
)


def versions_of(server: Server) -> dict[str, str]:
    """Of the packages in a peer's environment."""
    return versions_in(server.environment, *server.packages) if server.environment else {}
