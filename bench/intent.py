"""Query intent online: the example classifier over HTTP, the load generator on the same cores.

`sustained_rps` is the closed loop's rate: what the server answers while 96 connections each ask as
soon as they are answered. At 60 % of it requests come at Poisson times (`open_loop`): `p99_ms` is
from the moment a request was due to the last byte of its answer. `rps_within_level` is the highest
Poisson rate, found in four halvings of the range, whose P99 is within the 10 ms of the level.

Beside every P99 stands the machine's own: the bare loop of `peers/bare_loop.py` under the very same
arrivals, the time in which the machine gave no processor to anybody, the P99 of the requests that
were not on their way then (`calm`, which decides `rps_within_level`), and the cores that processes
outside of this benchmark took. A round in which others took much says nothing of us.

`batching_gain`: the same artifact with and without batching (`rows_max: 1`), closed loop.
`lor_vs_random`: four copies on the same cores, least outstanding requests against random routing:
P99 of random over P99 of LOR at 60 % of LOR's rate, and LOR's rate within the level over random's.
All servers run in one process tree; rounds alternate between them, figures are medians.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import boto3

from bench import wrk
from bench.machine import OthersLoad, foreground
from bench.open_loop import Figures, open_loop
from bench.overhead import ARTIFACT, QUERIES, batch_counts, check_answers, mean_rows
from bench.processes import free_port, penstock_up, running, wait_answer
from bench.report import ROOT, finish, spread, versions
from penstock.artifacts import detect

LEVEL_MS = 10.0
LOAD = 0.6
CONNECTIONS = 96  #: of the closed loop; the open loop has more, so that it never waits for one
BODIES = [json.dumps({"inputs": query}) for query in QUERIES]
_STEPS = 4  #: of the search for the highest rate within the level


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    copies: int = 1
    routing: str = "LEAST_OUTSTANDING_REQUESTS"
    batching: bool = True


ENDPOINTS = (
    Endpoint("intent"),
    Endpoint("unbatched", batching=False),
    Endpoint("lor", copies=4),
    Endpoint("random", copies=4, routing="RANDOM"),
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench intent")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--search-seconds", type=float, default=2.0)
    options = parser.parse_args(arguments)
    run = Run(options.seconds, options.search_seconds)
    with penstock_up() as base_url, bare_loop() as bare_url, unbatched_artifact() as single:
        for endpoint in ENDPOINTS:
            deploy(base_url, endpoint, ARTIFACT if endpoint.batching else single)
        run.foreground = foreground()
        description = detect.detect(ARTIFACT).description
        for endpoint in ENDPOINTS:
            url = invocations(base_url, endpoint.name)
            wait_answer(url, BODIES[0].encode(), timeout_s=30)
            check_answers(url, description)
            run.warm_up(url)
        for turn in range(options.rounds):
            run.one_copy(base_url, bare_url)
            run.four_copies(base_url)
            print(f"round {turn + 1}: {run.latest()}", flush=True)
    report(run, options)


class Run:
    """The samples of all rounds, by name."""

    def __init__(self, seconds: float, search_seconds: float) -> None:
        self._seconds = seconds
        self._search_seconds = search_seconds
        self.samples: dict[str, list[float]] = defaultdict(list)
        self.foreground = False  #: whether all of this goes before other work on the machine

    def warm_up(self, url: str) -> None:
        """Small and large batches, until the shapes that come often have graphs of their own."""
        for rate in (500.0, 2000.0):
            open_loop(url, BODIES, rate=rate, seconds=2.0, connections=CONNECTIONS)
        self.closed_loop(url, seconds=2)

    def one_copy(self, base_url: str, bare_url: str) -> None:
        url = invocations(base_url, "intent")
        before = batch_counts(base_url)
        rate = self.keep("rps", self.closed_loop(url))
        self.keep("rows_closed", mean_rows(before, batch_counts(base_url)))
        single = self.keep("rps_unbatched", self.closed_loop(invocations(base_url, "unbatched")))
        self.keep("batching_gain", rate / single)
        before = batch_counts(base_url)
        with OthersLoad() as others:
            self.keep_figures("at_60", self.poisson(url, LOAD * rate))
        self.keep("at_60_others_cores", others.cores)
        self.keep("at_60_rows", mean_rows(before, batch_counts(base_url)))
        self.keep_figures("bare", self.poisson(bare_url, LOAD * rate))
        within = self.rate_within_level(url, rate)
        self.keep("rps_within_level", within)
        self.keep_figures("at_60_of_level", self.poisson(url, LOAD * within))

    def four_copies(self, base_url: str) -> None:
        lor, random = (invocations(base_url, name) for name in ("lor", "random"))
        rate = self.keep("lor_rps", self.closed_loop(lor))
        self.keep("random_rps", self.closed_loop(random))
        self.keep_figures("lor_at_60", self.poisson(lor, LOAD * rate))
        self.keep_figures("random_at_60", self.poisson(random, LOAD * rate))
        self.keep("lor_within", self.rate_within_level(lor, rate))
        self.keep("random_within", self.rate_within_level(random, rate))

    def closed_loop(self, url: str, seconds: float | None = None) -> float:
        load = wrk.closed_loop(
            url,
            *(body.encode() for body in BODIES),
            connections=CONNECTIONS,
            seconds=round(seconds or self._seconds),
        )
        if load.failed:
            raise RuntimeError(f"requests failed: {load}")
        return load.rps

    def poisson(self, url: str, rate: float, seconds: float | None = None) -> Figures:
        figures = open_loop(
            url, BODIES, rate=rate, seconds=seconds or self._seconds, connections=256
        )
        if figures.failed:
            raise RuntimeError(f"requests failed: {figures}")
        return figures

    def rate_within_level(self, url: str, rate: float) -> float:
        """The search; its answer is a sixteenth of `rate` where even that is too much."""
        low, high = rate / 2**_STEPS, rate
        for _ in range(_STEPS):
            middle = (low + high) / 2
            figures = self.poisson(url, middle, self._search_seconds)
            good = not figures.refused and figures.p99_calm_ms <= LEVEL_MS
            low, high = (middle, high) if good else (low, middle)
        return low

    def keep(self, name: str, value: float) -> float:
        self.samples[name].append(value)
        return value

    def keep_figures(self, name: str, figures: Figures) -> None:
        for key in ("p50_ms", "p99_ms", "p99_calm_ms", "stalled_share", "refused"):
            self.keep(f"{name}_{key}", getattr(figures, key))

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])

    def ratio(self, above: str, below: str) -> float:
        """Median of the rounds' own ratios."""
        pairs = zip(self.samples[above], self.samples[below], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 3)

    def latest(self) -> str:
        shown = (
            ("rps", ",.0f"), ("rps_unbatched", ",.0f"), ("at_60_p50_ms", ".1f"),
            ("at_60_p99_ms", ".1f"), ("at_60_p99_calm_ms", ".1f"), ("bare_p99_ms", ".1f"),
            ("at_60_others_cores", ".2f"), ("rps_within_level", ",.0f"),
            ("lor_at_60_p99_ms", ".1f"), ("random_at_60_p99_ms", ".1f"),
            ("lor_within", ",.0f"), ("random_within", ",.0f"),
        )  # fmt: skip
        return ", ".join(f"{name} {self.samples[name][-1]:{form}}" for name, form in shown)


