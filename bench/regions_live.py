"""What pushing between regions is worth live: real servers in three regions, paced engines.

The figures of `regions_twin`, by processes instead of events: three regions, each a whole server in
a network namespace, 5 ms away from its own users and 40 or 80 ms from those of the others (one
way), with two paced engines of eight places for each way of sending. A day of users is compressed
to a minute and a half, with peaks at three times; prompts begin with prefixes of a region or of
all. The answers are streamed completions. Three ways, on the same requests and side by side:

    pushing        an orchestrator in each region, which sends a request on only where there is room
    region_local   the same, and each region's users are pinned to their own
    round_robin    an HAProxy in each region over all three in turn, with a bound on what each may
                   have, its own queue, and copies in turn within a region

The highest rate is searched at which the 99th percentile of the time to first token keeps the
promise: `vs_...` are ratios of these rates. At the highest rate of another way pushing's P99 is
measured too, by a second fleet: `vs_..._p99` says how much shorter it is. The twin runs the same
requests with the same settings: it is searched first, gives each way the best of its settings, and
says where the live search begins. `live_of_twin` is how far the two are apart.

A round during which the machine stood still or others used it is told and made again. Figures are
not claimed where the load itself left late.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from bench.machine import OthersLoad, foreground
from bench.regions_fronts import haproxy_version
from bench.regions_live_search import Found, Walk, agreement, claimed, compared, plan
from bench.regions_live_site import BESIDE, Round, Site
from bench.regions_live_trace import (
    COPIES,
    OTHERS,
    PUSHING,
    RATES_RPS,
    SLOWER,
    WAYS,
    scenario_of,
    settings_of,
    within_of,
)
from bench.regions_network import available
from bench.regions_twin import PROMISE_S, at_rate, best_of_all
from bench.regions_ways import told
from bench.report import finish, versions
from penstock.sim.regions.regions_scenario import Policy, RegionsScenario, with_rate

#: A fiftieth of the promise: load that leaves later is another load.
LATE_S_MAX = 0.02
#: What makes a round worth another one: a stall of the machine (s), others' load (cores).
STALL_S_MAX = 0.1
OTHERS_CORES_MAX = 0.3

Settings = dict[str, tuple[Policy, int]]  #: of each way the best, and the level that it keeps


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench regions_live")
    parser.add_argument("--day-seconds", type=float, default=90.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4, help="at most")
    parser.add_argument("--repeats", type=int, default=1, help="of disturbed rounds, in all")
    parser.add_argument("--twin-only", action="store_true", help="the search of settings alone")
    options = parser.parse_args(arguments)
    missing = available() or ("" if haproxy_version() else "haproxy is not installed")
    if missing and not options.twin_only:
        print(f"error[bench-unavailable]: {missing}", file=sys.stderr)
        raise SystemExit(2)
    foreground()
    scenario = scenario_of(options.day_seconds)
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        best, details = best_in_twin(pool, scenario, options.seed)
    if options.twin_only:
        finish("regions_live", {}, **details)
        return
    with OthersLoad() as others:
        walks, rounds, disturbed = searched(scenario, best, options)
    report(scenario, options, walks, rounds, best,
           disturbed_rounds=disturbed, others_cores=round(others.cores, 2),
           **details)  # fmt: skip


# the twin


def best_in_twin(
    pool: ProcessPoolExecutor, scenario: RegionsScenario, seed: int
) -> tuple[Settings, dict[str, Any]]:
    """Of each way the best of its settings; and, which is told and not run live, what regions in
    turn would carry if each of them chose its copies by more than their turn."""
    within = within_of(scenario.generation.sequences_max)
    asked = {**settings_of(scenario), "regions_choose": within}
    found = best_of_all(pool, scenario, (seed,), asked, RATES_RPS)
    details = {
        "settings": {name: told(policy) for name, (_, policy) in found.items()},
        "twin_rates_rps": {name: rate for name, (rate, _) in found.items()},
    }
    return {name: (found[name][1], RATES_RPS.index(found[name][0])) for name in WAYS}, details


def in_twin(
    scenario: RegionsScenario, best: Settings, levels: dict[str, Iterable[int]], seed: int
) -> Found:
    """The twin's own highest levels, and its P99s at those that were asked for."""
    found = Found({name: level for name, (_, level) in best.items()})
    jobs = [
        (name, level, (with_rate(scenario, RATES_RPS[level]), best[name][0], (seed,)))
        for name, asked in levels.items()
        for level in sorted({*asked})
    ]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        seen = pool.map(at_rate, [job for _, _, job in jobs])
        for (name, level, _), (value, _) in zip(jobs, seen, strict=True):
            found.p99_s.setdefault(name, {})[level] = value
    return found


# live


def searched(
    scenario: RegionsScenario, best: Settings, options: argparse.Namespace
) -> tuple[dict[str, Walk], list[Round], list[dict[str, float]]]:
    """Walks at their end, the rounds that count, and what disturbed those that were repeated."""
    walks = {name: Walk(best[name][1], len(RATES_RPS)) for name in WAYS}
    rounds: list[Round] = []
    disturbed: list[dict[str, float]] = []
    measured: list[int] = []
    policies = {name: policy for name, (policy, _) in best.items()}
    with Site(scenario, policies, options.seed).running() as site:
        while len(rounds) < options.rounds:
            levels = plan(walks, PUSHING, BESIDE, measured)
            if not levels:
                break
            one = site.round(levels)
            say(one)
            if len(disturbed) < options.repeats and is_disturbed(one):
                disturbed.append(
                    {
                        "stall_s": one.stall_s,
                        "others_cores": one.others_cores,
                        "late_p99_s": round(one.late_p99_s, 4),
                    }
                )
                print("live  disturbed, again", flush=True)
                continue
            rounds.append(one)
            measured += (levels[name] for name in (PUSHING, BESIDE) if name in levels)
            for name, walk in walks.items():
                if name in levels and walk.next() == levels[name]:
                    walk.tell(levels[name], kept=one.p99_s[name] < PROMISE_S)
    return walks, rounds, disturbed


