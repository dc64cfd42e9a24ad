"""What pushing between regions is worth, in the twin: three regions, shifted days, shared prefixes.

Each region's users ask most at another time of the day; prompts begin with prefixes of their region
or of all. For each way of sending requests the highest mean rate of a day is searched at which the
99th percentile of the time to first token keeps the promise. The platform's own is `pushing`:
`TrafficRouter`s that send a request on only where there is room now, `EndpointRouter`s by prefix
within each region. Against it, each at the best of its settings, which are all searched and told:

    region_local      each region's copies for its own users: by prefix, or least outstanding, at
                      several thresholds, with queues at the balancer or at the engines
    round_robin       all copies of all regions in turn, with several bounds on each copy; and with
                      none, as `round_robin_unbounded`
    least_outstanding, prefix_aware     over all copies of all regions, as one balancer per region
                      counts them
    pushing_at_home   the platform's own, within each region alone: what is due to the regions, and
                      what to the rest of it

`vs_...` are ratios of rates; `vs_..._p99` says how much shorter the P99 is at the highest rate that
the other one keeps its promise with. `cost_saved` is the part of copies that need not be bought at
one demand: against the fewest in each region with which it keeps the promise for its own users, the
fewest in all with which pushing keeps it for the users of each region.

`vs_round_robin_bound` is what `vs_round_robin` could be at most, `of_bound` how much of that bound
pushing reaches: the rate of an oracle with the same copies, where every prompt finds its prefix, no
way takes any time, and all wait in one queue. Prompts that no cache can have yet, places that fall
free far away and prefixes that gather on a copy all cost something below it.

`--mixes` says what other demand the rates are told for, `--swings` for which other differences
between day and night; `--prefix-tokens` are those of other prompts.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from bench.regions_ways import MIXES, ORACLE, POLICIES, SCENARIO, oracles, told
from bench.report import finish, versions
from penstock.sim.outcome import percentile
from penstock.sim.regions.regions import RegionsTwin
from penstock.sim.regions.regions_scenario import Policy, RegionsScenario, with_copies, with_rate

PROMISE_S = 1.0
_COPIES_MAX = 25
#: 3 % apart, from 3 to 44.
RATES_RPS = [round(10.0 * 1.03**level, 3) for level in range(-40, 52)]

Job = tuple[RegionsScenario, Policy, tuple[int, ...]]
#: By way of sending: its highest rate, and the settings that reach it.
Found = dict[str, tuple[float, Policy]]


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench regions_twin")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--day-seconds", type=float, default=SCENARIO.day_s)
    parser.add_argument("--prefix-tokens", type=int, default=SCENARIO.prefix_tokens)
    parser.add_argument("--swings", type=float, nargs="*", default=[])
    parser.add_argument("--mixes", nargs="*", choices=list(MIXES), default=list(MIXES))
    parser.add_argument("--cost-rate", type=float, default=20.0, help="requests/s; 0: no cost")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args(arguments)
    seeds = tuple(options.seeds)
    scenario = dataclasses.replace(
        SCENARIO,
        day_s=options.day_seconds,
        length_s=options.day_seconds,
        prefix_tokens=options.prefix_tokens,
    )
    with ProcessPoolExecutor(options.jobs) as pool:
        found = best_of_all(pool, scenario, seeds)
        figures: dict[str, Any] = {
            f"vs_{name}": round(found["pushing"][0] / rate, 2)
            for name, (rate, _) in found.items()
            if name != "pushing"
        }
        bound_rps = oracle_rps(pool, scenario, seeds)
        figures["vs_round_robin_bound"] = round(bound_rps / found["round_robin"][0], 2)
        figures["of_bound"] = round(found["pushing"][0] / bound_rps, 2)
        ratios, at_rates = shorter(pool, scenario, found, seeds)
        figures |= ratios
        if options.cost_rate:
            figures |= cost(pool, with_rate(scenario, options.cost_rate), found, seeds)
        by_swing = {
            str(swing): rates(
                best_of_all(pool, dataclasses.replace(scenario, swing=swing), seeds, kept(found))
            )
            for swing in options.swings
        }
        by_mix = {name: of_mix(pool, scenario, name, found) for name in options.mixes}
    finish(
        "regions_twin",
        figures,
        rates_rps=rates(found),
        bound_rps=bound_rps,
        best_settings={name: told(policy) for name, (_, policy) in found.items()},
        settings_searched=sum(len(each) for each in POLICIES.values()),
        at_rates=at_rates,
        by_mix=by_mix,
        rates_rps_by_swing=by_swing,
        promise=f"P99 time to first token < {PROMISE_S:g} s over all users, in each seed",
        seeds=options.seeds,
        scenario=dataclasses.asdict(scenario),
        versions=versions("penstock"),
    )


# the highest rate


def best_of_all(
    pool: ProcessPoolExecutor,
    scenario: RegionsScenario,
    seeds: tuple[int, ...],
    policies: dict[str, list[Policy]] | None = None,
    rates: Sequence[float] = RATES_RPS,
) -> Found:
    """Of each way the highest of `rates`, and the settings that reach it; all are printed."""
    asked = policies or POLICIES
    jobs = [(scenario, each, seeds, rates) for each in asked.values()]
    best: Found = {}
    for name, found in zip(asked, pool.map(highest_rates_rps, jobs), strict=True):
        for policy, rate, at_least in found:
            words = f"{rate:6.2f} requests/s" if at_least else f"no more than {rate:6.2f}"
            where = f"swing {scenario.swing:g}  {name:18s} {told(policy)}"
            print(f"{where:86s} {words}", flush=True)
            if at_least and (name not in best or rate > best[name][0]):
                best[name] = rate, policy
    return best


def highest_rates_rps(
    job: tuple[RegionsScenario, list[Policy], tuple[int, ...], Sequence[float]],
) -> list[tuple[Policy, float, bool]]:
    """Of the settings of one way: the highest of the rates that keeps the promise; False: it is
    no higher than that of a setting before, and it was not searched for."""
    scenario, policies, seeds, rates = job
    found: list[tuple[Policy, float, bool]] = []
    best = -1
    for policy in policies:

        def keeps(level: int, policy: Policy = policy) -> bool:
            return keeps_promise(with_rate(scenario, rates[level]), policy, seeds)

        if best >= 0 and not keeps(best + 1):
            found.append((policy, rates[best], False))
            continue
        low, high = best + (best >= 0), len(rates) - 1
        while high - low > 1:
            level = (low + high) // 2
            if keeps(level):
                low = level
            else:
                high = level
        assert 0 <= low < len(rates) - 2, "the rates are not the right ones to search"
        best = low
        found.append((policy, rates[low], True))
    return found


def keeps_promise(scenario: RegionsScenario, policy: Policy, seeds: Iterable[int]) -> bool:
    """With each seed: a run ends as soon as it can't be kept any more."""
    return all(
        RegionsTwin(scenario, policy, seed=seed, promise_s=PROMISE_S).run().p99_s() < PROMISE_S
        for seed in seeds
    )


