"""What serving costs: the example classifier over HTTP against its own compiled model, bare.

Both use the same compiled model, the same threads and the same batch: the rows that the served
run's batches had, from its own metrics, are what the bare loop runs, over inputs that are tokenized
beforehand. So the bare loop pays neither for HTTP nor for tokenizing nor for queues:
`served_ratio` is the share of the model's own speed that a client sees. Rounds alternate. Both
run shapes that come often on graphs of their own (`runtimes/openvino_shapes.py`), and are warm.

At 60 % of the served rate requests come at Poisson times; `p99_calm_ms_at_60` leaves out those that
were on their way while the machine stalled (`machine.py`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bench import wrk
from bench.deployment import deploy
from bench.machine import OthersLoad, foreground
from bench.open_loop import Figures, open_loop
from bench.processes import penstock_up, post, wait_answer
from bench.report import ROOT, finish, spread, versions
from penstock.artifacts import detect
from penstock.runtimes.base import LoadContext
from penstock.runtimes.openvino import OpenVinoRuntime

ARTIFACT = ROOT / "examples" / "query_intent" / "artifact"
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
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=96)
    options = parser.parse_args(arguments)
    found = detect.detect(ARTIFACT)
    served: list[wrk.Load] = []
    bare: list[float] = []
    batches: list[float] = []
    at_60: list[Figures] = []
    others_cores: list[float] = []
    with penstock_up() as base_url:
        deploy(base_url, "intent", ARTIFACT)
        url = f"{base_url}/endpoints/intent/invocations"
        bodies = [json.dumps({"inputs": query}) for query in QUERIES]
        wait_answer(url, bodies[0].encode(), timeout_s=30)
        check_answers(url, found.description)
        sent = [body.encode() for body in bodies]
        in_front = foreground()
        wrk.closed_loop(url, *sent, connections=options.connections, seconds=3)
        for turn in range(options.rounds):
            before = batch_counts(base_url)
            with OthersLoad() as others:
                load_ = wrk.closed_loop(
                    url, *sent, connections=options.connections, seconds=options.seconds
                )
            after = batch_counts(base_url)
            rows = mean_rows(before, after)
            rate = bare_rate(found, round(rows), seconds=options.seconds)
            served.append(load_)
            bare.append(rate)
            batches.append(rows)
            others_cores.append(others.cores)
            at_60.append(
                open_loop(
                    url, bodies, rate=0.6 * load_.rps, seconds=options.seconds, connections=256
                )
            )
            print(
                f"round {turn + 1}: served {load_.rps:8,.0f} rows/s in batches of {rows:4.1f},"
                f" bare {rate:8,.0f} rows/s, ratio {load_.rps / rate:.3f};"
                f" at 60 %: P50 {at_60[-1].p50_ms:.1f} ms, P99 {at_60[-1].p99_ms:.1f} ms",
                flush=True,
            )
    if any(one.failed for one in served) or any(one.failed for one in at_60):
        raise RuntimeError(f"requests failed: {served} {at_60}")
    report(
        served,
        bare,
        at_60,
        batch_rows=spread(batches),
        others_cores=spread(others_cores),
        foreground=in_front,
        connections=options.connections,
    )


def report(served: list[wrk.Load], bare: list[float], at_60: list[Figures], **details: Any) -> None:
    ratios = [one.rps / other for one, other in zip(served, bare, strict=True)]
    finish(
        "overhead",
        {
            "served_ratio": round(statistics.median(ratios), 3),
            "p99_ms_at_60": round(statistics.median(one.p99_ms for one in at_60), 3),
            "p99_calm_ms_at_60": round(statistics.median(one.p99_calm_ms for one in at_60), 3),
            "p50_ms_at_60": round(statistics.median(one.p50_ms for one in at_60), 3),
            "served_rps": round(statistics.median(load_.rps for load_ in served)),
            "bare_rps": round(statistics.median(bare)),
        },
        served_ratio_spread=spread(ratios),
        stalled_share_at_60=spread([one.stalled_share for one in at_60]),
        **details,
        versions=versions("penstock", "openvino", "tokenizers", "uvloop", "httptools"),
    )


def batch_counts(base_url: str) -> tuple[float, float]:
    """(rows, batches x rows) so far: sum and count of penstock_batch_rows, over requests."""
    with urllib.request.urlopen(f"{base_url}/metrics") as answer:
        text = answer.read().decode()
    values: dict[str, float] = {}
    for line in text.splitlines():
        for suffix in ("_sum", "_count"):
            if line.startswith(f"penstock_batch_rows{suffix}"):
                values[suffix] = values.get(suffix, 0.0) + float(line.rsplit(" ", 1)[1])
    return values["_sum"], values["_count"]


def mean_rows(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Mean rows of the batch that a request was answered in."""
    return (after[0] - before[0]) / max(1.0, after[1] - before[1])


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
