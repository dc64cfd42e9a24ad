"""Query intent online: the example classifier over HTTP, the load generator on the same cores.

`sustained_rps` is the closed loop's rate: what the server answers while 96 connections each ask as
soon as they are answered. At 60 % of it requests come at Poisson times (`open_loop`): `p99_ms` is
from the moment a request was due to the last byte of its answer.

`rps_within_level` is the highest rate within the level: Poisson rates rise in sixteenths of the
sustained one, each with every seed, and the P99 that decides is the median of the seeds'. A rate
counts only if every lower one kept the level too. Stalls of the machine are in it, whoever caused
them: `rps_within_level_calm` is what P99 says of those requests alone that met none, and decides
nothing. Beside every P99 stands the machine's own: the bare loop of `peers/bare_loop.py` under the
very same arrivals, the time in which the machine gave no processor to anybody, and the cores that
processes outside of this benchmark took.

`batching_gain`: the same artifact with and without batching (`rows_max: 1`), closed loop.
`lor_vs_random`: four copies on the same cores, least outstanding requests against random routing:
P99 of random over P99 of LOR at 60 % of LOR's rate, and LOR's rate within the level over random's.
Both get the same arrivals, and take turns at being first. A round is a seed; figures are medians.

`lone_vs_inline`: P50 of requests one at a time, 5 ms after the answer to the one before, over that
of `peers/intent_inline.py`, a single process that does the same without queues. `fresh_vs_steady`:
P99 of the first 5 s of a new copy at half the rate within the level, over the same once it is warm.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree
from typing import Any

from tools.free_port import free_port

from bench import wrk
from bench.arithmetic import alternated, capacity, keeps_level, median_ratio, steps_of
from bench.batches import batch_counts, mean_rows
from bench.deployment import delete, deploy
from bench.lone import lone_ms
from bench.machine import OthersLoad, foreground
from bench.open_loop import Figures, open_loop
from bench.overhead import ARTIFACT, QUERIES, check_answers
from bench.processes import penstock_up, running, wait_answer
from bench.report import ROOT, finish, spread, versions
from penstock.artifacts.detection import detect

LEVEL_MS = 10.0
LOAD = 0.6
CONNECTIONS = 96  #: of the closed loop; the open loop has more, so that it never waits for one
BODIES = [json.dumps({"inputs": query}) for query in QUERIES]
STEPS = 16  #: of the climb to the highest rate within the level
LONE_REQUESTS = 800  #: of each server in a round
FRESH_S = 5.0
FRESH_WARM_S = 4.0  #: between a copy's first seconds and those that count as steady
ONE, UNBATCHED, LOR, RANDOM = "intent", "unbatched", "lor", "random"
#: What decides whether a rate is within the level, and what is told beside it.
DECIDES, BESIDE = "p99_ms", "p99_calm_ms"


@dataclass(frozen=True, slots=True)
class Endpoint:
    name: str
    copies: int = 1
    routing: str = "LEAST_OUTSTANDING_REQUESTS"
    batching: bool = True


#: One part after the other: figures of one copy are not those of one with eight idle neighbours.
ONE_COPY = (Endpoint(ONE), Endpoint(UNBATCHED, batching=False))
FOUR_COPIES = (Endpoint(LOR, copies=4), Endpoint(RANDOM, copies=4, routing="RANDOM"))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench intent")
    parser.add_argument("--rounds", type=int, default=3, help="each with a seed of its own")
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--search-seconds", type=float, default=2.0, help="of one rate and seed")
    options = parser.parse_args(arguments)
    run = Run(options)
    with (
        penstock_up() as base_url, bare_loop() as bare_url, inline() as inline_url,
        unbatched_artifact() as single,
    ):  # fmt: skip
        run.foreground = foreground()
        with endpoints(run, base_url, single, ONE_COPY):
            for seed in run.seeds:
                run.one_copy(base_url, bare_url, seed)
                print(f"round {seed}: {run.latest()}", flush=True)
            with OthersLoad() as others:
                run.climb([ONE], run.median("rps"))
            for seed in run.seeds:
                within = run.within(ONE, DECIDES) or run.median("rps") / STEPS
                run.keep_figures("at_60_of_level", run.poisson(ONE, LOAD * within, seed))
                run.lone(inline_url)
                run.fresh(base_url, within / 2, seed)
        with endpoints(run, base_url, single, FOUR_COPIES):
            for seed in run.seeds:
                run.four_copies(seed)
                print(f"round {seed}: {run.latest()}", flush=True)
            with OthersLoad() as others_of_four:
                run.climb([LOR, RANDOM], run.median("lor_rps"))
    others_cores = round(max(others.cores, others_of_four.cores), 2)
    report(run, options, climb_others_cores=others_cores)


@contextlib.contextmanager
def endpoints(run: Run, base_url: str, single: Path, parts: Sequence[Endpoint]) -> Iterator[None]:
    """Serves these alone, warm and checked."""
    for endpoint in parts:
        deploy(
            base_url,
            endpoint.name,
            ARTIFACT if endpoint.batching else single,
            copies=endpoint.copies,
            routing={"RoutingStrategy": endpoint.routing},
        )
    description = detect.detect(ARTIFACT).description
    for endpoint in parts:
        url = run.urls[endpoint.name] = invocations(base_url, endpoint.name)
        wait_answer(url, BODIES[0].encode(), timeout_s=30)
        check_answers(url, description)
        run.warm_up(url)
    yield
    for endpoint in parts:
        delete(base_url, endpoint.name)


class Run:
    """The samples of all rounds, by name, and what was seen on the climbs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.seeds = range(1, options.rounds + 1)
        self._seconds = options.seconds
        self._search_seconds = options.search_seconds
        self.urls: dict[str, str] = {}
        self.samples: dict[str, list[float]] = defaultdict(list)
        #: endpoint -> rate -> one run of each seed
        self.climbed: dict[str, dict[float, list[Figures]]] = defaultdict(dict)
        self.foreground = False  #: whether all of this goes before other work on the machine

    def warm_up(self, url: str) -> None:
        """Small and large batches, until the shapes that come often have graphs of their own."""
        for rate in (500.0, 2000.0):
            open_loop(url, BODIES, rate=rate, seconds=2.0, connections=CONNECTIONS)
        self._closed_loop(url, 2)

    def one_copy(self, base_url: str, bare_url: str, seed: int) -> None:
        rates: dict[str, float] = {}
        for name in alternated([ONE, UNBATCHED], seed):
            before = batch_counts(base_url)
            rates[name] = self._closed_loop(self.urls[name], self._seconds)
            if name == ONE:
                self.keep("rows_closed", mean_rows(before, batch_counts(base_url)))
        rate = self.keep("rps", rates[ONE])
        self.keep("rps_unbatched", rates[UNBATCHED])
        before = batch_counts(base_url)
        with OthersLoad() as others:
            self.keep_figures("at_60", self.poisson(ONE, LOAD * rate, seed))
        self.keep("at_60_others_cores", others.cores)
        self.keep("at_60_rows", mean_rows(before, batch_counts(base_url)))
        bare = self._open_loop(bare_url, LOAD * rate, seed, self._seconds)
        self.keep_figures("bare", bare)

    def lone(self, inline_url: str) -> None:
        urls = {ONE: self.urls[ONE], "inline": inline_url}
        bodies = [body.encode() for body in BODIES]
        for name, p50_ms in lone_ms(urls, bodies, requests=LONE_REQUESTS).items():
            self.samples[f"lone_{name}_p50_ms"] += p50_ms

    def fresh(self, base_url: str, rate: float, seed: int) -> None:
        """A copy that nobody has asked yet, on a machine that has the graphs of its shapes."""
        name = f"fresh-{seed}"
        deploy(base_url, name, ARTIFACT)
        url = invocations(base_url, name)
        wait_answer(url, BODIES[0].encode(), timeout_s=30)
        self.keep_figures("fresh", self._open_loop(url, rate, seed, FRESH_S))
        self._open_loop(url, rate, seed + 1, FRESH_WARM_S)
        self.keep_figures("steady", self._open_loop(url, rate, seed, FRESH_S))
        delete(base_url, name)

    def four_copies(self, seed: int) -> None:
        for name in alternated([LOR, RANDOM], seed):
            self.keep(f"{name}_rps", self._closed_loop(self.urls[name], self._seconds))
        rate = LOAD * self.samples["lor_rps"][-1]
        for name in alternated([RANDOM, LOR], seed):
            self.keep_figures(f"{name}_at_60", self.poisson(name, rate, seed))

    def climb(self, names: Sequence[str], sustained: float) -> None:
        """Every rate with every seed, until the level is broken by P99 and by the calm P99."""
        climbing = list(names)
        for step, rate in enumerate(steps_of(sustained, STEPS)):
            for seed in self.seeds:
                for name in alternated(climbing, step + seed):
                    seen = self.poisson(name, rate, seed, self._search_seconds)
                    self.climbed[name].setdefault(rate, []).append(seen)
            for name in list(climbing):
                p99_ms, calm_ms = (self.p99_ms(name, rate, which) for which in (DECIDES, BESIDE))
                print(
                    f"{name:7} {rate:8,.0f} requests/s   P99 {p99_ms:8.1f} ms"
                    f"   without stalls {calm_ms:8.1f} ms",
                    flush=True,
                )
                if not any(self._kept(name, rate, which) for which in (DECIDES, BESIDE)):
                    climbing.remove(name)
            if not climbing:
                return

    def p99_ms(self, name: str, rate: float, which: str) -> float:
        """Median of the seeds'."""
        return statistics.median(getattr(each, which) for each in self.climbed[name][rate])

    def _kept(self, name: str, rate: float, which: str) -> bool:
        runs = self.climbed[name][rate]
        return keeps_level(
            sent=sum(each.sent for each in runs),
            answered=sum(each.answered for each in runs),
            p99_ms=self.p99_ms(name, rate, which),
            level_ms=LEVEL_MS,
        )

    def within(self, name: str, which: str) -> float:
        """The highest rate within the level, by the median P99 of the seeds; 0 if none was."""
        return capacity({rate: self._kept(name, rate, which) for rate in self.climbed[name]})

    def within_by_seed(self, name: str) -> list[float]:
        """The same of each seed alone."""
        return [
            capacity({
                rate: keeps_level(
                    sent=runs[at].sent, answered=runs[at].answered,
                    p99_ms=runs[at].p99_ms, level_ms=LEVEL_MS,
                )
                for rate, runs in self.climbed[name].items()
            })
            for at in range(len(self.seeds))
        ]  # fmt: skip

    def poisson(
        self,
        name: str,
        rate: float,
        seed: int,
        seconds: float | None = None,
    ) -> Figures:
        figures = self._open_loop(self.urls[name], rate, seed, seconds or self._seconds)
        if figures.failed:
            raise RuntimeError(f"requests failed: {figures}")
        return figures

    @staticmethod
    def _open_loop(url: str, rate: float, seed: int, seconds: float) -> Figures:
        return open_loop(url, BODIES, rate=rate, seconds=seconds, connections=256, seed=seed)

    @staticmethod
    def _closed_loop(url: str, seconds: float) -> float:
        bodies = [body.encode() for body in BODIES]
        load = wrk.closed_loop(url, *bodies, connections=CONNECTIONS, seconds=seconds)
        if load.failed:
            raise RuntimeError(f"requests failed: {load}")
        return load.rps

    def keep(self, name: str, value: float) -> float:
        self.samples[name].append(value)
        return value

    def keep_figures(self, name: str, figures: Figures) -> None:
        for key in ("p50_ms", "p99_ms", "p99_calm_ms", "stalled_share", "refused"):
            self.keep(f"{name}_{key}", getattr(figures, key))

    def median(self, name: str) -> float:
        return statistics.median(self.samples[name])

    def ratio(self, above: str, below: str) -> float:
        return round(median_ratio(self.samples[above], self.samples[below]), 3)

    def latest(self) -> str:
        shown = (
            ("rps", ",.0f"), ("rps_unbatched", ",.0f"), ("at_60_p50_ms", ".1f"),
            ("at_60_p99_ms", ".1f"), ("at_60_p99_calm_ms", ".1f"), ("bare_p99_ms", ".1f"),
            ("at_60_others_cores", ".2f"), ("lor_at_60_p99_ms", ".1f"),
            ("random_at_60_p99_ms", ".1f"),
        )  # fmt: skip
        seen = ((name, form, self.samples[name]) for name, form in shown)
        return ", ".join(f"{name} {values[-1]:{form}}" for name, form, values in seen if values)


