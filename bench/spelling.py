"""The spelling corrector over HTTP, against the same model through PyTorch's `generate`.

Ours serves the committed artifact: one decode batch of 16 rows on one core. The peer runs
`generate` of transformers on the very same weights, greedy as ours, behind the same server. Its
settings are swept first: batches of 1, 8 and 32 texts, one lane and several, one core and all; the
best is compared, in FP32 and with BF16 weights, and the best on one core beside it. `vs_pytorch` is
the lowest of the ratios. Rounds alternate; while one is asked, the others idle.

First answers are compared, and counted against what was meant (`exact_match_held_out`: queries and
misspelt forms that training did not have). Then each is asked as fast as it answers (closed loop),
and at 60 % of that rate with Poisson arrivals. The load generator runs on the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

from bench import spelling_servers as servers
from bench import wrk
from bench.arithmetic import (
    alternated,
    best,
    long_enough,
    median_ratio,
    ratios,
    share_equal,
    worst,
)
from bench.machine import OthersLoad, foreground
from bench.open_loop import open_loop
from bench.report import finish, spread, versions, versions_in

LOAD = 0.6  #: of the closed loop's rate, for the latencies
AGREEMENT_MIN = 0.98  #: of FP32 answers; both compute in FP32, in another order
OURS, FP32, BF16, ONE_CORE = "ours", "pytorch_f32", "pytorch_bf16", "pytorch_f32_one_core"


@dataclass
class Seen:
    """What was seen of one server; a value per round."""

    server: servers.Server
    rps: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)  #: share refused or failed at that rate


def queries() -> list[str]:
    """Typed by hand, with and without errors."""
    lines = (servers.EXAMPLE / "handwritten.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[0] for line in lines if line]


def held_out(count: int) -> list[tuple[str, str]]:
    """(typed, meant) of the example's held-out set; its modules are scripts of a folder."""
    intent = servers.EXAMPLE.with_name("query_intent")
    ask = (
        f"import sys; sys.path[:0] = [{str(servers.EXAMPLE)!r}, {str(intent)!r}]\n"
        "from pathlib import Path; from pairs import Corpus\n"
        f"path = Path({str(servers.EXAMPLE)!r}, 'handwritten.tsv')\n"
        "corpus = Corpus(7, held_out=5000, new_words=0, handwritten=path)\n"
        f"for pair in corpus.held_out[:{count}]: print(pair.typed, pair.meant, sep='\\t')"
    )
    run = subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True)
    return [(line.split("\t")[0], line.split("\t")[1]) for line in run.stdout.splitlines()]


def closed_loop(server: servers.Server, *, seconds: float) -> float:
    bodies = [server.body(query) for query in queries()]
    load = wrk.closed_loop(server.url, *bodies, connections=server.connections, seconds=seconds)
    if load.failed:
        raise RuntimeError(f"{load.failed} requests failed at {server.url}")
    return load.rps


def sweep(source: Any, options: argparse.Namespace) -> dict[servers.PyTorchSetting, list[float]]:
    """Answers per second of PyTorch at each setting; one run each."""
    found: dict[servers.PyTorchSetting, list[float]] = {}
    for setting in servers.settings():
        with servers.pytorch(source, setting) as server:
            server.answers(queries()[: server.connections])
            try:
                found[setting] = [closed_loop(server, seconds=options.sweep_seconds)]
            except wrk.NothingAnswered:  # threads that spin for each other, on a busy machine
                found[setting] = [0.0]
        print(f"sweep {setting.name:38} {found[setting][0]:8.1f} requests/s", flush=True)
    return found


def chosen(
    swept: dict[servers.PyTorchSetting, list[float]],
) -> dict[str, servers.PyTorchSetting]:
    """The best setting, the same with BF16 weights, and the best on as many cores as ours has."""
    overall = best(swept)
    one_core = best({setting: rps for setting, rps in swept.items() if setting.cores == 1})
    return {FP32: overall, BF16: replace(overall, dtype="bfloat16"), ONE_CORE: one_core}


def compared(seen: dict[str, Seen], count: int) -> dict[str, Any]:
    """Agreement with PyTorch FP32, and exact matches, both measured now."""
    given = {name: each.server.answers(queries()) for name, each in seen.items()}
    agree = {name: round(share_equal(answers, given[FP32]), 4) for name, answers in given.items()}
    if agree[OURS] < AGREEMENT_MIN:
        raise RuntimeError(f"only {agree[OURS]:.3f} of the answers agree: not the same model")
    pairs = held_out(count)
    typed, meant = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    exact = {
        name: round(share_equal(each.server.answers(typed), meant), 4)
        for name, each in seen.items()
        if name != ONE_CORE
    }
    exact["unchanged"] = round(share_equal(typed, meant), 4)
    print(f"agree with PyTorch FP32: {agree}; exact of {count} held out: {exact}", flush=True)
    return {"answers_agree": agree, "exact_match_held_out": exact, "held_out": count}


