"""Text generation: what serving costs an engine, and what the engine is worth beside others.

A 135M Llama (SmolLM's dimensions, random weights), 128 tokens in, 64 out. Served is the whole path:
HTTP, gateway, instance, engine process, text, server-sent events, with the client on the same
cores; `served` has INT8 weights, `served-bf16`, by a server of its own, BF16. The bare engine is
the library of `served` by itself with the same settings, token ids in and out. Rounds alternate
between all of them; `served_ratio` is the median of the rounds' own ratios at 32 sequences. vLLM
runs BF16 weights (it makes no INT8 of them on processors), transformers `generate` BF16 in one
batch without padding.

`ttft_p50_s`, `ttft_p99_s`: time to first token, from the moment a request was due, under Poisson
arrivals at 70 % of what the endpoint sustains with 32 in flight, answers of 16 to 128 tokens.
Greedy answers of the served and of the bare engine are compared: `answers_equal` is their share.
`memory` is of all processes of each: of ours the server, the instance and the engine under it, of a
peer the process that loads it and those that it starts.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections import defaultdict
from itertools import accumulate
from typing import Any

from bench import generation_peers as peers
from bench.deployment import deploy
from bench.generation_load import Answer, completion, streamed, whole
from bench.generation_models import Model, with_engine
from bench.machine import OthersLoad, foreground, memory_bytes
from bench.processes import penstock_process
from bench.report import finish, spread, versions
from penstock.sim.outcome import percentile

TOKENS_IN, TOKENS_OUT = 128, 64
COUNTS = (1, 8, 32)
CACHE_GIB = 2  #: 32 sequences of 2,048 tokens, in BF16 1.5
LOAD = 0.7
ANSWERS = (16, 128)  #: tokens, of the requests with arrival times
NAME = "chat"
SERVED, SERVED_BF16, TORCH = "served", "served-bf16", "transformers-bfloat16"
INSTANCE_TYPE = "ml.m5.large"  #: 2 cores, 8 GiB


class Run:
    """The samples of all rounds: tokens/s by engine and number of sequences."""

    def __init__(self, model: Model, urls: dict[str, str]) -> None:
        """`urls`: of the servers, by the name of what they serve."""
        self.model = model
        self._urls = urls
        self.speeds: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.equal: list[bool] = []
        self.gap_s_max = 0.0  #: the longest silence of a stream
        self.foreground = False  #: whether all of this goes before other work on the machine
        self.missing: dict[str, str] = {}  #: engines that were not measured, and why
        self.engines: dict[str, str] = {}  #: what each peer says it is
        self.memory: dict[str, dict[str, int]] = {}
        self._chance = random.Random(1)

    def prompts(self, count: int) -> list[str]:
        return [self.model.text(TOKENS_IN, self._chance) for _ in range(count)]

    def served(self, prompts: list[str], name: str = SERVED) -> list[str]:
        bodies = [completion(prompt, TOKENS_OUT, NAME) for prompt in prompts]
        answers = whole(streamed(self._urls[name], bodies, [0.0] * len(bodies)))
        if {answer.tokens for answer in answers} != {TOKENS_OUT}:
            raise RuntimeError(f"an answer has not {TOKENS_OUT} tokens")
        taken = max(answer.last for answer in answers)
        self.speeds[name, len(bodies)].append(len(bodies) * TOKENS_OUT / taken)
        self.gap_s_max = max(self.gap_s_max, *(answer.gap_s_max for answer in answers))
        return [answer.text for answer in answers]

    def asked(self, peer: peers.Peer, prompts: list[str]) -> list[str]:
        answer = peer.ask([self.model.ids(prompt) for prompt in prompts], TOKENS_OUT)
        self.speeds[peer.name, len(prompts)].append(len(prompts) * TOKENS_OUT / answer["s"])
        return [self.model.decoded(ids) for ids in answer["ids"]]

    def ask_others(self, others: list[peers.Peer], prompts: list[str]) -> None:
        """Who does not answer is measured no more."""
        for peer in list(others):
            try:
                self.asked(peer, prompts)
            except RuntimeError as error:
                self.missing[peer.name] = str(error)
                others.remove(peer)
                peer.close()

    def dismiss(self, others: list[peers.Peer]) -> None:
        for peer in others:
            self.remember(peer.name, peer.memory_bytes)
            peer.close()
        others.clear()

    def round(self, bare: peers.Peer, others: list[peers.Peer], *, bare_first: bool) -> None:
        for count in COUNTS:
            prompts = self.prompts(count)
            # Prompts are new to both: neither finds them in its cache.
            theirs = self.asked(bare, prompts) if bare_first else []
            ours = self.served(prompts)
            theirs = theirs or self.asked(bare, prompts)
            self.equal += [one == other for one, other in zip(ours, theirs, strict=True)]
            self.served(prompts, SERVED_BF16)
            self.ask_others(others, prompts)
        told = [
            f"{name} {self.latest(name)}"
            for name in (SERVED, SERVED_BF16, bare.name, *(peer.name for peer in others))
        ]
        print(f"tokens/s at {COUNTS}: {', '.join(told)}", flush=True)

    def latest(self, name: str) -> str:
        samples = (self.speeds[name, count] for count in COUNTS)
        return " / ".join(f"{each[-1]:.0f}" if each else "-" for each in samples)

    def remember(self, name: str, memory: dict[str, int]) -> None:
        self.memory[name] = {
            "rss_mib": memory["rss"] >> 20,
            "pss_mib": memory["pss"] >> 20,
            "processes": memory["processes"],
        }

    def ratio(self, above: str, below: str, count: int) -> float | None:
        """Median of the rounds' own ratios, over the rounds that both had; None: not measured."""
        pairs = zip(self.speeds[above, count], self.speeds[below, count], strict=False)
        ratios = [one / other for one, other in pairs]
        return round(statistics.median(ratios), 3) if ratios else None

    def first_tokens(self, seconds: float, capacity_seconds: float) -> dict[str, Any]:
        """Poisson arrivals at `LOAD` of what a closed loop of 32 sustains with the same mix."""
        sustained = self._sustained_rps(capacity_seconds)
        rate = LOAD * sustained
        count = max(1, round(rate * seconds))
        gaps = [self._chance.expovariate(rate) for _ in range(count)]
        with OthersLoad() as others:
            answers = self._mixed(list(accumulate(gaps)))
        first_s = sorted(answer.first_token_s for answer in answers)
        rest_s = [
            (answer.last - answer.first) / (answer.tokens - 1)
            for answer in answers
            if answer.tokens > 1
        ]
        self.gap_s_max = max(self.gap_s_max, *(answer.gap_s_max for answer in answers))
        return {
            "ttft_p50_s": round(percentile(first_s, 0.5), 3),
            "ttft_p99_s": round(percentile(first_s, 0.99), 3),
            "ttft_max_s": round(first_s[-1], 3),
            "token_s_median": round(statistics.median(rest_s), 4),
            "sustained_rps": round(sustained, 2),
            "rate_rps": round(rate, 2),
            "requests": count,
            "others_cores": round(others.cores, 2),
        }

    def _sustained_rps(self, seconds: float) -> float:
        """Answered per s with 32 in flight: from the first 32 ends to when the last was sent."""
        most = max(COUNTS)
        speed = statistics.median(self.speeds[SERVED, most])
        count = 2 * most + round(seconds * speed / statistics.mean(ANSWERS))
        answers = self._mixed([0.0] * count, in_flight_max=most)
        ends = sorted(answer.last for answer in answers)
        start, stop = ends[most], max(answer.sent for answer in answers)
        return sum(start < end <= stop for end in ends) / (stop - start)

    def _mixed(self, due: list[float], *, in_flight_max: int = 0) -> list[Answer]:
        low, high = ANSWERS
        bodies = [
            completion(prompt, self._chance.randint(low, high), NAME)
            for prompt in self.prompts(len(due))
        ]
        return whole(streamed(self._urls[SERVED], bodies, due, in_flight_max=in_flight_max))