def report(run: Run, options: argparse.Namespace, **details: Any) -> None:
    lor, random = run.within(LOR, DECIDES), run.within(RANDOM, DECIDES)
    finish(
        "intent",
        {
            "sustained_rps": round(run.median("rps")),
            "p99_ms": round(run.median("at_60_p99_ms"), 3),
            "p99_calm_ms": round(run.median("at_60_p99_calm_ms"), 3),
            "p50_ms": round(run.median("at_60_p50_ms"), 3),
            "bare_p99_ms": round(run.median("bare_p99_ms"), 3),
            "rps_within_level": round(run.within(ONE, DECIDES)),
            "rps_within_level_calm": round(run.within(ONE, BESIDE)),
            "p99_ms_at_60_of_level": round(run.median("at_60_of_level_p99_ms"), 3),
            "lone_vs_inline": run.ratio(f"lone_{ONE}_p50_ms", "lone_inline_p50_ms"),
            "lone_p50_ms": round(run.median(f"lone_{ONE}_p50_ms"), 3),
            "fresh_vs_steady": run.ratio("fresh_p99_ms", "steady_p99_ms"),
            "batching_gain": run.ratio("rps", "rps_unbatched"),
            "lor_vs_random": run.ratio("random_at_60_p99_ms", "lor_at_60_p99_ms"),
            "lor_vs_random_calm": run.ratio("random_at_60_p99_calm_ms", "lor_at_60_p99_calm_ms"),
            "lor_vs_random_rps": round(lor / random, 3) if random else None,
            "lor_rps_within_level": round(lor),
            "random_rps_within_level": round(random),
        },
        level_ms=LEVEL_MS,
        decided_by="P99 of all requests, median of the seeds, at this rate and every lower one",
        rps_within_level_by_seed={
            name: [round(rate) for rate in run.within_by_seed(name)] for name in run.climbed
        },
        climb={
            name: [
                {
                    "rps": round(rate),
                    "p99_ms": round(run.p99_ms(name, rate, DECIDES), 2),
                    "p99_calm_ms": round(run.p99_ms(name, rate, BESIDE), 2),
                }
                for rate in sorted(rates)
            ]
            for name, rates in run.climbed.items()
        },
        samples={name: spread(values) for name, values in run.samples.items()},
        seconds=options.seconds,
        search_seconds=options.search_seconds,
        foreground=run.foreground,
        **details,
        seeds=list(run.seeds),
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
def inline() -> Iterator[str]:
    """The classifier in one process."""
    port = free_port()
    paths = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    argv = [sys.executable, "-m", "bench.peers.intent_inline", str(port)]
    with running(argv, env={"PYTHONPATH": paths}):
        url = f"http://127.0.0.1:{port}/"
        wait_answer(url, BODIES[0].encode(), timeout_s=60)
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
