"""BERT classifiers of real shapes: PyTorch, ONNX Runtime and ours, bare and served over HTTP.

Bare: every peer is a process of its own that stays loaded, asked for the same token ids in rounds
that alternate between them. Served: BERT-base with texts of 16 tokens through the whole platform,
against stock PyTorch FP32 behind the same server (`bert_served.py`). Cost is time of the machine:
all cores are one model's while it is measured, so seconds per answer are 1 / answers per second.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
from collections import defaultdict
from typing import Any

import numpy as np
import yaml
from tokenizers import Tokenizer

from bench.bert_models import NAMES, Model, Peer, loaded, made, ours
from bench.bert_served import (
    STOCK_CONNECTIONS,
    Endpoint,
    Served,
    endpoint,
    stock,
    with_a_lane_per_core,
)
from bench.report import finish, spread, versions

SHAPES = ("1x16", "32x16", "8x128")
SERVED_SIZE, SERVED_TOKENS, SERVED_ROWS = "base", 16, 32
SERVED_NAMES = ("ours_int8", "ours_bf16")
#: Between two peers: threads of the one before may still spin.
PAUSE_S = 0.3

#: (size, shape, peer) -> seconds per batch, one median per round
Times = dict[tuple[str, str, str], list[float]]


def ids_of(model: Model, shape: str) -> list[list[int]]:
    """Token ids of real texts; longer rows repeat what lies between the special tokens."""
    rows, tokens = map(int, shape.split("x"))
    tokenizer = Tokenizer.from_file(str(model.source / "tokenizer.json"))
    found = []
    for at in range(rows):
        ids = tokenizer.encode(model.texts[at % len(model.texts)]).ids
        inner = ids[1:-1] * (1 + tokens // len(ids[1:-1]))
        found.append([ids[0], *inner[: tokens - 2], ids[-1]])
    return found


def bare_round(
    model: Model, peers: list[Peer], shapes: list[str], seconds: float, times: Times
) -> None:
    for shape in shapes:
        ids = ids_of(model, shape)
        for peer in peers:
            time.sleep(PAUSE_S)
            taken = statistics.median(peer.ask(ids, seconds)["s"])
            times[model.size, shape, peer.name].append(taken)
            print(
                f"{NAMES[model.size]:10} {shape:6} {peer.name:16} {taken * 1e3:8.2f} ms", flush=True
            )


def agreement(model: Model, peers: list[Peer]) -> dict[str, Any]:
    """Labels and probabilities of each peer against PyTorch FP32's, over all texts."""
    ids = ids_of(model, f"{len(model.texts)}x{SERVED_TOKENS}")
    found = {peer.name: np.array(peer.ask(ids, 0.0)["logits"]) for peer in peers}
    wanted = _softmax(found["pytorch_f32"])
    result = {}
    for name, logits in found.items():
        given = _softmax(logits)
        same = float((given.argmax(1) == wanted.argmax(1)).mean())
        result[name] = {
            "labels_equal": round(same, 4),
            "probability_difference_max": float(f"{np.abs(given - wanted).max():.3g}"),
        }
    if result["ours_f32"]["labels_equal"] < 1.0:
        raise RuntimeError(f"FP32 answers differ from PyTorch's: {result['ours_f32']}")
    return result


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def served_run(found: Endpoint, seconds: float, what: str) -> Served:
    time.sleep(PAUSE_S)
    run = found.load(seconds)
    if run.failed:
        raise RuntimeError(f"{what}: {run.failed} requests failed")
    print(
        f"served {what:12} {run.rps:8.1f} answers/s in batches of {run.rows:4.1f}"
        f"   P50 {run.p50_ms:7.1f} ms   P99 {run.p99_ms:7.1f} ms",
        flush=True,
    )
    return run


