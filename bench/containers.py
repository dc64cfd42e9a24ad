"""What a container costs: one echo server as a process, in a container, and in an isolated one.

All three endpoints run the same file with the same Python, and stand on one server. Rounds
alternate, and a ratio is of one round: requests/s and P99 of a container over those of the process.
`published` is the container with a network; its figures keep the name of the time when a port was
published for it. Isolated: EnableNetworkIsolation. Both are reached by sockets made inside.

`start_ratio`: CreateEndpoint until InService, over the same container run by hand until /ping
answers 200, with a published port. What is by hand is the engine's own and the program's;
`start_more_s` is what an endpoint takes beyond that, of which `start_s.process` shows what it takes
without an engine. `start_limit_ok`: no more than 1.2 times by hand and 1 s.

`lost`: requests without an answer while containers are killed under load, of an endpoint with two
copies.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import yaml
from tests.kit.container_images import containers_of, engine_says, image
from tools.free_port import free_port

from bench import wrk
from bench.arithmetic import alternated, median_ratio, worst
from bench.machine import OthersLoad, foreground
from bench.processes import penstock_up, post
from bench.report import finish, spread, versions
from penstock.cli.client import Client
from penstock.runtimes.container.command import RunSpec, run_options

PROGRAM = Path(__file__).parent / "peers" / "container_echo.py"
IMAGE = "localhost/penstock-bench:echo"
CONTAINERS = ("published", "isolated")
WAYS = ("process", *CONTAINERS)
CONNECTIONS = (1, 16, 64)
BODY = json.dumps([1.0, 2.0, 3.0, 4.0]).encode()
WAIT_S_MAX = 120.0
KILL_AFTER_S = 1.0  #: from the start of a load
KILL_LOAD_S = 4.0
#: The limit of a start: a factor of that by hand, and seconds beside it.
START_FACTOR_MAX, START_MORE_S_MAX = 1.2, 1.0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench containers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, nargs="*", default=list(CONNECTIONS))
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch, OthersLoad() as others:
        folder = artifact(Path(scratch) / "artifact")
        make_image(Path(scratch) / "image")
        with penstock_up() as base_url:
            site = Site(base_url, folder)
            in_front = foreground()
            loads = measured(site, options)
            started = starts(site, folder, options.starts)
            lost, answered = killed(site, options.kills)
    report(
        loads, started, options,
        kills={"lost": lost, "kills": options.kills, "answered": answered},
        others_cores=round(others.cores, 2), foreground=in_front,
    )  # fmt: skip


def artifact(folder: Path) -> Path:
    """The program, and how it is started where no image is."""
    folder.mkdir()
    shutil.copy(PROGRAM, folder / "server.py")
    python = str(Path(sys.executable).resolve())
    described = {"schema": 1, "runtime": "process", "command": [python, "server.py"], "lanes": 16}
    (folder / "model.yaml").write_text(yaml.safe_dump(described))
    return folder


def make_image(folder: Path) -> None:
    """The tests' image, with this Python, which starts the program of the model's folder."""
    folder.mkdir()
    python = str(Path(sys.executable).resolve())
    entry = json.dumps([python, "/opt/ml/model/server.py"])
    (folder / "Dockerfile").write_text(f"FROM {image()}\nENTRYPOINT {entry}\n")
    engine_says("build", "--quiet", "--tag", IMAGE, str(folder))


class Site:
    """The server that has all endpoints."""

    def __init__(self, base_url: str, folder: Path) -> None:
        self.base_url = base_url
        self._folder = folder
        self._admin = Client(base_url)
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        self._client = boto3.client(
            "sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys
        )

    def create(self, name: str, way: str, *, copies: int = 1) -> float:
        """Seconds from CreateEndpoint until it is in service."""
        container = {"ModelDataUrl": self._folder.as_uri()}
        if way != "process":
            container["Image"] = IMAGE
        self._client.create_model(
            ModelName=name, PrimaryContainer=container, EnableNetworkIsolation=way == "isolated"
        )
        variant = {
            "VariantName": "all", "ModelName": name, "InstanceType": "ml.local.small",
            "InitialInstanceCount": copies,
        }  # fmt: skip
        self._client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        began = time.monotonic()
        self._client.create_endpoint(EndpointName=name, EndpointConfigName=name)
        until(lambda: self._status(name) != "Creating", f"{name} in service")
        took_s = time.monotonic() - began
        described = self._client.describe_endpoint(EndpointName=name)
        if described["EndpointStatus"] != "InService":
            raise RuntimeError(f"{name}: {described.get('FailureReason')}")
        if post(self.url(name), BODY) != BODY:
            raise RuntimeError(f"{name} is no echo")
        return took_s

    def ready(self, name: str) -> int:
        """Its copies that take requests."""
        copies = self._admin.admin("/copies")["copies"]
        return sum(one["endpoint"] == name and one["state"] == "ready" for one in copies)

    def delete(self, name: str) -> None:
        self._client.delete_endpoint(EndpointName=name)
        until(lambda: not containers_of(name), f"the end of {name}")

    def url(self, name: str) -> str:
        return f"{self.base_url}/endpoints/{name}/invocations"

    def _status(self, name: str) -> str:
        return str(self._client.describe_endpoint(EndpointName=name)["EndpointStatus"])


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {WAIT_S_MAX:g} s")
        time.sleep(0.02)


Loads = dict[tuple[str, int], list[wrk.Load]]


def measured(site: Site, options: argparse.Namespace) -> Loads:
    """The loads of all rounds, by way and number of connections."""
    for way in WAYS:
        site.create(way, way)
        wrk.closed_loop(site.url(way), BODY, connections=max(options.connections), seconds=2)
    loads: Loads = defaultdict(list)
    for turn in range(options.rounds):
        for count in alternated(options.connections, turn):
            for way in alternated(WAYS, turn):
                load = wrk.closed_loop(
                    site.url(way), BODY, connections=count, seconds=options.seconds
                )
                if load.failed:
                    raise RuntimeError(f"{way}: {load.failed} of {load.requests} requests failed")
                loads[way, count].append(load)
                print(
                    f"{way:10} {count:3} connections: {load.rps:8,.0f} requests/s,"
                    f" P99 {load.p99_ms:6.2f} ms",
                    flush=True,
                )
    for way in WAYS:
        site.delete(way)
    return loads


def starts(site: Site, folder: Path, count: int) -> dict[str, list[float]]:
    """Seconds, by what was started; taken in turn."""
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(count):
        took["by_hand"].append(by_hand(folder))
        for way in WAYS:
            name = f"{way}-{number}"
            took[way].append(site.create(name, way))
            site.delete(name)
    print(json.dumps({name: spread(each) for name, each in took.items()}), flush=True)
    return took


def by_hand(folder: Path) -> float:
    """Seconds from the engine's `run`, with the same options, until /ping answers."""
    port, name = free_port(), f"bench-{uuid.uuid4().hex[:8]}"
    spec = RunSpec(
        image=IMAGE, name=name, owner="bench", copy_name="bench", port=port, shown=folder
    )
    argv = ["podman", "run", "--rm", "--name", name, "--env", "SAGEMAKER_BIND_TO_PORT=8080"]
    began = time.monotonic()
    process = subprocess.Popen([*argv, *run_options(spec)])
    try:
        until(lambda: answers(f"http://127.0.0.1:{port}/ping"), "answer of /ping")
        return time.monotonic() - began
    finally:
        subprocess.run(["podman", "kill", name], capture_output=True, check=False)
        process.wait()