def report(run: Run, options: argparse.Namespace) -> None:
    finish(
        "intent",
        {
            "sustained_rps": round(run.median("rps")),
            "p99_ms": round(run.median("at_60_p99_ms"), 3),
            "p99_calm_ms": round(run.median("at_60_p99_calm_ms"), 3),
            "p50_ms": round(run.median("at_60_p50_ms"), 3),
            "bare_p99_ms": round(run.median("bare_p99_ms"), 3),
            "rps_within_level": round(run.median("rps_within_level")),
            "p99_ms_at_60_of_level": round(run.median("at_60_of_level_p99_ms"), 3),
            "batching_gain": round(run.median("batching_gain"), 3),
            "lor_vs_random": run.ratio("random_at_60_p99_ms", "lor_at_60_p99_ms"),
            "lor_vs_random_calm": run.ratio("random_at_60_p99_calm_ms", "lor_at_60_p99_calm_ms"),
            "lor_vs_random_rps": run.ratio("lor_within", "random_within"),
        },
        level_ms=LEVEL_MS,
        samples={name: spread(values) for name, values in run.samples.items()},
        seconds=options.seconds,
        foreground=run.foreground,
        seed=1,
        versions=versions("penstock", "openvino", "tokenizers", "uvloop", "httptools"),
    )


def invocations(base_url: str, name: str) -> str:
    return f"{base_url}/endpoints/{name}/invocations"


@contextlib.contextmanager
def bare_loop() -> Iterator[str]:
    """The body straight back from one process: what these arrivals cost the machine itself."""
    port = free_port()
    with running([sys.executable, str(ROOT / "bench" / "peers" / "bare_loop.py"), str(port)]):
        url = f"http://127.0.0.1:{port}/"
        wait_answer(url, BODIES[0].encode(), timeout_s=10)
        yield url


@contextlib.contextmanager
def unbatched_artifact() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(copytree(ARTIFACT, Path(folder, "artifact")))
        settings = copy / "model.yaml"
        text, changed = re.subn(r"rows_max: \d+", "rows_max: 1", settings.read_text())
        if changed != 1:
            raise RuntimeError("the artifact's model.yaml does not say rows_max once")
        settings.write_text(text)
        yield copy


def deploy(base_url: str, endpoint: Endpoint, folder: Path) -> None:
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    client = boto3.client("sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys)
    name = endpoint.name
    client.create_model(ModelName=name, PrimaryContainer={"ModelDataUrl": folder.as_uri()})
    client.create_endpoint_config(
        EndpointConfigName=name,
        ProductionVariants=[
            {
                "VariantName": "all",
                "ModelName": name,
                "InstanceType": "ml.local.small",
                "InitialInstanceCount": endpoint.copies,
                "RoutingConfig": {"RoutingStrategy": endpoint.routing},
            }
        ],
    )
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