def serve_all(
    model: Model, peers: dict[str, Peer], options: argparse.Namespace
) -> tuple[dict[str, list[Served]], dict[str, list[float]], dict[str, float]]:
    """Rounds of every endpoint in turn, each with the bare model at the rows that its batches had.

    Returns runs by name, bare rows per second by name, and the share of labels equal to stock's.
    Endpoints stay loaded; only one is asked at a time.
    """
    runs: dict[str, list[Served]] = defaultdict(list)
    bare: dict[str, list[float]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        bare_peers = {"pytorch_f32": peers["pytorch_f32"]}
        folders = {"pytorch_f32": stack.enter_context(stock(model))}
        for name in SERVED_NAMES:
            folders[name] = stack.enter_context(with_a_lane_per_core(model.artifacts[name]))
            bare_peers[name] = stack.enter_context(ours(name, folders[name]))
        found = {}
        for name, folder in folders.items():
            count = STOCK_CONNECTIONS if name == "pytorch_f32" else options.connections
            opened = endpoint(name.replace("_", "-"), folder, model.texts, connections=count)
            found[name] = stack.enter_context(opened)
        labels = {name: each.labels() for name, each in found.items()}
        for each in found.values():
            each.load(1.0)
        for _ in range(options.rounds):
            for name, each in found.items():
                runs[name].append(served_run(each, options.seconds, name))
                rows = 1 if name == "pytorch_f32" else round(runs[name][-1].rows)
                time.sleep(PAUSE_S)
                ids = ids_of(model, f"{rows}x{SERVED_TOKENS}")
                taken = statistics.median(bare_peers[name].ask(ids, options.seconds)["s"])
                bare[name].append(rows / taken)
    wanted = labels["pytorch_f32"]
    same = {
        name: round(sum(a == b for a, b in zip(wanted, given, strict=True)) / len(wanted), 4)
        for name, given in labels.items()
    }
    return dict(runs), dict(bare), same


def served_figures(
    runs: dict[str, list[Served]], bare: dict[str, list[float]], times: Times
) -> tuple[dict[str, float], dict[str, Any]]:
    """Ratios are of the same round, then their median."""
    figures: dict[str, float] = {}
    details: dict[str, Any] = {}
    batched = times.get((SERVED_SIZE, f"{SERVED_ROWS}x{SERVED_TOKENS}", "pytorch_f32"), [])
    for name, suffix in (("ours_int8", ""), ("ours_bf16", "_bf16")):
        pairs = zip(runs["pytorch_f32"], runs[name], strict=True)
        samples = [1 - stock_run.rps / ours.rps for stock_run, ours in pairs]
        figures[f"cost_reduction{suffix}"] = round(statistics.median(samples), 4)
        details[f"cost_reduction{suffix}_spread"] = spread(samples)
        ratios = [run.rps / rate for run, rate in zip(runs[name], bare[name], strict=True)]
        figures[f"served_ratio{suffix}"] = round(statistics.median(ratios), 3)
        details[f"served_ratio{suffix}_spread"] = spread(ratios)
        if batched:
            free = [SERVED_ROWS / taken for taken in batched]
            pairs_batched = zip(free, runs[name], strict=False)
            figures[f"cost_reduction{suffix}_vs_batched"] = round(
                statistics.median(1 - rate / run.rps for rate, run in pairs_batched), 4
            )
    details["served_rps"] = {name: spread([run.rps for run in each]) for name, each in runs.items()}
    details["served_rows"] = {
        name: round(statistics.median(run.rows for run in each), 1) for name, each in runs.items()
    }
    details["served_p99_ms"] = {
        name: spread([run.p99_ms for run in each]) for name, each in runs.items()
    }
    details["bare_rps"] = {name: spread(rates) for name, rates in bare.items()}
    return figures, details


def batch_figures(times: Times) -> dict[str, Any]:
    """Milliseconds per batch, and each peer's speed as a multiple of PyTorch FP32's."""
    result: dict[str, Any] = {}
    for (size, shape, name), samples in times.items():
        first = times[size, shape, "pytorch_f32"]
        faster = statistics.median(a / b for a, b in zip(first, samples, strict=True))
        row = {"ms": spread([s * 1e3 for s in samples]), "vs_pytorch_f32": round(faster, 2)}
        result.setdefault(NAMES[size], {}).setdefault(shape, {})[name] = row
    return result


def settings_of(model: Model) -> dict[str, Any]:
    described = yaml.safe_load((model.artifacts["ours_int8"] / "model.yaml").read_text())
    return {key: described.get(key) for key in ("lanes", "threads_per_lane", "batching")}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench bert")
    parser.add_argument("--sizes", nargs="*", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one run of load")
    parser.add_argument("--connections", type=int, default=192)
    options = parser.parse_args(arguments)
    sizes = [size for size in options.sizes if size != SERVED_SIZE] + [SERVED_SIZE]
    times: Times = defaultdict(list)
    agreements, parity, facts = {}, {}, {}
    for size in sizes:
        model = made(size)
        peers = loaded(model)
        try:
            for _ in range(options.rounds):
                bare_round(model, peers, options.shapes, options.seconds / 5, times)
            agreements[NAMES[size]] = agreement(model, peers)
            parity[NAMES[size]] = {name: model.report(name)["parity"] for name in model.artifacts}
            facts[NAMES[size]] = model.facts
            if size == SERVED_SIZE:
                by_name = {peer.name: peer for peer in peers}
                runs, bare, same = serve_all(model, by_name, options)
        finally:
            for peer in peers:
                peer.close()
    figures, details = served_figures(runs, bare, times)
    finish(
        "bert",
        figures,
        batches=batch_figures(times),
        **details,
        served_labels_equal=same,
        agreement=agreements,
        compile_parity=parity,
        models=facts,
        settings=settings_of(model),
        rounds=options.rounds,
        seconds=options.seconds,
        connections={"ours": options.connections, "pytorch": STOCK_CONNECTIONS},
        seed=0,
        versions=versions("penstock", "openvino", "onnxruntime", "tokenizers", "numpy"),
    )