def oracle_rps(
    pool: ProcessPoolExecutor, scenario: RegionsScenario, seeds: tuple[int, ...]
) -> float:
    """What no way of sending could exceed on these copies: see `regions_ways.ORACLE`."""
    return best_of_all(pool, oracles(scenario), seeds, {"oracle": [ORACLE]})["oracle"][0]


def of_mix(
    pool: ProcessPoolExecutor, scenario: RegionsScenario, name: str, found: Found
) -> dict[str, float]:
    """Rates with another demand. Round robin is searched at all its settings, pushing and
    region_local keep theirs."""
    changes, seeds = MIXES[name]
    mix = dataclasses.replace(scenario, **changes)
    asked = kept(found, "pushing", "region_local") | {"round_robin": POLICIES["round_robin"]}
    print(f"-- {name}", flush=True)
    return rates(best_of_all(pool, mix, seeds, asked)) | {"bound": oracle_rps(pool, mix, seeds)}


def kept(found: Found, *names: str) -> dict[str, list[Policy]]:
    """The best settings alone."""
    return {name: [found[name][1]] for name in names or found}


def rates(found: Found) -> dict[str, float]:
    return {name: rate for name, (rate, _) in found.items()}


def at_rate(job: Job) -> tuple[float, float]:
    """P99 over all users and seeds, s, and the share of prompts that found their prefix."""
    scenario, policy, seeds = job
    outcomes = [RegionsTwin(scenario, policy, seed=seed).run() for seed in seeds]
    everyone = [each for run in outcomes for one in run.first_token_s for each in one]
    share = sum(run.found for run in outcomes) / sum(run.joined for run in outcomes)
    return percentile(sorted(everyone), 0.99), share


