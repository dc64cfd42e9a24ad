"""What serving costs: the example classifier over HTTP against its own compiled model, bare.

Both use the same compiled model, the same threads and the same batch: the rows that the served
run's batches had, from its own metrics, are what the bare loop runs, over inputs that are tokenized
beforehand. So the bare loop pays neither for HTTP nor for tokenizing nor for queues: a ratio is the
share of the model's own speed that a client sees. Rounds alternate. Both run shapes that come often
on graphs of their own (`runtimes/openvino/shapes.py`), and are warm.

`served_ratio` is the lowest of all numbers of connections: with few of them the lane waits for the
clients. `served_ratio_at_most` is that of the number with which most was served, and `of_best_bare`
compares the same with the bare loop at whichever batch size it is fastest.

At 60 % of the served rate requests come at Poisson times; `p99_calm_ms_at_60` leaves out those that
were on their way while the machine stalled (`machine.py`), and stands beside P99 only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench import wrk
from bench.arithmetic import alternated, median_ratio, worst
from bench.batches import batch_counts, mean_rows
from bench.deployment import deploy
from bench.machine import OthersLoad, foreground
from bench.open_loop import Figures, open_loop
from bench.processes import penstock_up, post, wait_answer
from bench.report import ROOT, finish, spread, versions
from penstock.artifacts.detection import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino.runtime import OpenVinoRuntime

CONNECTIONS = (8, 32, 128, 512)
BARE_ROWS = (1, 8, 16, 32, 64)
ARTIFACT = ROOT / "examples" / "query_intent" / "artifact"
CACHE = ROOT / ".cache" / "bench" / "overhead"  #: compiled graphs
QUERIES = (
    "where is my order",
    "red running shoes size 42",
    "play the new album",
    "how do i return a broken kettle",
    "wireless headphones under 50",
    "track parcel 88213",
    "gift for a ten year old",
    "open my wish list",
)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench overhead")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, nargs="*", default=list(CONNECTIONS))
    options = parser.parse_args(arguments)
    run = Run()
    with penstock_up() as base_url:
        deploy(base_url, "intent", ARTIFACT)
        url = f"{base_url}/endpoints/intent/invocations"
        bodies = [json.dumps({"inputs": query}) for query in QUERIES]
        wait_answer(url, bodies[0].encode(), timeout_s=30)
        check_answers(url, run.model.description)
        sent = [body.encode() for body in bodies]
        in_front = foreground()
        wrk.closed_loop(url, *sent, connections=max(options.connections), seconds=3)
        with OthersLoad() as others:
            for turn in range(options.rounds):
                for count in alternated(options.connections, turn):
                    run.served_and_bare(base_url, url, sent, count, options.seconds)
                rate = 0.6 * max(run.served[count][-1].rps for count in options.connections)
                seen = open_loop(
                    url, bodies, rate=rate, seconds=options.seconds, connections=256, seed=turn + 1
                )
                run.at_60.append(seen)
                told = f"P50 {seen.p50_ms:.1f} ms, P99 {seen.p99_ms:.1f} ms"
                print(f"round {turn + 1} at 60 %, {rate:,.0f} requests/s: {told}", flush=True)
        for rows in BARE_ROWS:
            run.bare_by_rows[rows] = bare_rate(run.model, rows, seconds=options.seconds / 2)
            print(f"bare in batches of {rows:2}: {run.bare_by_rows[rows]:8,.0f} rows/s", flush=True)
    if any(load.failed for loads in run.served.values() for load in loads):
        raise RuntimeError(f"requests failed: {run.served}")
    if any(one.failed for one in run.at_60):
        raise RuntimeError(f"requests failed: {run.at_60}")
    report(run, options, others_cores=round(others.cores, 2), foreground=in_front)


class Run:
    """The samples of all rounds, by number of connections."""

    def __init__(self) -> None:
        self.model = detect.detect(ARTIFACT)
        self.served: dict[int, list[wrk.Load]] = defaultdict(list)
        self.bare: dict[int, list[float]] = defaultdict(list)
        self.rows: dict[int, list[float]] = defaultdict(list)
        self.at_60: list[Figures] = []
        self.bare_by_rows: dict[int, float] = {}

    def served_and_bare(
        self, base_url: str, url: str, sent: list[bytes], count: int, seconds: float
    ) -> None:
        before = batch_counts(base_url)
        load = wrk.closed_loop(url, *sent, connections=count, seconds=seconds)
        rows = mean_rows(before, batch_counts(base_url))
        rate = bare_rate(self.model, max(1, round(rows)), seconds=seconds / 2)
        self.served[count].append(load)
        self.rows[count].append(rows)
        self.bare[count].append(rate)
        print(
            f"{count:4} connections: served {load.rps:8,.0f} rows/s in batches of {rows:4.1f},"
            f" P99 {load.p99_ms:6.1f} ms, bare {rate:8,.0f} rows/s, ratio {load.rps / rate:.3f}",
            flush=True,
        )

    def rps(self, count: int) -> list[float]:
        return [load.rps for load in self.served[count]]


def report(run: Run, options: argparse.Namespace, **details: Any) -> None:
    by_count = {
        count: round(median_ratio(run.rps(count), run.bare[count]), 3) for count in run.served
    }
    lowest_at, lowest = worst(by_count)
    most = max(run.served, key=lambda count: statistics.median(run.rps(count)))
    bare_best = max(run.bare_by_rows.values())
    served_rps = statistics.median(run.rps(most))
    finish(
        "overhead",
        {
            "served_ratio": lowest,
            "served_ratio_at_connections": lowest_at,
            "served_ratio_at_most": by_count[most],
            "of_best_bare": round(served_rps / bare_best, 3),
            "p99_ms_at_60": round(statistics.median(one.p99_ms for one in run.at_60), 3),
            "p99_calm_ms_at_60": round(statistics.median(one.p99_calm_ms for one in run.at_60), 3),
            "p50_ms_at_60": round(statistics.median(one.p50_ms for one in run.at_60), 3),
            "served_rps": round(served_rps),
            "bare_rps": round(statistics.median(run.bare[most])),
        },
        by_connections={
            count: {
                "served_ratio": by_count[count],
                "served_rps": spread(run.rps(count)),
                "bare_rps": spread(run.bare[count]),
                "batch_rows": spread(run.rows[count]),
                "p99_ms": spread([load.p99_ms for load in run.served[count]]),
            }
            for count in run.served
        },
        most_at_connections=most,
        bare_rps_by_rows={rows: round(rate) for rows, rate in run.bare_by_rows.items()},
        stalled_share_at_60=spread([one.stalled_share for one in run.at_60]),
        **details,
        rounds=options.rounds,
        seconds=options.seconds,
        versions=versions("penstock", "openvino", "tokenizers", "uvloop", "httptools"),
    )


def bare_rate(found: Any, rows: int, *, seconds: float) -> float:
    """Rows per second of the compiled model alone, tokens made beforehand.

    The queries fall into buckets of padded length; batches of each take turns as often as its
    queries come, since the server does not mix them either.
    """
    runtime = OpenVinoRuntime(context(found))
    batches = [tokenized(found.description, query, rows) for query in QUERIES]
    for _ in range(40):
        for inputs in batches:
            runtime.run(0, inputs)
    runtime.wait_compiled()
    start, count = time.perf_counter(), 0
    while time.perf_counter() < start + seconds:
        runtime.run(0, batches[count % len(batches)])
        count += 1
    elapsed = time.perf_counter() - start
    runtime.close()
    return count * rows / elapsed


def context(found: Any) -> LoadContext:
    """As the instance of type ml.local.small loads it."""
    return LoadContext(
        model_dir=found.root,
        description=found.description,
        endpoint_name="intent",
        variant_name="all",
        cores=1.0,
        memory_bytes_max=0,
        cache_dir=CACHE,
    )


def tokenized(description: Any, query: str, rows: int) -> dict[str, np.ndarray]:
    """`rows` times the query, padded as the instance pads it."""
    tokenizer = Tokenizer.from_file(str(Path(ARTIFACT, description.tokenizer.file)))
    ids = tokenizer.encode(query).ids
    buckets = description.batching.buckets or (len(ids),)
    length = next(size for size in buckets if size >= len(ids))
    padded = ids + [description.tokenizer.pad_id] * (length - len(ids))
    mask = [1] * len(ids) + [0] * (length - len(ids))
    return {
        "input_ids": np.array([padded] * rows, dtype=np.int64),
        "attention_mask": np.array([mask] * rows, dtype=np.int64),
    }


def check_answers(url: str, description: Any) -> None:
    """The server's label for each query must be one of the model's labels."""
    for query in QUERIES:
        (best,) = json.loads(post(url, json.dumps({"inputs": query}).encode()))
        if best["label"] not in description.labels:
            raise RuntimeError(f"{query!r} was answered {best}")
