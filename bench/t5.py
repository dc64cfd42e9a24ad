"""T5 of real shapes, 9 tokens in and 11 out, greedy: PyTorch, CTranslate2, ours, and the limit.

Weights are random (the time does not depend on them); lengths are forced. Every peer is a process
of its own that stays loaded; rounds alternate between them. The limit is the time to read the
weights once per token at the memory bandwidth that this machine shows in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from tools.environments import interpreter, make

from bench.report import ROOT, finish, spread, versions

TOKENS_IN, TOKENS_OUT = 9, 11
CONCURRENCY = (1, 4, 16)
VOCABULARY = 32128
WIDTHS = {"small": 512, "base": 768}
ITEM_BYTES = {"f32": 4, "bf16": 2, "int8": 1}
PEERS = Path(__file__).parent / "peers"
CACHE = ROOT / ".cache" / "bench-t5"


class Peer:
    """A process that answers one JSON line with one."""

    def __init__(self, name: str, argv: list[str]) -> None:
        self.name = name
        self.log = (CACHE / f"{name}.log").open("w")
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TOKENIZERS_PARALLELISM": "false"},
        )  # fmt: skip
        if self._line() != "ready\n":
            raise RuntimeError(f"{name} did not start: see {self.log.name}")

    def ask(self, sources: list[list[int]], repeats: int) -> dict[str, Any]:
        assert self.process.stdin is not None
        asked = {"sources": sources, "repeats": repeats, "tokens": TOKENS_OUT}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        line = self._line()
        if not line:
            raise RuntimeError(f"{self.name} ended: see {self.log.name}")
        return dict(json.loads(line))

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)
        self.log.close()


def peers_of(size: str, only: list[str]) -> tuple[list[Peer], dict[str, str]]:
    folder = CACHE / size
    compiler = make("compile")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(
        [str(compiler), str(PEERS / "t5_prepare.py"), str(folder), size], check=True,
        env=environment, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    source = str(folder / "source")
    argvs = {
        "pytorch_f32": [str(compiler), str(PEERS / "t5_torch.py"), source, "float32"],
        "pytorch_bf16": [str(compiler), str(PEERS / "t5_torch.py"), source, "bfloat16"],
    }
    ct2 = [str(interpreter("ct2")), str(PEERS / "t5_ct2.py"), source]
    for kind in ("float32", "int8"):
        argvs[f"ct2_{kind}"] = [*ct2, str(folder / "ct2"), kind]
    for precision in ITEM_BYTES:
        argvs[f"ours_{precision}"] = [
            sys.executable, str(PEERS / "t5_ours.py"), str(folder / precision),
        ]  # fmt: skip
    peers, missing = [], {}
    for name, argv in argvs.items():
        if only and name not in only:
            continue
        try:
            if name.startswith("ct2"):
                make("ct2")
            peers.append(Peer(name, argv))
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            if not name.startswith("ct2"):
                raise
            missing[name] = f"not measured: {error}"
            print(f"{name:13} {missing[name]}", flush=True)
    return peers, missing


def bandwidth_bytes_s() -> float:
    """Reading 1 GiB, larger than the caches, with all cores; the best of several."""
    cores = len(os.sched_getaffinity(0))
    parts = np.array_split(np.ones(1 << 28, dtype=np.float32), cores)
    best = 0.0
    with ThreadPoolExecutor(cores) as pool:
        for read in (np.max, lambda part: np.dot(part[: len(part) // 2], part[len(part) // 2 :])):
            for _ in range(4):
                started = time.perf_counter()
                list(pool.map(read, parts))
                best = max(best, (1 << 30) / (time.perf_counter() - started))
    return best


def weight_bytes(size: str, precision: str) -> int:
    """Read for one answer: the encoder once without its embedding table, the decoder per token."""
    folder = CACHE / size / precision
    table = VOCABULARY * WIDTHS[size] * ITEM_BYTES[precision]
    encoder = (folder / "encoder.bin").stat().st_size - table
    return encoder + TOKENS_OUT * (folder / "decoder.bin").stat().st_size


def measure(size: str, options: argparse.Namespace) -> dict[str, Any]:
    peers, missing = peers_of(size, options.only)
    rng = random.Random(0)
    sources = [[rng.randrange(3, VOCABULARY) for _ in range(TOKENS_IN)] for _ in range(16)]
    samples: dict[tuple[str, int], list[float]] = {}
    tokens: dict[str, list[list[int]]] = {}
    speeds = []
    try:
        for peer in peers:
            for count in CONCURRENCY:
                tokens[peer.name] = peer.ask(sources[:count], 2)["tokens"]
        for turn in range(options.rounds):
            speeds.append(bandwidth_bytes_s())
            for peer in peers:
                time.sleep(0.5)  # the threads of the peer before may still spin
                for count in CONCURRENCY:
                    repeats = options.repeats if count == 1 else max(1, options.repeats // 4)
                    answer = peer.ask(sources[:count], repeats)
                    taken = statistics.median(answer["s"])
                    samples.setdefault((peer.name, count), []).append(taken)
                alone = samples[peer.name, 1][-1] * 1e3
                print(f"{size} round {turn + 1} {peer.name:13} {alone:8.2f} ms", flush=True)
    finally:
        for peer in peers:
            peer.close()
    return figures(size, samples, tokens, speeds) | {"missing": missing}


def figures(
    size: str,
    samples: dict[tuple[str, int], list[float]],
    tokens: dict[str, list[list[int]]],
    speeds: list[float],
) -> dict[str, Any]:
    """Ratios are of the same round, then their median."""
    names = {name for name, _ in samples}
    result: dict[str, Any] = {}

    def against(one: str, other: str, key: str) -> None:
        if one in names and other in names:
            pairs = zip(samples[one, 1], samples[other, 1], strict=True)
            result[key] = round(statistics.median(a / b for a, b in pairs), 2)

    against("pytorch_f32", "ours_int8", "speedup_vs_pytorch")
    against("pytorch_f32", "ours_bf16", "speedup_vs_pytorch_bf16")
    against("pytorch_f32", "ours_f32", "speedup_vs_pytorch_f32")
    against("pytorch_bf16", "ours_bf16", "ours_bf16_vs_pytorch_bf16")
    against("ct2_int8", "ours_int8", "ours_int8_vs_ct2_int8")
    against("ct2_float32", "ours_f32", "ours_f32_vs_ct2_float32")
    for precision in ITEM_BYTES:
        if f"ours_{precision}" not in names:
            continue
        pairs = zip(speeds, samples[f"ours_{precision}", 1], strict=True)
        needed = weight_bytes(size, precision)
        key = "of_limit" if precision == "int8" else f"of_limit_{precision}"
        result[key] = round(statistics.median(needed / speed / s for speed, s in pairs), 3)
    wanted = tokens.get("pytorch_f32")
    if wanted:
        same = {
            name: sum(a == b for a, b in zip(wanted, given, strict=True)) / len(wanted)
            for name, given in tokens.items()
        }
        result["answers_equal"] = {name: round(part, 3) for name, part in same.items()}
        if same.get("ours_f32", 1.0) < 1.0:
            raise RuntimeError(f"FP32 answers differ from PyTorch's: {same['ours_f32']:.3f} equal")
    result["ms"] = {name: spread([s * 1e3 for s in samples[name, 1]]) for name in sorted(names)}
    result["tokens_per_s"] = {
        name: {
            str(count): round(count * TOKENS_OUT / statistics.median(samples[name, count]))
            for count in CONCURRENCY
        }
        for name in sorted(names)
    }
    result["bandwidth_gb_s"] = spread([speed / 1e9 for speed in speeds])
    return result


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench t5")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--sizes", nargs="*", choices=list(WIDTHS), default=list(WIDTHS))
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args(arguments)
    CACHE.mkdir(parents=True, exist_ok=True)
    results = {size: measure(size, options) for size in options.sizes}
    first = results.pop(options.sizes[0])
    finish(
        "t5",
        {"model": f"t5-{options.sizes[0]}", **first},
        others={f"t5-{size}": result for size, result in results.items()},
        tokens_in=TOKENS_IN,
        tokens_out=TOKENS_OUT,
        rounds=options.rounds,
        repeats=options.repeats,
        seed=0,
        versions=versions("penstock", "openvino", "numpy"),
    )