def is_disturbed(one: Round) -> bool:
    return (
        one.stall_s > STALL_S_MAX
        or one.others_cores > OTHERS_CORES_MAX
        or one.late_p99_s > LATE_S_MAX
    )


def say(one: Round) -> None:
    for fleet, level in one.levels.items():
        print(
            f"live  {fleet:13s} {RATES_RPS[level]:6.2f} requests/s  P99 of the first token"
            f" {one.p99_s[fleet]:.3f} s, P50 {one.p50_s[fleet]:.3f} s"
            f"  ({one.requests[fleet]} requests, {one.failed[fleet]} failed)",
            flush=True,
        )
    print(
        f"live  load late by {one.late_p99_s * 1e3:.1f} ms (P99), the machine stood still for"
        f" {one.stall_s:.3f} s, others took {one.others_cores:.2f} cores, ours {one.cores}",
        flush=True,
    )


def live_found(walks: dict[str, Walk], rounds: list[Round]) -> Found:
    """Both fleets of pushing are one; where both were at one level, the first counts."""
    found = Found({name: walk.found for name, walk in walks.items()})
    for one in rounds:
        for fleet, level in one.levels.items():
            name = PUSHING if fleet == BESIDE else fleet
            found.p99_s.setdefault(name, {}).setdefault(level, one.p99_s[fleet])
    return found


# what is told


def report(
    scenario: RegionsScenario,
    options: argparse.Namespace,
    walks: dict[str, Walk],
    rounds: list[Round],
    best: Settings,
    **details: Any,
) -> None:
    live = live_found(walks, rounds)
    asked = {name: {*by_level} for name, by_level in live.p99_s.items()}
    for name, level in live.level.items():
        asked[name].add(best[name][1])
        if level is not None:
            asked[PUSHING].add(level)
    twin = in_twin(scenario, best, dict(asked), options.seed)
    figures, why = claimed(
        compared(live, RATES_RPS, PUSHING, OTHERS),
        [one.late_p99_s for one in rounds],
        LATE_S_MAX,
    )
    lost = [name for name, level in live.level.items() if level is None]
    if lost and not why:
        why = f"{len(rounds)} rounds did not tell the highest rate of {', '.join(lost)}"
    # Rates by the twin's own search; its P99s at the rates that were compared live.
    rates = compared(twin, RATES_RPS, PUSHING, OTHERS)
    at_live = compared(dataclasses.replace(twin, level=live.level), RATES_RPS, PUSHING, OTHERS)
    of_twin = {name: (at_live if name.endswith("_p99") else rates)[name] for name in figures}
    finish(
        "regions_live",
        {
            **figures,
            **{f"twin_{name}": value for name, value in of_twin.items()},
            "live_of_twin": agreement(figures, of_twin),
            **({"not_claimed": why} if why else {}),
        },
        rates_rps={
            name: None if level is None else RATES_RPS[level] for name, level in live.level.items()
        },
        first_token_p99_s={
            name: {
                f"{RATES_RPS[level]:.2f}": {
                    "live": finite(value),
                    "twin": finite(twin.p99_s[name][level]),
                }
                for level, value in sorted(by_level.items())
            }
            for name, by_level in live.p99_s.items()
        },
        rounds=[told_of(one) for one in rounds],
        late_p99_s=round(max((one.late_p99_s for one in rounds), default=0.0), 4),
        promise=f"P99 time to first token < {PROMISE_S:g} s over all users, all answered",
        regions={one.name: {"copies": COPIES, "peak": one.peak} for one in scenario.regions},
        delay_s=scenario.delay_s,
        engine=dataclasses.asdict(scenario.generation),
        slower_than_regions_twin=SLOWER,
        answer_tokens=scenario.answer_tokens,
        day_s=scenario.day_s,
        seed=options.seed,
        haproxy=haproxy_version(),
        **details,
        versions=versions("penstock", "uvloop", "httptools", "boto3"),
    )


def told_of(one: Round) -> dict[str, Any]:
    return {
        "rates_rps": {fleet: RATES_RPS[level] for fleet, level in one.levels.items()},
        "first_token_p99_s": {fleet: finite(value) for fleet, value in one.p99_s.items()},
        "by_region_p99_s": {
            fleet: [finite(value) for value in each] for fleet, each in one.by_region_p99_s.items()
        },
        "requests": one.requests,
        "failed": one.failed,
        "errors": one.errors,
        "tokens": one.tokens,
        "late_p99_s": round(one.late_p99_s, 4),
        "late_max_s": round(one.late_max_s, 4),
        "stall_s": one.stall_s,
        "others_cores": one.others_cores,
        "cores": one.cores,
        "processor_ms_per_request": one.processor_ms,
    }


def finite(value: float) -> float | None:
    """None: too many were not answered."""
    return round(value, 3) if value < math.inf else None