def one_round(name: str, seen: Seen, options: argparse.Namespace, seed: int) -> None:
    time.sleep(0.5)  # the threads of the one before may still spin
    server = seen.server
    # The peer takes seconds for a first answer to everybody.
    rough = closed_loop(server, seconds=max(2.0, options.seconds / 2))
    rps = closed_loop(server, seconds=long_enough(options.seconds, rows=server.rows, rate=rough))
    server.answers(queries()[:1])  # it stands behind what the closed loop left
    figures = open_loop(
        server.url,
        [server.body(query).decode() for query in queries()],
        rate=LOAD * rps,
        seconds=max(options.seconds, 300 / (LOAD * rps)),
        seed=seed,
    )
    lost = figures.failed + figures.refused
    if lost and name == OURS:
        raise RuntimeError(f"{name}: {figures.failed} failed, {figures.refused} refused")
    # With smaller batches than the closed loop's a peer may not keep up with most of its rate.
    seen.lost.append(lost / (lost + figures.answered))
    seen.rps.append(rps)
    seen.p50_ms.append(figures.p50_ms)
    seen.p99_ms.append(figures.p99_ms)
    print(
        f"{name:21} {rps:8.1f} rps   at {LOAD:.0%}: P50 {figures.p50_ms:7.2f} ms,"
        f" P99 {figures.p99_ms:7.2f} ms, lost {seen.lost[-1]:.1%}",
        flush=True,
    )


def figures(seen: dict[str, Seen]) -> dict[str, Any]:
    """What is told first; ratios are of the same round, then their median."""
    by_peer = {
        name: round(median_ratio(seen[OURS].rps, each.rps), 2)
        for name, each in seen.items()
        if name != OURS
    }
    at_best = worst(by_peer)
    return {
        "sustained_rps": round(statistics.median(seen[OURS].rps), 1),
        "p99_ms": round(statistics.median(seen[OURS].p99_ms), 2),
        "p50_ms": round(statistics.median(seen[OURS].p50_ms), 2),
        "vs_pytorch": at_best[1],
        "vs_pytorch_at": at_best[0],
        "ratios": by_peer,
        "by_server": {
            name: {
                "rps": spread(each.rps),
                "p50_ms": spread(each.p50_ms),
                "p99_ms": spread(each.p99_ms),
                "lost": spread(each.lost),
                **({} if name == OURS else {"ours_is": spread(ratios(seen[OURS].rps, each.rps))}),
            }
            for name, each in seen.items()
        },
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench spelling")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--sweep-seconds", type=float, default=4.0, help="of each setting")
    parser.add_argument("--connections", type=int, default=64, help="of ours")
    parser.add_argument("--held-out", type=int, default=1000, help="queries whose answers count")
    options = parser.parse_args(arguments)
    wrk.require_wrk()
    source = servers.prepared_source()
    in_front = foreground()
    swept = sweep(source, options)
    settings = chosen(swept)
    with contextlib.ExitStack() as stack, OthersLoad() as others:
        seen = {OURS: Seen(stack.enter_context(servers.ours(connections=options.connections)))}
        for name, setting in settings.items():
            seen[name] = Seen(stack.enter_context(servers.pytorch(source, setting)))
        answers = compared(seen, options.held_out)
        for turn in range(options.rounds):
            for name in alternated(list(seen), turn):
                one_round(name, seen[name], options, seed=turn)
    finish(
        "spelling",
        figures(seen),
        **answers,
        ours={"lanes": 1, "threads_per_lane": 1, "batch": 16, "beams": 1},
        peer_settings={name: setting.name for name, setting in settings.items()},
        peer_swept={setting.name: round(rps[0], 1) for setting, rps in swept.items()},
        beams=1,
        load=LOAD,
        connections={name: each.server.connections for name, each in seen.items()},
        others_cores=round(others.cores, 2),
        foreground=in_front,
        rounds=options.rounds,
        seconds=options.seconds,
        seed=0,
        versions=versions("penstock", "openvino", "tokenizers", "numpy"),
        peers=versions_in("compile", "torch", "transformers"),
    )