def shorter(
    pool: ProcessPoolExecutor, scenario: RegionsScenario, found: Found, seeds: tuple[int, ...]
) -> tuple[dict[str, float], dict[str, Any]]:
    """At the highest rate of each other way: its P99 over that of pushing; and what was seen."""
    own_rate, own = found["pushing"]
    jobs: list[Job] = [(with_rate(scenario, own_rate), own, seeds)]
    others = [name for name in found if name != "pushing"]
    for name in others:
        rate, policy = found[name]
        jobs += [(with_rate(scenario, rate), each, seeds) for each in (policy, own)]
    (p99_s, share), *seen = pool.map(at_rate, jobs)
    told_of = {"pushing": {"p99_s": round(p99_s, 3), "prefix_found": round(share, 3)}}
    ratios = {}
    for at, name in enumerate(others):
        (other_s, other_share), (own_s, own_share) = seen[2 * at : 2 * at + 2]
        told_of[name] = {
            "p99_s": round(other_s, 3),
            "prefix_found": round(other_share, 3),
            "pushing_p99_s": round(own_s, 3),
            "pushing_prefix_found": round(own_share, 3),
        }
        print(f"{name:22s} at {found[name][0]:6.2f} requests/s: {told_of[name]}", flush=True)
        ratios[f"vs_{name}_p99"] = round(other_s / own_s, 2)
    return ratios, told_of


# cost


def cost(
    pool: ProcessPoolExecutor, scenario: RegionsScenario, found: Found, seeds: tuple[int, ...]
) -> dict[str, Any]:
    """Copies that each way has to buy for this demand."""
    alone = [
        dataclasses.replace(scenario, regions=(one,), delay_s=((scenario.delay_s[at][at],),))
        for at, one in enumerate(scenario.regions)
    ]
    jobs = [(each, found["region_local"][1], seeds) for each in alone]
    together = (scenario, found["pushing"][1], seeds)
    *local, pushed = pool.map(fewest_copies, [*jobs, together])
    bought, needed = sum(sum(each) for each in local), sum(pushed)
    print(f"copies for {scenario.rate_rps:g} requests/s: region_local {bought}, pushing {needed}")
    return {
        "cost_saved": round(1.0 - needed / bought, 3),
        "copies_region_local": [sum(each) for each in local],
        "copies_pushing": list(pushed),
    }


def fewest_copies(job: Job) -> tuple[int, ...]:
    """By region, so that the promise is kept for the users of each, by halving the range."""
    scenario, policy, seeds = job
    low, high = len(scenario.regions) - 1, _COPIES_MAX
    while high - low > 1:
        count = (low + high) // 2
        if keeps_each_promise(with_copies(scenario, split(scenario, count)), policy, seeds):
            high = count
        else:
            low = count
    assert high < _COPIES_MAX, "more copies than are searched"
    return split(scenario, high)


def keeps_each_promise(scenario: RegionsScenario, policy: Policy, seeds: tuple[int, ...]) -> bool:
    """To the users of each region."""
    if not keeps_promise(scenario, policy, seeds):
        return False
    runs = [RegionsTwin(scenario, policy, seed=seed).run() for seed in seeds]
    return all(
        percentile(sorted(each for run in runs for each in run.first_token_s[region]), 0.99)
        < PROMISE_S
        for region in range(len(scenario.regions))
    )


def split(scenario: RegionsScenario, copies: int) -> tuple[int, ...]:
    """So many copies, by the shares of users; each region has one at least."""
    users = sum(one.share for one in scenario.regions)
    shares = [one.share / users * copies for one in scenario.regions]
    counts = [max(1, int(share)) for share in shares]
    by_rest = sorted(range(len(shares)), key=lambda at: (int(shares[at]) - shares[at], at))
    for at in by_rest[: max(0, copies - sum(counts))]:
        counts[at] += 1
    return tuple(counts)
