"""BERT classifiers of real shapes: PyTorch, ONNX Runtime and ours, bare and served over HTTP.

Bare: every peer is a process of its own that stays loaded, asked for the same token ids in rounds
that alternate between them. PyTorch runs eager, in FP32 and in BF16. Served: BERT-base with texts
of 16 tokens through the whole platform, against PyTorch FP32 and BF16 behind the same server, each
at the best of several settings, which are swept first (`bert_served.py`). Cost is time of the
machine: all cores are one model's while it is measured, so seconds per answer are 1 / answers per
second. Savings are told against each of PyTorch's precisions; those told first are the smallest.
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

from bench import wrk
from bench.arithmetic import (
    alternated,
    best,
    long_enough,
    median_ratio,
    ratios,
    savings,
    share_equal,
    worst,
)
from bench.bert_models import NAMES, Model, Peer, loaded, made, ours
from bench.bert_served import (
    PYTORCH_SETTINGS,
    STOCK,
    Endpoint,
    PyTorchSetting,
    Served,
    endpoint,
    pytorch_endpoint,
    with_a_lane_per_core,
)
from bench.machine import OthersLoad, foreground
from bench.report import finish, spread, versions, versions_in
from penstock.runtimes.processor import instruction_set_here

SHAPES = ("1x16", "32x16", "8x128")
SERVED_SIZE, SERVED_TOKENS = "base", 16
OURS = ("ours_int8", "ours_bf16", "ours_f32")
PYTORCH = {"pytorch_f32": "float32", "pytorch_bf16": "bfloat16"}
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
    model: Model, peers: list[Peer], shapes: list[str], seconds: float, times: Times, turn: int
) -> None:
    for shape in shapes:
        ids = ids_of(model, shape)
        for peer in alternated(peers, turn):
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
        same = share_equal(given.argmax(1).tolist(), wanted.argmax(1).tolist())
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
        f"served {what:38} {run.rps:8.1f} answers/s in batches of {run.rows:4.1f}"
        f"   P50 {run.p50_ms:7.1f} ms   P99 {run.p99_ms:7.1f} ms",
        flush=True,
    )
    return run


def sweep_pytorch(model: Model, seconds: float) -> dict[PyTorchSetting, list[float]]:
    """Answers per second of PyTorch at each setting; one run each."""
    found: dict[PyTorchSetting, list[float]] = {}
    for setting in PYTORCH_SETTINGS:
        with pytorch_endpoint(model, setting) as opened:
            opened.warm_up()
            try:
                found[setting] = [served_run(opened, seconds, f"sweep {setting.name}").rps]
            except wrk.NothingAnswered:  # threads that spin for each other, on a busy machine
                found[setting] = [0.0]
    return found


class ServedRuns:
    """Rounds of every endpoint in turn, ours each with the bare model at the rows that it had."""

    def __init__(self, model: Model, swept: dict[PyTorchSetting, list[float]]) -> None:
        self._model = model
        self._swept = swept
        self.settings = {"pytorch_stock": STOCK} | {
            name: best({each: rps for each, rps in swept.items() if each.dtype == dtype})
            for name, dtype in PYTORCH.items()
        }
        self.runs: dict[str, list[Served]] = defaultdict(list)
        self.bare: dict[str, list[float]] = defaultdict(list)  #: rows per second
        self.labels_equal: dict[str, float] = {}

    def measure(self, options: argparse.Namespace) -> None:
        """Endpoints stay loaded; only one is asked at a time."""
        with contextlib.ExitStack() as stack:
            found: dict[str, Endpoint] = {}
            bare_peers: dict[str, Peer] = {}
            for name, setting in self.settings.items():
                found[name] = stack.enter_context(pytorch_endpoint(self._model, setting))
            for name in OURS:
                lanes = with_a_lane_per_core(self._model.artifacts[name])
                folder = stack.enter_context(lanes)
                bare_peers[name] = stack.enter_context(ours(name, folder))
                opened = endpoint(
                    name.replace("_", "-"), folder, self._model.texts,
                    connections=options.connections,
                )  # fmt: skip
                found[name] = stack.enter_context(opened)
            labels = {name: each.labels() for name, each in found.items()}
            wanted = labels["pytorch_f32"]
            self.labels_equal = {
                name: round(share_equal(given, wanted), 4) for name, given in labels.items()
            }
            for each in found.values():
                each.warm_up()
            for turn in range(options.rounds):
                for name in alternated(list(found), turn):
                    seconds = self._seconds(name, options.seconds)
                    self.runs[name].append(served_run(found[name], seconds, name))
                    if name in bare_peers:
                        self._bare_round(name, bare_peers[name], options.seconds / 2)

    def _seconds(self, name: str, least: float) -> float:
        """PyTorch's batches take long: each run has many."""
        setting = self.settings.get(name)
        if setting is None:
            return least
        rate = self._swept[setting][0]
        return long_enough(least, rows=setting.rows * setting.lanes, rate=rate)

    def _bare_round(self, name: str, peer: Peer, seconds: float) -> None:
        rows = max(1, round(self.runs[name][-1].rows))
        time.sleep(PAUSE_S)
        ids = ids_of(self._model, f"{rows}x{SERVED_TOKENS}")
        self.bare[name].append(rows / statistics.median(peer.ask(ids, seconds)["s"]))

    def rps(self, name: str) -> list[float]:
        return [run.rps for run in self.runs[name]]


