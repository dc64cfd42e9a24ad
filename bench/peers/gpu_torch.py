"""PyTorch and runtime `torch` in one process (see bench/gpu.py); the last line is JSON.

`python gpu_torch.py FOLDER cuda|cpu ROUNDS`. Weights are random: the time of a batch depends on
shapes, not on what the weights say. Answers are compared before anything is timed.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import t5_prepare
import torch
import transformers

from penstock.artifacts.description.description import (
    Batching,
    Generation,
    ModelDescription,
    TensorSpec,
    Tokenizer,
)
from penstock.clock import SystemClock
from penstock.compile.contract import Options
from penstock.compile.encoder.encoder import encoder_graph
from penstock.compile.encoder.encoder_plan import plan_encoder
from penstock.compile.graphs.lowering import lower_exported
from penstock.compile.seq2seq.seq2seq import load_source
from penstock.compile.seq2seq.torch_t5 import as_programs, write_programs
from penstock.compile.targets import TARGETS
from penstock.runtimes.base import LoadContext
from penstock.runtimes.pytorch.runtime import TorchRuntime
from penstock.runtimes.pytorch.seq2seq import TorchSeq2SeqModel
from penstock.runtimes.seq2seq.decoding import DecodeLoop, DecodingJob
from penstock.runtimes.seq2seq.request import GenerationRequest

SHAPES = ((1, 16), (32, 16), (8, 128))
TOKENS_IN, TOKENS_OUT = 9, 11
CONCURRENCY = (1, 4, 16)
_APART_MAX = {"f32": 1e-3, "f16": 0.02}  #: of probabilities

Run = Callable[[], Any]


def main(folder: Path, device: str, rounds: int) -> None:
    torch.manual_seed(0)
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False  # FP32 means FP32, on both sides
    found: dict[str, Any] = {"on": device, "bandwidth_gb_s": round(bandwidth(device) / 1e9, 1)}
    found["bert_base"] = bert(folder / "bert", device, rounds)
    found["t5_small"] = t5(folder / "t5", device, rounds, found["bandwidth_gb_s"] * 1e9)
    print(json.dumps(found))


def bandwidth(device: str) -> float:
    """Bytes read and written by a copy that is larger than any cache; the best of several."""
    size = 2**30 if device == "cuda" else 2**26
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return max(2 * size / timed(lambda: target.copy_(source), device) for _ in range(8))


def timed(run: Run, device: str) -> float:
    started = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


def compared(runs: dict[str, Run], device: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each, one median per round; rounds alternate."""
    for run in runs.values():
        for _ in range(3):
            run()
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            samples = [timed(run, device)]
            until = time.perf_counter() + 0.3
            while time.perf_counter() < until and len(samples) < 200:
                samples.append(timed(run, device))
            taken[name].append(statistics.median(samples))
    return taken


def ratios(taken: dict[str, list[float]], ours: str) -> dict[str, Any]:
    """How many times as fast ours is, round by round; and the times, which on GPUs may be told."""
    return {
        "ms": {name: round(statistics.median(s) * 1e3, 3) for name, s in taken.items()},
        "speedup": {
            name: round(statistics.median(
                a / b for a, b in zip(taken[name], taken[ours], strict=True)), 2)
            for name in taken if name != ours
        },
    }  # fmt: skip


def context(root: Path, description: ModelDescription) -> LoadContext:
    return LoadContext(
        model_dir=root, description=description, endpoint_name="bench", variant_name="all",
        cores=float(torch.get_num_threads()), memory_bytes_max=0, log=print,
    )  # fmt: skip


# BERT


def bert(folder: Path, device: str, rounds: int) -> dict[str, Any]:
    if not (folder / "config.json").exists():
        model = transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=3))
        model.save_pretrained(folder)
    plan = plan_encoder(folder, Options(target="cuda-fp16"))
    graph = encoder_graph(plan, trust=False)
    ours: dict[str, Any] = {}
    for precision, target in (("f32", "cuda-fp32"), ("f16", "cuda-fp16")):
        made = folder / precision
        made.mkdir(exist_ok=True)
        lowered = lower_exported(graph, TARGETS[target], made, device=device)
        description = ModelDescription(
            runtime="torch", file=lowered.file, inputs=graph.inputs, outputs=graph.outputs,
            batching=Batching(rows_max=32, buckets=(16, 128)), parameters={"torch_device": device},
        )  # fmt: skip
        ours[precision] = TorchRuntime(context(made, description))
    eager = {
        "f32": graph.module.to(device),
        "f16": encoder_graph(plan, trust=False).module.to(device, torch.float16),
    }
    results: dict[str, Any] = {}
    for rows, tokens in SHAPES:
        inputs = batch(graph.inputs, rows, tokens)
        runs: dict[str, Run] = {}
        for precision in ("f32", "f16"):
            runs[f"pytorch_{precision}"] = partial(
                eagerly, eager[precision], list(inputs.values()), device
            )
            runs[f"ours_{precision}"] = partial(ours[precision].run, 0, inputs)
        wanted = shares(runs["pytorch_f32"]())
        for precision, allowed in _APART_MAX.items():
            apart = np.abs(shares(runs[f"ours_{precision}"]()["logits"]) - wanted).max()
            if not apart <= allowed:
                raise SystemExit(f"answers differ: {precision} by {apart:.2g}")
        name = f"{rows}x{tokens}"
        results[name] = ratios(compared(runs, device, rounds), "ours_f16")
        print(f"bert-base {name}: {results[name]['ms']}", flush=True)
    return results


