"""What routing is worth to an assistant: the load that keeps a promise on the first token.

Several engines with continuous batching and a prefix cache, answers from 8 to 512 tokens, prompts
that share system prompts (`scenarios/assistant_lor.toml`). For each strategy the highest rate of
Poisson arrivals is searched at which every request is answered and the 99th percentile of the time
to first token keeps the promise. `..._vs_random` are ratios of these rates.

The factor depends on how many answers a copy makes at once, `sequences_max`: the more, the less a
bad choice costs. So it is told for several.

Live (`lor_vs_random`, `prefix_aware_vs_random`, `round_robin_vs_random`, all at the first of
`--live-sequences`): four copies of a small Llama, because two cores carry four of them. It answers
sooner than a large one, so the promise is `LIVE_PROMISE_S`. Copies on the same cores help each
other: where one is overloaded the idle ones leave it more of the machine, so that a bad choice
costs less than between machines of their own.

In the twin (`twin_...`), only the strategy differs, and each engine has a machine: the scenario's
engine times are those of a 135M Llama in INT8 on two cores, and the promise is 1 s. `twin_of_live`
is the twin with the times and the promise of the live copies: what they would do if they did not
share their cores.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from bench.generation_models import Model, cache_mb, with_engine
from bench.generation_routing import LiveCopies
from bench.machine import OthersLoad, foreground
from bench.processes import penstock_up
from bench.report import ROOT, finish, versions
from penstock.core.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    RANDOM,
    ROUND_ROBIN,
)
from penstock.core.generation_steps import GenerationSpec
from penstock.sim.outcome import percentile
from penstock.sim.scenario import Scenario, load_scenario
from penstock.sim.twin import Twin

STRATEGIES = (RANDOM, ROUND_ROBIN, LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE)
PROMISE_S = 1.0
PRECISION = 0.02  #: of a rate
BYTES_PER_TOKEN = 4  #: of the twin's prompts
ROOM_TOKENS = 1024  #: of a live copy's cache for each running request, beside the cached prefixes
LIVE_PROMISE_S = 0.5
LIVE_LEVELS = 15  #: rates that the live search chooses from, up to what is sustained without pause
LIVE_PROBES = 4  #: for each strategy: enough to find one level of so many


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench lor")
    parser.add_argument("--live-seconds", type=float, default=15.0, help="of arrivals; 0: no live")
    parser.add_argument("--live-sequences", type=int, nargs="+", default=[2])
    parser.add_argument("--seconds", type=float, default=600.0, help="of virtual time per run")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sequences", type=int, nargs="+", default=[2, 4, 8, 16])
    options = parser.parse_args(arguments)
    base = load_scenario(ROOT / "scenarios" / "assistant_lor.toml")
    assert base.generation is not None
    own = base.generation.sequences_max
    live: dict[int, dict[str, Any]] = {}
    for sequences in options.live_sequences if options.live_seconds else ():
        live[sequences] = live_figures(base, sequences, options)
    curve: dict[int, dict[str, float]] = {}
    for sequences in sorted({*options.sequences, own}):
        curve[sequences] = twin_rates(base, sequences, options.seeds, PROMISE_S, options.seconds)
    finish(
        "lor",
        {
            **(live[options.live_sequences[0]]["ratios"] if live else {}),
            **ratios(curve[own], "twin_"),
        },
        live=live,
        twin_rates_rps={sequences: rounded(found) for sequences, found in curve.items()},
        twin_lor_vs_random_by_sequences={
            sequences: ratio(found, LEAST_OUTSTANDING_REQUESTS)
            for sequences, found in curve.items()
        },
        promise=f"P99 time to first token < {PROMISE_S:g} s, all answered",
        copies=sum(variant.copies for variant in base.variants),
        sequences_max=own,
        seconds=options.seconds,
        seeds=options.seeds,
        versions=versions("penstock", "openvino", "openvino-genai"),
    )


def live_figures(base: Scenario, sequences: int, options: argparse.Namespace) -> dict[str, Any]:
    """Rates at which live copies keep the promise, and what the twin says of such copies."""
    assert base.generation is not None
    own, model = base.generation, Model("7m")
    tokens = own.prefixes_cached_max * base.workload.prefix_tokens + sequences * ROOM_TOKENS
    engine = {"sequences_max": sequences, "cache_mb": cache_mb(model, tokens)}
    copies = sum(variant.copies for variant in base.variants)
    with with_engine(model.artifact, **engine) as folder, penstock_up() as base_url:
        live = LiveCopies(model, base_url, base.workload, copies=copies, sequences=sequences)
        for strategy in STRATEGIES:
            live.deploy(folder, strategy)
        first = foreground()
        for strategy in STRATEGIES:
            live.warm_up(strategy)
        times = live.times(repeats=5)
        sustained = live.sustained_rps(LEAST_OUTSTANDING_REQUESTS, options.live_seconds)
        print(f"live  {sequences} sequences per copy: sustained {sustained:.1f} requests/s")
        with OthersLoad() as others:
            rates = live_rates(live, sustained, options.live_seconds)
    times = dataclasses.replace(times, prefixes_cached_max=own.prefixes_cached_max, sigma=own.sigma)
    like_live = dataclasses.replace(base, generation=times)
    faster = full_step_s(times) / full_step_s(own)
    predicted = twin_rates(
        like_live, sequences, options.seeds, LIVE_PROMISE_S, options.seconds * faster
    )
    return {
        "ratios": ratios(rates, ""),
        "rates_rps": rounded(rates),
        "promise": f"P99 time to first token < {LIVE_PROMISE_S:g} s, all answered",
        "sustained_rps": round(sustained, 1),
        "engine_times_s": {
            name: float(f"{getattr(times, name):.3g}")
            for name in ("step_s", "sequence_s", "prefill_token_s")
        },
        "twin_of_live": ratios(predicted, "") | {"rates_rps": rounded(predicted)},
        "first_token_p99_s": live.told(),
        "others_cores": round(others.cores, 2),
        "foreground": first,
        "seconds": options.live_seconds,
        "model": f"Llama, {model.shape}, random weights, INT8, one thread per copy",
    }


def full_step_s(spec: GenerationSpec) -> float:
    return spec.step_s + spec.sequences_max * spec.sequence_s


def live_rates(live: LiveCopies, sustained: float, seconds: float) -> dict[str, float]:
    """The highest of `LIVE_LEVELS` rates that keeps the promise, by halving the range.

    Strategies take turns. What no strategy keeps is told as half of the lowest level.
    """
    low = dict.fromkeys(STRATEGIES, 0)
    high = dict.fromkeys(STRATEGIES, LIVE_LEVELS + 1)
    for probe in range(LIVE_PROBES):
        for strategy in STRATEGIES:
            if high[strategy] - low[strategy] <= 1:
                continue
            level = (low[strategy] + high[strategy]) // 2
            rate = sustained * level / LIVE_LEVELS
            live.arrive(strategy, rate, seconds, seed=100 + probe)
            p99_s = live.p99_s(strategy, rate)
            told = f"P99 of the first token {p99_s:.3f} s"
            print(f"live  {strategy:27s} {rate:7.1f} requests/s  {told}", flush=True)
            (low if p99_s < LIVE_PROMISE_S else high)[strategy] = level
    return {strategy: sustained * (level or 0.5) / LIVE_LEVELS for strategy, level in low.items()}


def twin_rates(
    base: Scenario, sequences: int, seeds: list[int], promise_s: float, length_s: float
) -> dict[str, float]:
    """`length_s`: of virtual time per run; a faster engine needs less of it for as many answers."""
    rates: dict[str, float] = {}
    for strategy in STRATEGIES:
        scenario = variation(base, strategy, sequences, length_s)
        rates[strategy] = highest_rate_rps(scenario, seeds, promise_s)
        told = f"{rates[strategy]:7.2f} requests/s  ({ratio(rates, strategy):.2f} x RANDOM)"
        print(f"twin  {sequences:3d} sequences per copy  {strategy:27s} {told}", flush=True)
    return rates


def rounded(rates: dict[str, float]) -> dict[str, float]:
    return {name: round(rate, 2) for name, rate in rates.items()}


def ratios(rates: dict[str, float], begin: str) -> dict[str, float]:
    return {
        f"{begin}lor_vs_random": ratio(rates, LEAST_OUTSTANDING_REQUESTS),
        f"{begin}prefix_aware_vs_random": ratio(rates, PREFIX_AWARE),
        f"{begin}round_robin_vs_random": ratio(rates, ROUND_ROBIN),
    }


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


def highest_rate_rps(scenario: Scenario, seeds: list[int], promise_s: float) -> float:
    """By doubling, then halving the interval until it is as small as `PRECISION`."""
    low, high = 0.0, 1.0
    while keeps_promise(scenario, high, seeds, promise_s):
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if keeps_promise(scenario, middle, seeds, promise_s):
            low = middle
        else:
            high = middle
    return low


def keeps_promise(scenario: Scenario, rate_rps: float, seeds: list[int], promise_s: float) -> bool:
    workload = dataclasses.replace(scenario.workload, rate_rps=rate_rps)
    first_token_s: list[float] = []
    for seed in seeds:
        outcome = Twin(dataclasses.replace(scenario, workload=workload), seed=seed).run()
        if outcome.ends:
            return False
        first_token_s += outcome.first_token_s
    return percentile(sorted(first_token_s), 0.99) < promise_s
