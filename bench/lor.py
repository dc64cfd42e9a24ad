"""What routing is worth to an assistant: the load that keeps P99 time to first token below 1 s.

In the twin, so that only the strategy differs: several engines with continuous batching and a
prefix cache, answers from 8 to 512 tokens, prompts that share system prompts
(`scenarios/assistant_lor.toml`, with the engine times assumed for a 135M Llama shape in INT8). For
each strategy the highest rate of Poisson arrivals is searched at which every request is answered
and the 99th percentile, over all seeds, keeps the promise. `twin_lor_vs_random` and
`twin_prefix_aware_vs_random` are ratios of these rates.

The factor depends on how many answers an engine makes at once: the more, the less a bad choice
costs. So the curve is told over `sequences_max`, and the ratios are those of the scenario's own.
"""

from __future__ import annotations

import argparse
import dataclasses

from bench.report import ROOT, finish, versions
from penstock.core.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    RANDOM,
    ROUND_ROBIN,
)
from penstock.sim.outcome import percentile
from penstock.sim.scenario import Scenario, load_scenario
from penstock.sim.twin import Twin

STRATEGIES = (RANDOM, ROUND_ROBIN, LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE)
PROMISE_S = 1.0
PRECISION = 0.02  #: of a rate
BYTES_PER_TOKEN = 4  #: of the twin's prompts


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench lor")
    parser.add_argument("--seconds", type=float, default=600.0, help="of virtual time per run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sequences", type=int, nargs="+", default=[4, 8, 16])
    options = parser.parse_args(arguments)
    base = load_scenario(ROOT / "scenarios" / "assistant_lor.toml")
    assert base.generation is not None
    own = base.generation.sequences_max
    curve: dict[int, dict[str, float]] = {}
    for sequences in sorted({*options.sequences, own}):
        curve[sequences] = rates = {}
        for strategy in STRATEGIES:
            scenario = variation(base, strategy, sequences, options.seconds)
            rates[strategy] = highest_rate_rps(scenario, options.seeds)
            told = f"{rates[strategy]:7.2f} requests/s  ({ratio(rates, strategy):.2f} x RANDOM)"
            print(f"{sequences:3d} sequences per copy  {strategy:27s} {told}", flush=True)
    rates = curve[own]
    finish(
        "lor",
        {
            "twin_lor_vs_random": ratio(rates, LEAST_OUTSTANDING_REQUESTS),
            "twin_prefix_aware_vs_random": ratio(rates, PREFIX_AWARE),
            "twin_round_robin_vs_random": ratio(rates, ROUND_ROBIN),
        },
        twin_rates_rps={
            sequences: {name: round(rate, 2) for name, rate in found.items()}
            for sequences, found in curve.items()
        },
        twin_lor_vs_random_by_sequences={
            sequences: ratio(found, LEAST_OUTSTANDING_REQUESTS)
            for sequences, found in curve.items()
        },
        promise=f"P99 time to first token < {PROMISE_S:g} s, all answered",
        copies=sum(variant.copies for variant in base.variants),
        sequences_max=own,
        seconds=options.seconds,
        seeds=options.seeds,
        versions=versions("penstock"),
    )


def ratio(rates: dict[str, float], strategy: str) -> float:
    return round(rates[strategy] / rates[RANDOM], 2)


def variation(base: Scenario, strategy: str, sequences_max: int, length_s: float) -> Scenario:
    """The same requests and engines under another strategy. A full engine is PREFIX_AWARE's
    threshold: beyond it a request would wait for a place, however warm the cache."""
    assert base.generation is not None
    variants = tuple(
        dataclasses.replace(
            variant,
            strategy=strategy,
            prefix_length_max=BYTES_PER_TOKEN * base.workload.prefix_tokens,
            concurrency_threshold=sequences_max,
        )
        for variant in base.variants
    )
    engine = dataclasses.replace(base.generation, sequences_max=sequences_max)
    return dataclasses.replace(base, variants=variants, generation=engine, length_s=length_s)


def highest_rate_rps(scenario: Scenario, seeds: list[int]) -> float:
    """By doubling, then halving the interval until it is as small as `PRECISION`."""
    low, high = 0.0, 1.0
    while keeps_promise(scenario, high, seeds):
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if keeps_promise(scenario, middle, seeds):
            low = middle
        else:
            high = middle
    return low


def keeps_promise(scenario: Scenario, rate_rps: float, seeds: list[int]) -> bool:
    workload = dataclasses.replace(scenario.workload, rate_rps=rate_rps)
    first_token_s: list[float] = []
    for seed in seeds:
        outcome = Twin(dataclasses.replace(scenario, workload=workload), seed=seed).run()
        if outcome.ends:
            return False
        first_token_s += outcome.first_token_s
    return percentile(sorted(first_token_s), 0.99) < PROMISE_S