def batch(specs: tuple[TensorSpec, ...], rows: int, tokens: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    made = {spec.name: np.ones((rows, tokens), dtype=np.int64) for spec in specs}
    return {**made, "input_ids": random.integers(1000, 30000, (rows, tokens))}


def eagerly(module: Any, arrays: list[np.ndarray], device: str) -> np.ndarray:
    with torch.inference_mode():
        answer = module(*(torch.from_numpy(array).to(device) for array in arrays))
        return np.asarray(answer.float().cpu())


def shares(logits: np.ndarray) -> np.ndarray:
    return np.asarray(torch.softmax(torch.from_numpy(np.asarray(logits)), -1))


# T5


def t5(folder: Path, device: str, rounds: int, bytes_per_s: float) -> dict[str, Any]:
    source = folder / "source"
    if not (source / "tokenizer_config.json").exists():
        source.mkdir(parents=True)
        t5_prepare.write_source(source, "small")
    model = load_source(source)
    config = {**model.config.to_dict(), "scale_decoder_outputs": getattr(
        model.config, "scale_decoder_outputs", False)}  # fmt: skip
    loops, sizes = {}, {}
    for precision in ("f32", "f16"):
        made = folder / precision
        made.mkdir(exist_ok=True)
        write_programs(model, config, made, precision=precision, device=device)
        description = as_programs(
            ModelDescription(
                runtime="seq2seq", task="text2text-generation", batching=Batching(rows_max=16),
                tokenizer=Tokenizer(tokens_max=64), generation=Generation(tokens_new_max=16),
            ),
            precision=precision, device=device,
        )  # fmt: skip
        loops[precision] = DecodeLoop(
            TorchSeq2SeqModel(context(made, description)), SystemClock(), start_id=0, eos_ids=(1,)
        )
        sizes[precision] = (made / "decoder.pt2").stat().st_size
    eager = {
        "f32": load_source(source).to(device),
        "f16": load_source(source).to(device, torch.float16),
    }
    random = np.random.default_rng(0)
    texts = random.integers(3, t5_prepare.VOCABULARY, (max(CONCURRENCY), TOKENS_IN)).tolist()
    results: dict[str, Any] = {}
    for count in CONCURRENCY:
        asked = texts[:count]
        runs: dict[str, Run] = {}
        for precision in ("f32", "f16"):
            runs[f"pytorch_{precision}"] = partial(generated, eager[precision], asked, device)
            runs[f"ours_{precision}"] = partial(decoded, loops[precision], asked)
        wanted = runs["pytorch_f32"]()
        same = {
            name: sum(a == b for a, b in zip(wanted, run(), strict=True)) / count
            for name, run in runs.items()
        }
        if same["ours_f32"] < 1.0:
            raise SystemExit(f"FP32 answers differ from PyTorch's: {same['ours_f32']:.3f} equal")
        taken = compared(runs, device, rounds)
        results[str(count)] = {**ratios(taken, "ours_f16"), "answers_equal": same}
        if count == 1:  # the weights are read once per token
            limit = TOKENS_OUT * sizes["f16"] / (bytes_per_s / 2)
            results["of_limit_f16"] = round(limit / statistics.median(taken["ours_f16"]), 3)
        print(f"t5-small x{count}: {results[str(count)]['ms']}", flush=True)
    return results


def generated(model: Any, asked: list[list[int]], device: str) -> list[list[int]]:
    ids = torch.tensor(asked, device=device)
    with torch.inference_mode():
        answer = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, num_beams=1,
            min_new_tokens=TOKENS_OUT, max_new_tokens=TOKENS_OUT,
        )  # fmt: skip
    return [list(row) for row in answer[:, 1:].tolist()]


def decoded(loop: DecodeLoop, asked: list[list[int]]) -> list[Any]:
    answers: dict[int, Any] = {}
    request = dataclasses.replace(
        GenerationRequest(), min_new_tokens=TOKENS_OUT, max_new_tokens=TOKENS_OUT
    )
    for at, source in enumerate(asked):
        loop.add(DecodingJob(source, request, partial(answers.__setitem__, at)))
    while loop.busy:
        loop.turn()
    return [answers[at] for at in range(len(asked))]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