def started(model: Model, skip: list[str]) -> tuple[list[peers.Peer], dict[str, str]]:
    """The other engines that this machine has, loaded; and why one is missing."""
    found: list[peers.Peer] = []
    missing: dict[str, str] = {}
    for name in ("vllm", "transformers"):
        if name in skip:
            missing[name] = "left out"
            continue
        began = time.monotonic()
        try:
            if name == "vllm":
                peer = peers.vllm(model, sequences_max=max(COUNTS), cache_gib=CACHE_GIB)
            else:
                peer = peers.transformers(model, "bfloat16")
            peer.wait_ready()
        except RuntimeError as error:
            missing[name] = str(error)
            continue
        print(f"{name} is ready after {time.monotonic() - began:.0f} s", flush=True)
        found.append(peer)
    return found, missing


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench generate")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=60.0, help="of arrivals")
    parser.add_argument("--capacity-seconds", type=float, default=20.0)
    parser.add_argument("--skip", nargs="*", default=[], choices=["vllm", "transformers"])
    options = parser.parse_args(arguments)
    model = Model("135m")
    most = max(COUNTS)
    engine = {"sequences_max": most, "cache_mb": CACHE_GIB << 10}
    others, missing = started(model, options.skip)
    cores = len(os.sched_getaffinity(0))
    with (
        with_engine(model.artifact, **engine) as folder,
        with_engine(model.bf16, **engine) as folder_bf16,
        penstock_process() as (base_url, server_pid),
        penstock_process() as (bf16_url, bf16_pid),
    ):
        deploy(bf16_url, NAME, folder_bf16, instance_type=INSTANCE_TYPE)
        began = time.monotonic()
        deploy(base_url, NAME, folder, instance_type=INSTANCE_TYPE)
        deployed_s = time.monotonic() - began
        bare = peers.bare(
            model, folder, sequences_max=most, cache_gib=CACHE_GIB, threads=min(2, cores)
        )
        try:
            bare.wait_ready()
            run = Run(model, {SERVED: base_url, SERVED_BF16: bf16_url})
            run.foreground = foreground()
            warm = run.prompts(4)
            run.missing = missing
            for peer in (bare, *others):
                run.engines[peer.name] = peer.version
            run.asked(bare, warm)
            run.ask_others(others, warm)
            run.served(warm)
            run.served(warm, SERVED_BF16)
            for turn in range(options.rounds):
                run.round(bare, others, bare_first=bool(turn % 2))
            run.remember(SERVED, memory_bytes(server_pid))
            run.remember(SERVED_BF16, memory_bytes(bf16_pid))
            run.remember(bare.name, bare.memory_bytes)
            run.dismiss(others)
        finally:
            for peer in (bare, *others):
                peer.close()
        first_tokens = run.first_tokens(options.seconds, options.capacity_seconds)
    report(run, first_tokens, bare.name, options, deployed_s)


