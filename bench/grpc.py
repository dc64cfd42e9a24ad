"""gRPC's ModelInfer and ModelStreamInfer through the whole path, as unmodified clients call them.

A tensor of 16 floats, one of 1 MB, and streams of the small one; eight calls (or messages of
streams) at once, from several client processes. The model gives back what it is sent. Every server
runs alone, in rounds that alternate between them. Clients in Python take more of a small machine
than servers: `--client h2load` (nghttp2's, of the package nghttp2-client) takes hardly anything.

`old` is a server of another revision, from a work tree of it (`--old-tree`). `triton` is the same
model on the Triton that comes with nvidia-pytriton (`--triton`), at the best of several settings;
or a Triton that runs already with a model `tensors` of input `x` and output `y`
(`--triton-target HOST:PORT`), whose processor time is not known.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.environments import make
from tools.free_port import free_port

from bench.arithmetic import alternated, best, median_ratio, percentile
from bench.deployment import deploy
from bench.machine import OthersLoad, foreground, processor_by_process
from bench.processes import penstock_process
from bench.report import ROOT, finish, spread, versions, versions_in
from bench.triton.servers import LOADED, nvidia
from penstock.wire.grpc_messages import framed_message
from penstock.wire.oip_messages import SERVICE, ModelInferRequest

CASES = ("small", "large", "stream")
FLOATS = {"small": 16, "large": 1 << 18}
PEERS = Path(__file__).parent / "peers"
#: From the start of client processes to the first call that counts: they connect and get warm.
WARM_S = 2.5
START_S_MAX = 120.0
_BATCHES = """\
backend: "python"
max_batch_size: 64
input { name: "x" data_type: TYPE_FP32 dims: [ -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
_ALONE = """\
backend: "python"
input { name: "x" data_type: TYPE_FP32 dims: [ -1, -1 ] }
output { name: "y" data_type: TYPE_FP32 dims: [ -1, -1 ] }
"""
OUR_CONFIG = _BATCHES + "dynamic_batching { }"
#: Ways to configure the model on Triton.
TRITON_CONFIGS = {
    "dynamic batching": OUR_CONFIG,
    "dynamic batching, 2 instances": OUR_CONFIG + " instance_group { kind: KIND_CPU count: 2 }",
    "no batches": _ALONE,
    "no batches, 2 instances": _ALONE + "instance_group { kind: KIND_CPU count: 2 }",
}


class CallsFailed(Exception):
    """Of a client, or of a server that is not ready."""


@dataclass(frozen=True, slots=True)
class Site:
    """A server that runs."""

    target: str  #: host:port
    pid: int | None  #: None: it runs elsewhere


@dataclass(frozen=True, slots=True)
class Load:
    """What one server did in one round."""

    rps: float
    p50_ms: float
    p99_ms: float
    server_us: dict[str, float]  #: processor time of a call, by process


@contextlib.contextmanager
def ours(tree: Path) -> Iterator[Site]:
    settings = {"PYTHONPATH": str(tree / "src")}
    port = free_port()
    with (
        penstock_process(settings=settings, grpc_port=port) as (base_url, pid),
        tempfile.TemporaryDirectory() as parent,
    ):
        deploy(base_url, "tensors", write_model(Path(parent), OUR_CONFIG))
        yield Site(f"127.0.0.1:{port}", pid)


@contextlib.contextmanager
def triton(config: str) -> Iterator[Site]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "repositories")
        write_model(root / "one", config)
        with nvidia(root, Path(folder)) as server:
            said = server.model("tensors", "load")
            if said != LOADED:
                raise CallsFailed(f"Triton did not load the model: {said}")
            yield Site(server.addresses.grpc, server.pid)


def write_model(parent: Path, config: str) -> Path:
    """Of Triton's Python backend; the same file for all."""
    model = parent / "tensors"
    (model / "1").mkdir(parents=True)
    (model / "1" / "model.py").write_text((PEERS / "echo_tensors.py").read_text())
    (model / "config.pbtxt").write_text(config)
    return model


@contextlib.contextmanager
def elsewhere(target: str) -> Iterator[Site]:
    yield Site(target, None)


def wait_answer(site: Site) -> None:
    """Returns once a call is answered rightly. Raises TimeoutError."""
    deadline = time.monotonic() + START_S_MAX
    while True:
        with contextlib.suppress(CallsFailed):
            ask("grpcio", site, "small", processes=1, at_once=1, seconds=0.2, warm_s=1.0)
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{site.target} does not answer")


def ask(
    client: str,
    site: Site,
    case: str,
    *,
    processes: int,
    at_once: int,
    seconds: float,
    warm_s: float = WARM_S,
) -> Load:
    """Raises CallsFailed: a client failed, or got a wrong answer."""
    start = time.time() + warm_s
    call = by_h2load if client == "h2load" else by_python
    with call(client, site, case, processes, at_once, start, seconds) as latencies:
        time.sleep(max(0.0, start - time.time()))
        before = processor_by_process(site.pid) if site.pid else {}
        time.sleep(max(0.0, start + seconds - time.time()))
        after = processor_by_process(site.pid) if site.pid else {}
        found_us = sorted(latencies())
    if not found_us:
        raise CallsFailed("no call was answered")
    calls = len(found_us)
    return Load(
        calls / seconds,
        percentile(found_us, 0.5) / 1e3,
        percentile(found_us, 0.99) / 1e3,
        {name: (s - before.get(name, 0.0)) / calls * 1e6 for name, s in after.items()},
    )


#: Waits for the clients, and returns the latencies in us of calls that ended in the time measured.
Latencies = Callable[[], list[int]]


@contextlib.contextmanager
def by_python(
    client: str, site: Site, case: str, processes: int, at_once: int, start: float, seconds: float
) -> Iterator[Latencies]:
    python = str(make("client-tritonclient"))
    argv = [python, str(PEERS / "grpc_caller.py"), client, site.target, case]
    shares = [at_once // processes + (each < at_once % processes) for each in range(processes)]
    callers = [
        subprocess.Popen(
            [*argv, str(share), str(seconds), str(start)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for share in shares
        if share
    ]

    def latencies() -> list[int]:
        found: list[int] = []
        for caller in callers:
            output, error = caller.communicate(timeout=60)
            if caller.returncode:
                raise CallsFailed(error.decode()[-2000:])
            seen = json.loads(output)
            if seen["wrong"]:
                raise CallsFailed(f"{seen['wrong']} answers are not what was sent")
            found += seen["us"]
        return found

    yield latencies


@contextlib.contextmanager
def by_h2load(
    client: str, site: Site, case: str, processes: int, at_once: int, start: float, seconds: float
) -> Iterator[Latencies]:
    """nghttp2's load generator, in C: one process with so many connections. It has no streams of
    gRPC, and does not look into answers."""
    floats = array("f", range(FLOATS[case]))
    message = ModelInferRequest(model_name="tensors")
    message.inputs.add(name="x", datatype="FP32", shape=[1, len(floats)])
    message.raw_input_contents.append(floats.tobytes())
    with tempfile.TemporaryDirectory() as folder:
        body, log = Path(folder, "body"), Path(folder, "log")
        body.write_bytes(framed_message(message.SerializeToString()))
        length_s = start + seconds + 0.5 - time.time()
        argv = [
            *("h2load", f"--duration={length_s * 1e3:.0f}ms", "--clients", str(processes)),
            *("--max-concurrent-streams", str(at_once // processes), "--log-file", str(log)),
            *("--header", "content-type: application/grpc", "--header", "te: trailers"),
            *("--data", str(body), f"http://{site.target}/{SERVICE}/ModelInfer"),
        ]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

        def latencies() -> list[int]:
            output, _ = process.communicate(timeout=60)
            if process.returncode or b" 0 failed, 0 errored" not in output:
                raise CallsFailed(output.decode()[-2000:])
            found = []
            for line in log.read_text().splitlines():
                began_us, status, took_us = map(int, line.split())
                assert status == 200
                if start <= (began_us + took_us) / 1e6 < start + seconds:
                    found.append(took_us)
            return found

        yield latencies


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench grpc")
    parser.add_argument("--client", choices=("grpcio", "tritonclient", "h2load"), default="grpcio")
    parser.add_argument("--processes", type=int, default=2, help="of clients")
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--old-tree", type=Path, help="a work tree of another revision")
    parser.add_argument("--triton", action="store_true", help="nvidia-pytriton's, beside it")
    parser.add_argument("--triton-target", help="HOST:PORT of a Triton that runs already")
    options = parser.parse_args(arguments)
    servers: dict[str, Callable[[], contextlib.AbstractContextManager[Site]]] = {
        "ours": lambda: ours(ROOT)
    }
    if options.old_tree is not None:
        servers["old"] = lambda: ours(options.old_tree.resolve())
    swept: dict[str, list[float]] = {}
    if options.triton:
        swept = sweep(options)
        servers["triton"] = lambda: triton(TRITON_CONFIGS[best(swept)])
    if options.triton_target:
        servers["triton"] = lambda: elsewhere(options.triton_target)
    cases = CASES if options.client != "h2load" else CASES[:2]
    in_front = foreground()
    loads: dict[tuple[str, str], list[Load]] = defaultdict(list)
    with OthersLoad() as others:
        for turn in range(options.rounds):
            for name in alternated(list(servers), turn):
                with servers[name]() as site:
                    wait_answer(site)
                    for case in cases:
                        load = asked(options, site, case, seconds=options.seconds)
                        loads[name, case].append(load)
                        print(f"round {turn + 1} {name:6} {case:6} {told(load)}", flush=True)
    finish(
        "grpc",
        {case: figures(case, loads, list(servers)) for case in cases},
        triton_setting=best(swept) if swept else None,
        triton_swept={name: round(rates[0]) for name, rates in swept.items()},
        client=options.client,
        client_processes=options.processes,
        at_once=options.at_once,
        seconds=options.seconds,
        others_cores=round(others.cores, 2),
        foreground=in_front,
        versions=versions("protobuf", "uvloop"),
        client_versions=versions_in("client-tritonclient", "tritonclient", "grpcio"),
    )


def asked(options: argparse.Namespace, site: Site, case: str, *, seconds: float) -> Load:
    return ask(
        options.client,
        site,
        case,
        processes=options.processes,
        at_once=options.at_once,
        seconds=seconds,
    )


def sweep(options: argparse.Namespace) -> dict[str, list[float]]:
    """Small calls per second of each of Triton's settings, in one short run."""
    found = {}
    for name, config in TRITON_CONFIGS.items():
        with triton(config) as site:
            wait_answer(site)
            found[name] = [asked(options, site, "small", seconds=2.0).rps]
        print(f"triton, {name}: {found[name][0]:,.0f} calls/s", flush=True)
    return found


def told(load: Load) -> str:
    spent = ", ".join(f"{name} {us:.0f}" for name, us in sorted(load.server_us.items()) if us >= 1)
    return (
        f"{load.rps:8,.0f} calls/s, P50 {load.p50_ms:6.2f} ms, P99 {load.p99_ms:6.2f} ms;"
        f" us of processor a call: {spent or 'not known'}"
    )


def figures(
    case: str, loads: dict[tuple[str, str], list[Load]], servers: list[str]
) -> dict[str, Any]:
    """By server; and of each other server, ours in proportion to it."""
    found: dict[str, Any] = {}
    mine = loads["ours", case]
    for name in servers:
        rounds = loads[name, case]
        processes = sorted({process for load in rounds for process in load.server_us})
        found[name] = {
            "calls_per_s": spread([load.rps for load in rounds]),
            "p50_ms": spread([load.p50_ms for load in rounds]),
            "p99_ms": spread([load.p99_ms for load in rounds]),
            "server_us": {
                process: spread([load.server_us.get(process, 0.0) for load in rounds])
                for process in processes
            },
        }
        if name != "ours":
            found[f"calls_of_{name}"] = round(
                median_ratio([load.rps for load in mine], [load.rps for load in rounds]), 3
            )
            found[f"p99_of_{name}"] = round(
                median_ratio([load.p99_ms for load in mine], [load.p99_ms for load in rounds]), 3
            )
    return found