def answers(url: str) -> bool:
    try:
        return post(url, BODY) == BODY
    except OSError:
        return False


def killed(site: Site, kills: int) -> tuple[int, int]:
    """(requests lost, requests answered) while containers are killed, one at a time."""
    site.create("killed", "published", copies=2)
    lost = answered = 0
    for number in range(kills):
        until(lambda: len(containers_of("killed")) == site.ready("killed") == 2, "two copies")
        victim = containers_of("killed")[number % 2]
        timer = threading.Timer(KILL_AFTER_S, engine_says, ("kill", victim))
        timer.start()
        load = wrk.closed_loop(site.url("killed"), BODY, connections=16, seconds=KILL_LOAD_S)
        timer.join()
        lost += load.failed
        answered += load.requests
        print(f"kill {number + 1}: {load.requests} answered, {load.failed} lost", flush=True)
    site.delete("killed")
    return lost, answered


def report(
    loads: Loads,
    started: dict[str, list[float]],
    options: argparse.Namespace,
    *,
    kills: dict[str, int],
    **details: Any,
) -> None:
    figures: dict[str, Any] = {}
    by_connections: dict[int, dict[str, Any]] = {}
    for count in options.connections:
        rps = {way: [load.rps for load in loads[way, count]] for way in WAYS}
        p99 = {way: [load.p99_ms for load in loads[way, count]] for way in WAYS}
        by_connections[count] = {
            way: {"rps": spread(rps[way]), "p99_ms": spread(p99[way])} for way in WAYS
        }
        for way in CONTAINERS:
            by_connections[count][way] |= {
                "rps_ratio": round(median_ratio(rps[way], rps["process"]), 3),
                "p99_ratio": round(median_ratio(p99[way], p99["process"]), 3),
            }
    for way in CONTAINERS:
        ratios = {count: each[way]["rps_ratio"] for count, each in by_connections.items()}
        figures[f"{way}_rps_ratio"] = worst(ratios)[1]
        figures[f"{way}_p99_ratio"] = max(
            each[way]["p99_ratio"] for each in by_connections.values()
        )
    hand_s = statistics.median(started["by_hand"])
    for way in CONTAINERS:
        start_s = statistics.median(started[way])
        figures[f"{way}_start_ratio"] = round(start_s / hand_s, 3)
        figures[f"{way}_start_more_s"] = round(start_s - hand_s, 3)
        limit_s = START_FACTOR_MAX * hand_s + START_MORE_S_MAX
        figures[f"{way}_start_limit_ok"] = start_s <= limit_s
    finish(
        "containers",
        {**figures, **kills},
        by_connections=by_connections,
        start_s={name: spread(each) for name, each in started.items()},
        **details,
        rounds=options.rounds,
        seconds=options.seconds,
        engine=engine_says("version", "--format", "{{.Client.Version}}"),
        versions=versions("penstock", "uvloop"),
    )
