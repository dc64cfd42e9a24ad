"""Offline work beside online work on the same cores: what it costs the one and gets the other.

The example classifier is asked at Poisson times, at a rate at which the machine's processors are
busy for `LOAD` of their time: alone, and while a transform job of the same model runs on the same
machine, its instances as guests. (Small batches cost more for each answer than full ones, so that
rate is far below `LOAD` of the one that is sustained.) In each round the endpoint is measured
without the job, then the job is started and, once it is at full speed, measured beside the endpoint
and alone; the next round has the opposite order. So every ratio is of two things that were measured
next to each other.

`p99_increase` is the endpoint's P99 beside the job over its P99 alone; the load generator and the
gateway share the cores with all that. `idle_used` is the job's rows/s beside the endpoint over what
it would do in the idle time that the endpoint left: its rows/s alone, times the share of the
machine's processor time that was idle in the turn without it. The job has an instance of one core
for each core of the machine, so that alone it uses all of it: measured with fewer it would seem to
get more of what is idle than there is. What processes of others took in each turn is told beside
the figures: both say little where that is much.

`p99_ms_starting` is of the seconds in which the job's instances start and load their model.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3

from bench.arithmetic import alternated, median_ratio
from bench.deployment import deploy
from bench.intent import BODIES, CONNECTIONS, invocations
from bench.machine import OthersLoad, foreground
from bench.open_loop import Figures, open_loop
from bench.overhead import ARTIFACT, QUERIES, check_answers
from bench.processes import penstock_up, post, wait_answer
from bench.report import finish, spread, versions
from penstock.artifacts import detect

LOAD = 0.4
RATE_MIN = 50.0
NAME = "intent"
ONLINE, BESIDE, OFFLINE = PARTS = "online", "beside", "offline"
#: Of the job; how often it is asked how far it is. Each answer takes the server's loop some 4 ms:
#: asked five times a second it was 2 % of the time, and the P99 of whoever came then.
LOOK_EVERY_S = 1.0
#: Without the SDK, which leaves out what AWS has no name for.
_DESCRIBE = {
    "Content-Type": "application/x-amz-json-1.1",
    "X-Amz-Target": "SageMaker.DescribeTransformJob",
}
STARTING_S, FULL_SPEED_S, PATIENCE_S = 4.0, 4.0, 60.0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench colocated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--load", type=float, default=LOAD, help="of the processors' time")
    parser.add_argument("--rate", type=float, help="requests/s, whatever load that is")
    parser.add_argument("--records", type=int, default=1_000_000, help="of one job")
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--instances", type=int, default=cores, help="of one core each, of a job")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, penstock_up() as base_url:
        records = Path(folder, "records.txt")
        lines = (f"{QUERIES[at % len(QUERIES)]}\n" for at in range(options.records))
        records.write_text("".join(lines))
        deploy(base_url, NAME, ARTIFACT)
        url = invocations(base_url, NAME)
        in_front = foreground()
        wait_answer(url, BODIES[0].encode(), timeout_s=30)
        check_answers(url, detect.detect(ARTIFACT).description)
        _warm_up(url)
        rate = options.rate or _rate_at(url, options.load)
        run = Run(Jobs(base_url, records, options.instances), url, rate)
        for turn in range(options.rounds):
            run.round(turn, options.seconds)
    finish(
        "colocated",
        {
            "p99_increase": run.ratio("beside_p99_ms", "online_p99_ms"),
            "idle_used": round(statistics.median(run.idle_used()), 3),
            "p50_increase": run.ratio("beside_p50_ms", "online_p50_ms"),
            "p99_ms_alone": round(run.median("online_p99_ms"), 3),
            "p99_ms_beside": round(run.median("beside_p99_ms"), 3),
            "p99_ms_starting": round(run.median("starting_p99_ms"), 3),
            "rows_per_s_alone": round(run.median("offline_rows_per_s")),
            "rows_per_s_beside": round(run.median("beside_rows_per_s")),
            "idle_share": round(run.median("online_idle_share"), 3),
        },
        rate=round(run.rate),
        load=options.load,
        samples={name: spread(values) for name, values in run.samples.items()},
        seconds=options.seconds,
        instances=options.instances,
        others_cores=round(max(run.median(f"{one}_others_cores") for one in PARTS), 2),
        foreground=in_front,
        versions=versions("penstock", "openvino", "tokenizers", "uvloop"),
    )


def _warm_up(url: str) -> None:
    """Until the shapes that come often have graphs of their own."""
    for rate in (250.0, 1000.0):
        open_loop(url, BODIES, rate=rate, seconds=3.0, connections=CONNECTIONS)


def _rate_at(url: str, load: float) -> float:
    """The rate at which the processors are busy for this share of their time, between two rates
    that were measured."""
    below, rate = (0.0, 0.0), RATE_MIN
    while True:
        idle: list[float] = []
        with Idle(idle):
            open_loop(url, BODIES, rate=rate, seconds=2.0, connections=CONNECTIONS)
        busy = 1.0 - idle[0]
        print(f"{rate:6.0f} requests/s take {busy:.2f} of the processors", flush=True)
        if busy >= load:
            break
        below, rate = (rate, busy), 1.5 * rate
    return below[0] + (rate - below[0]) * max(load - below[1], 0.0) / (busy - below[1])


class Jobs:
    """Transform jobs over the same records."""

    def __init__(self, base_url: str, records: Path, instances: int) -> None:
        keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
        self._client = boto3.client(
            "sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys
        )
        self._base_url = base_url
        self._records = records
        self._instances = instances
        self._count = 0

    def create(self) -> str:
        self._count += 1
        name = f"job-{self._count}"
        output = (self._records.parent / name).as_uri()
        self._client.create_transform_job(
            TransformJobName=name,
            ModelName=NAME,
            TransformInput={
                "DataSource": {
                    "S3DataSource": {
                        "S3DataType": "S3Prefix",
                        "S3Uri": self._records.as_uri(),
                    }
                },
                "ContentType": "text/plain",
                "SplitType": "Line",
            },
            TransformOutput={
                "S3OutputPath": output,
                "Accept": "application/jsonlines",
                "AssembleWith": "Line",
            },
            TransformResources={
                "InstanceType": "ml.local.small",
                "InstanceCount": self._instances,
            },
        )
        return name

    def records(self, name: str) -> int:
        """That are done. Raises RuntimeError for a job that does not run."""
        body = json.dumps({"TransformJobName": name}).encode()
        told = json.loads(post(self._base_url, body, headers=_DESCRIBE))
        if told["TransformJobStatus"] != "InProgress":
            raise RuntimeError(f"{told['TransformJobStatus']}: {told.get('FailureReason')}")
        progress: dict[str, Any] = told["PenstockProgress"]
        if progress["RefusedRecords"]:
            raise RuntimeError(f"{name}: the model answers none of {progress['RefusedRecords']}")
        return int(progress["Records"])

    def wait_begun(self, name: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not self.records(name):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} has done nothing for {PATIENCE_S:g} s")
            time.sleep(LOOK_EVERY_S)

    def stop(self, name: str) -> None:
        self._client.stop_transform_job(TransformJobName=name)
        waiter = self._client.get_waiter("transform_job_completed_or_stopped")
        waiter.wait(TransformJobName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})

    @contextlib.contextmanager
    def speed(self, name: str, into: list[float]) -> Iterator[None]:
        """Records/s while the block runs, between the first and the last time that it got on."""
        seen: list[tuple[float, int]] = []
        over = threading.Event()

        def look() -> None:
            while not over.wait(LOOK_EVERY_S):
                done = self.records(name)
                if not seen or done != seen[-1][1]:
                    seen.append((time.monotonic(), done))

        with ThreadPoolExecutor(1) as looking:
            told = looking.submit(look)
            try:
                yield
            finally:
                over.set()
        told.result()
        seen = seen[1:]  # the first look is not the moment at which it got there
        if len(seen) < 2:
            raise RuntimeError(f"{name} got on {len(seen)} times: too seldom for its speed")
        (began, first), (ended, last) = seen[0], seen[-1]
        into.append((last - first) / (ended - began))


class Run:
    """The samples of all rounds, by name."""

    def __init__(self, jobs: Jobs, url: str, rate: float) -> None:
        self._jobs = jobs
        self._url = url
        self.rate = rate
        self.samples: dict[str, list[float]] = defaultdict(list)

    def round(self, turn: int, seconds: float) -> None:
        for part in alternated([self._alone, self._with_job], turn):
            part(turn, seconds)
        shown = ("online_p50_ms", "beside_p50_ms", "online_p99_ms", "beside_p99_ms",
                 "starting_p99_ms", "offline_rows_per_s", "beside_rows_per_s",
                 "online_idle_share", "online_others_cores", "beside_others_cores",
                 "offline_others_cores")  # fmt: skip
        told = ", ".join(f"{name} {self.samples[name][-1]:,.2f}" for name in shown)
        print(f"round {turn}: idle_used {self.idle_used()[-1]:.2f}, {told}", flush=True)

    def _alone(self, turn: int, seconds: float) -> None:
        with self._others(ONLINE), Idle(self.samples["online_idle_share"]):
            self._keep(ONLINE, self._load(turn, seconds))

    def _with_job(self, turn: int, seconds: float) -> None:
        name = self._jobs.create()
        try:
            self._keep("starting", self._load(turn, STARTING_S))
            self._jobs.wait_begun(name)
            time.sleep(FULL_SPEED_S)
            for part in alternated([BESIDE, OFFLINE], turn):
                rows = self.samples[f"{part}_rows_per_s"]
                with self._others(part), self._jobs.speed(name, rows):
                    if part == BESIDE:
                        self._keep(BESIDE, self._load(turn, seconds))
                    else:
                        time.sleep(seconds)
        finally:
            self._jobs.stop(name)

    def _load(self, turn: int, seconds: float) -> Figures:
        figures = open_loop(
            self._url, BODIES, rate=self.rate, seconds=seconds, connections=256, seed=turn + 1
        )
        if figures.failed:
            raise RuntimeError(f"requests failed: {figures}")
        return figures

    def _keep(self, name: str, figures: Figures) -> None:
        for key in ("p50_ms", "p99_ms", "p99_calm_ms", "stalled_share", "refused"):
            self.samples[f"{name}_{key}"].append(getattr(figures, key))

    @contextlib.contextmanager
    def _others(self, name: str) -> Iterator[None]:
        with OthersLoad() as others:
            yield
        self.samples[f"{name}_others_cores"].append(others.cores)

    def idle_used(self) -> list[float]:
        """Of each round."""
        columns = ("beside_rows_per_s", "offline_rows_per_s", "online_idle_share")
        return [
            beside / (alone * idle)
            for beside, alone, idle in zip(*(self.samples[name] for name in columns), strict=True)
        ]

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])

    def ratio(self, above: str, below: str) -> float:
        return round(median_ratio(self.samples[above], self.samples[below]), 3)


class Idle:
    """The share of the machine's processor time in which no process ran, while the block ran."""

    def __init__(self, into: list[float]) -> None:
        self._into = into

    def __enter__(self) -> None:
        self._start = _ticks()

    def __exit__(self, *_: object) -> None:
        idle, every = (now - then for now, then in zip(_ticks(), self._start, strict=True))
        self._into.append(idle / every)


def _ticks() -> tuple[int, int]:
    """Idle, and all; time that the hypervisor gave to others was not there to be used."""
    fields = [int(one) for one in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, idle, waiting, interrupts, softirq, _stolen = fields
    unused = idle + waiting
    return unused, user + nice + system + interrupts + softirq + unused
