"""What routing is worth to an assistant: the load that keeps a promise on the first token.

Several engines with continuous batching and a prefix cache, answers from 8 to 512 tokens, prompts
that share system prompts (`scenarios/assistant_lor.toml`). For each strategy the highest rate of
Poisson arrivals is searched at which every request is answered and the 99th percentile of the time
to first token keeps the promise. `..._vs_random` are ratios of these rates.

Live (`lor_vs_random`, `prefix_aware_vs_random`, `round_robin_vs_random`): copies are paced engines,
which take the scenario's times and hardly any processor, so that four strategies with four copies
each run side by side on two cores. In the twin (`twin_...`) the same requests come at the same
times, and the search is the same; `live_of_twin` is how far the two are apart. Where a strategy
draws lots both draw the same ones: else the load that RANDOM sustains differs by a tenth from seed
to seed. A stall of the machine of half a second is a missed promise under any strategy: a probe
during which the machine was held up, or others used it, is told and made again.

With `--sequences` the twin alone says what the factor is for other numbers of answers that a copy
makes at once: the more, the less a bad choice costs.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from typing import Any

from bench.generation_routing import first_tokens_s, p99_s
from bench.machine import MachineStalls, OthersLoad, foreground
from bench.report import ROOT, finish, versions
from penstock.core.deployment.deployment import (
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
PRECISION = 0.02  #: of a rate, in the twin alone
BYTES_PER_TOKEN = 4  #: of prompts
#: Rates of the live search, requests/s: five probes find one of 31, which are 3.6 % apart.
RATES_RPS = [round(4.5 * 3.0 ** (level / 30), 3) for level in range(31)]
PROBES = 5

#: What makes a live probe worthless: a stall of the machine (s), others' load (cores).
STALL_S_MAX = 0.1
OTHERS_CORES_MAX = 0.3
REPEATS_MAX = 3  #: of one probe; the last one counts, whatever it was
SERVERS_UP_S = 10.0  #: before the first arrival, about

#: What a probe of strategies at rates says: P99 of the first token of each, s.
Probe = Callable[[dict[str, float]], dict[str, float]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench lor")
    parser.add_argument("--live-seconds", type=float, default=120.0, help="of arrivals; 0: no live")
    parser.add_argument("--live-seed", type=int, default=1)
    parser.add_argument("--faster", type=float, default=1.0, help="live times are so much shorter")
    parser.add_argument("--seconds", type=float, default=600.0, help="of the twin alone")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--sequences", type=int, nargs="*", default=[])
    options = parser.parse_args(arguments)
    base = load_scenario(ROOT / "scenarios" / "assistant_lor.toml")
    assert base.generation is not None
    own = base.generation.sequences_max
    figures, details = live_and_twin(base, options) if options.live_seconds else ({}, {})
    curve: dict[int, dict[str, float]] = {}
    for sequences in sorted({*options.sequences}):
        curve[sequences] = twin_rates(base, sequences, options.seeds, options.seconds)
    finish(
        "lor",
        figures,
        **details,
        twin_alone_rates_rps={sequences: rounded(found) for sequences, found in curve.items()},
        twin_alone_lor_vs_random={
            sequences: ratio(found, LEAST_OUTSTANDING_REQUESTS)
            for sequences, found in curve.items()
        },
        promise=f"P99 time to first token < {PROMISE_S:g} s, all answered",
        copies=sum(variant.copies for variant in base.variants),
        sequences_max=own,
        seeds=options.seeds if curve else [],
        versions=versions("penstock"),
    )


def live_and_twin(
    base: Scenario, options: argparse.Namespace
) -> tuple[dict[str, float], dict[str, Any]]:
    """The same search twice: by live copies, and by the twin on what they were sent."""
    probes = Probes(base, options.live_seconds, options.live_seed, options.faster)
    foreground()
    with OthersLoad() as others:
        live_found = search(probes.live)
    twin_found = search(probes.twin)
    probes.complete_twin()
    figures = {**ratios(live_found, ""), **ratios(twin_found, "twin_")}
    figures["live_of_twin"] = round(figures["lor_vs_random"] / figures["twin_lor_vs_random"], 3)
    assert base.generation is not None
    return figures, {
        "rates_rps": rounded(live_found),
        "twin_rates_rps": rounded(twin_found),
        "first_token_p99_s": probes.shown(),
        "engine": dataclasses.asdict(base.generation),
        "live_seconds": options.live_seconds,
        "live_seed": options.live_seed,
        "faster": options.faster,
        "others_cores": round(others.cores, 2),
        "disturbed_probes": probes.disturbed,
    }


class Probes:
    """Of live copies and of the twin, on the same requests; what they showed is kept."""

    def __init__(self, base: Scenario, seconds: float, seed: int, faster: float) -> None:
        self._base = base
        self._seconds = seconds  #: of arrivals
        self._seed = seed
        self._faster = faster
        self.disturbed: list[dict[str, float]] = []  #: live ones that were made again
        #: who -> strategy -> rate -> P99 of the first token, s
        self._seen: dict[str, dict[str, dict[float, float]]] = {"live": {}, "twin": {}}

    def live(self, rates: dict[str, float]) -> dict[str, float]:
        runs = [self._scenario(*each) for each in rates.items()]
        for _ in range(1 + REPEATS_MAX):
            stalls = MachineStalls(self._seconds / self._faster + SERVERS_UP_S)
            with OthersLoad() as others:
                found = first_tokens_s(runs, self._seed, self._faster)
            longest_s = max((end - start for start, end in stalls.intervals()), default=0.0)
            if longest_s <= STALL_S_MAX and others.cores <= OTHERS_CORES_MAX:
                break
            print(
                f"live  disturbed: the machine stood still for {longest_s:.3f} s,"
                f" others took {others.cores:.2f} cores",
                flush=True,
            )
            self.disturbed.append({"stall_s": round(longest_s, 3), "cores": round(others.cores, 2)})
        p99s = {name: p99_s(each) for name, each in zip(rates, found, strict=True)}
        return self._told("live", rates, p99s)

    def twin(self, rates: dict[str, float]) -> dict[str, float]:
        found = {}
        for each in rates.items():
            outcome = Twin(self._scenario(*each), seed=self._seed).run()
            found[each[0]] = float("inf") if outcome.ends else p99_s(outcome.first_token_s)
        return self._told("twin", rates, found)

    def complete_twin(self) -> None:
        """What the twin says of the live probes that its own search did not need."""
        for name, by_rate in self._seen["live"].items():
            for rate in by_rate.keys() - self._seen["twin"][name].keys():
                self.twin({name: rate})

    def shown(self) -> dict[str, Any]:
        """By strategy and rate."""
        return {
            name: {
                f"{rate:.2f}": {
                    "live": finite(p99),
                    "twin": finite(self._seen["twin"][name][rate]),
                }
                for rate, p99 in sorted(by_rate.items())
            }
            for name, by_rate in self._seen["live"].items()
        }

    def _scenario(self, strategy: str, rate: float) -> Scenario:
        assert self._base.generation is not None
        sequences = self._base.generation.sequences_max
        changed = variation(self._base, strategy, sequences, self._seconds)
        workload = dataclasses.replace(changed.workload, rate_rps=rate)
        return dataclasses.replace(changed, workload=workload)

    def _told(self, who: str, rates: dict[str, float], found: dict[str, float]) -> dict[str, float]:
        for name, value in found.items():
            self._seen[who].setdefault(name, {})[rates[name]] = value
            words = f"P99 of the first token {value:.3f} s"
            print(f"{who}  {name:27s} {rates[name]:7.2f} requests/s  {words}", flush=True)
        return found


def search(probe: Probe) -> dict[str, float]:
    """The highest of `RATES_RPS` that keeps the promise, by halving the range, all strategies in
    step. What not even the lowest keeps is told as half of it."""
    low = dict.fromkeys(STRATEGIES, -1)
    high = dict.fromkeys(STRATEGIES, len(RATES_RPS))
    for _ in range(PROBES):
        levels = {name: (low[name] + high[name]) // 2 for name in STRATEGIES}
        found = probe({name: RATES_RPS[level] for name, level in levels.items()})
        for name, level in levels.items():
            (low if found[name] < PROMISE_S else high)[name] = level
    assert all(high[name] - low[name] == 1 for name in STRATEGIES)
    return {
        name: RATES_RPS[level] if level >= 0 else RATES_RPS[0] / 2 for name, level in low.items()
    }


def finite(value: float) -> float | None:
    """None: too many were not answered."""
    return round(value, 3) if value < float("inf") else None


def twin_rates(
    base: Scenario, sequences: int, seeds: list[int], length_s: float
) -> dict[str, float]:
    """`length_s`: of virtual time per run."""
    rates: dict[str, float] = {}
    for strategy in STRATEGIES:
        scenario = variation(base, strategy, sequences, length_s)
        rates[strategy] = highest_rate_rps(scenario, seeds)
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