def served_figures(served: ServedRuns) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is told first, and the details. Ratios are of the same round, then their median."""
    saved = {
        name: {
            peer: round(statistics.median(savings(served.rps(name), served.rps(peer))), 4)
            for peer in served.settings
        }
        for name in OURS
    }
    figures: dict[str, Any] = {}
    for name in OURS:
        figures[f"cost_reduction_{name.removeprefix('ours_')}"] = worst(saved[name])[1]
    for name in OURS:
        figures[f"served_ratio_{name.removeprefix('ours_')}"] = round(
            median_ratio(served.rps(name), served.bare[name]), 3
        )
    for name in OURS:
        against = saved[name].items()
        print(f"{name} saves {', '.join(f'{each:.1%} of {peer}' for peer, each in against)}")
    details = {
        "cost_reductions": saved,
        "served_ratio_spread": {
            name: spread(ratios(served.rps(name), served.bare[name])) for name in OURS
        },
        "served_rps": {name: spread(served.rps(name)) for name in served.runs},
        "served_rows": {
            name: round(statistics.median(run.rows for run in runs), 1)
            for name, runs in served.runs.items()
        },
        "served_p99_ms": {
            name: spread([run.p99_ms for run in runs]) for name, runs in served.runs.items()
        },
        "bare_rps": {name: spread(rates) for name, rates in served.bare.items()},
        "served_labels_equal": served.labels_equal,
        "pytorch_settings": {name: each.name for name, each in served.settings.items()},
    }
    return figures, details


def batch_figures(times: Times) -> dict[str, Any]:
    """Milliseconds per batch, each peer's speed as a multiple of PyTorch's, and ours' savings."""
    result: dict[str, Any] = {}
    for (size, shape, name), samples in times.items():
        row: dict[str, Any] = {"ms": spread([s * 1e3 for s in samples])}
        for peer in PYTORCH:
            row[f"vs_{peer}"] = round(median_ratio(times[size, shape, peer], samples), 2)
        if name in OURS:
            rates = [1 / s for s in samples]
            for peer in PYTORCH:
                theirs = [1 / s for s in times[size, shape, peer]]
                row[f"saved_of_{peer}"] = round(statistics.median(savings(rates, theirs)), 4)
        result.setdefault(NAMES[size], {}).setdefault(shape, {})[name] = row
    return result


def bf16_words() -> str:
    """What this processor makes of BF16, since half of the table hangs on it."""
    here = instruction_set_here()
    if "AMX" in here.name:
        return f"{here.name}: BF16 and INT8 in tiles (AMX)"
    if here.bf16:
        return f"{here.name}: BF16 in vectors, no AMX"
    return (
        f"{here.name}: no BF16 and no AMX, so BF16 is computed as FP32; a comparison with PyTorch "
        "BF16 says nothing of processors that have it"
    )


def settings_of(model: Model) -> dict[str, Any]:
    described = yaml.safe_load((model.artifacts["ours_int8"] / "model.yaml").read_text())
    return {key: described.get(key) for key in ("lanes", "threads_per_lane", "batching")}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench bert")
    parser.add_argument("--sizes", nargs="*", choices=list(NAMES), default=list(NAMES))
    parser.add_argument("--shapes", nargs="*", default=list(SHAPES))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one run of load")
    parser.add_argument("--connections", type=int, default=192)
    options = parser.parse_args(arguments)
    sizes = [size for size in options.sizes if size != SERVED_SIZE] + [SERVED_SIZE]
    print(bf16_words(), flush=True)
    in_front = foreground()
    models = {size: made(size) for size in sizes}
    times: Times = defaultdict(list)
    agreements, parity, facts = {}, {}, {}
    for size, model in models.items():
        peers = loaded(model)
        try:
            for turn in range(options.rounds):
                bare_round(model, peers, options.shapes, options.seconds / 5, times, turn)
            agreements[NAMES[size]] = agreement(model, peers)
            parity[NAMES[size]] = {name: model.report(name)["parity"] for name in model.artifacts}
            facts[NAMES[size]] = model.facts
        finally:
            for peer in peers:
                peer.close()
    model = models[SERVED_SIZE]
    with OthersLoad() as others:
        swept = sweep_pytorch(model, options.seconds)
        served = ServedRuns(model, swept)
        served.measure(options)
    figures, details = served_figures(served)
    finish(
        "bert",
        figures,
        batches=batch_figures(times),
        **details,
        pytorch_swept={each.name: round(rps[0], 1) for each, rps in swept.items()},
        processor=bf16_words(),
        agreement=agreements,
        compile_parity=parity,
        models=facts,
        settings=settings_of(model),
        rounds=options.rounds,
        seconds=options.seconds,
        connections=options.connections,
        others_cores=round(others.cores, 2),
        foreground=in_front,
        seed=0,
        versions=versions("penstock", "openvino", "onnxruntime", "tokenizers", "numpy"),
        peers=versions_in("compile", "torch", "transformers"),
    )