def ratios(run: Run, bare: str, count: int) -> dict[str, float | None]:
    return {
        "served_ratio": run.ratio(SERVED, bare, count),
        "vs_vllm": run.ratio(SERVED, "vllm", count),
        "bf16_vs_vllm": run.ratio(SERVED_BF16, "vllm", count),
        "vs_transformers": run.ratio(SERVED, TORCH, count),
    }


def report(
    run: Run,
    first_tokens: dict[str, Any],
    bare: str,
    options: argparse.Namespace,
    deployed_s: float,
) -> None:
    most = max(COUNTS)
    every = (SERVED, SERVED_BF16, bare, "vllm", TORCH)
    names = [name for name in every if run.speeds[name, most]]
    finish(
        "generate",
        {
            **ratios(run, bare, most),
            **first_tokens,
        },
        answers_equal=round(sum(run.equal) / len(run.equal), 3),
        ratios={count: ratios(run, bare, count) for count in COUNTS},
        tokens_per_s={
            name: {count: spread(run.speeds[name, count]) for count in COUNTS} for name in names
        },
        memory=run.memory,
        gap_s_max=round(run.gap_s_max, 3),
        deployed_s=round(deployed_s, 2),
        engines=run.engines,
        missing=run.missing,
        foreground=run.foreground,
        model=f"Llama, {run.model.shape}, random weights",
        tokens_in=TOKENS_IN,
        tokens_out=TOKENS_OUT,
        rounds=options.rounds,
        seed=1,
        versions=versions("penstock", "openvino", "openvino-genai", "numpy"),
    )
