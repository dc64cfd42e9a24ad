"""What more gateway processes bring, what they cost, and what happens when one dies.

* The echo of four floats, closed loop, with 1, 2 and 4 gateways against one instance, generator and
  servers on the same cores: requests/s, and requests/s for each core that the server's processes
  kept busy. On two cores more gateways can't bring more than the cores that one leaves idle; the
  cost of a gateway shows in the efficiency. The bare loop of the same round is the limit.
* Least outstanding requests (`lor_p99_ratio`): the requests of `scenarios/assistant_lor.toml`, the
  same arrivals and lengths to the byte, through one gateway and through several at the same time;
  paced copies take hardly any processor. P99 of the first token of several over that of one, over
  all seeds: the P99 of one alone is what ten requests say. `ratio_range` is what other seeds could
  have made of it.
* A gateway killed under load: callers over kept-alive connections, each of which asks again on a
  new connection after an error. `crash_lost` is what was in flight at the gateway that died; nobody
  else may see anything (`crash_others_lost`).
"""

from __future__ import annotations

import argparse
import dataclasses
import http.client
import json
import os
import random
import signal
import statistics
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import wrk
from bench.arithmetic import resampled_range
from bench.deployment import deploy
from bench.echo_servers import AS_SHIPPED, JSON_ROW, ROW, bare_loop
from bench.generation_load import streamed
from bench.generation_routing import NAME, p99_s, requests_of, routing_of
from bench.machine import OthersLoad, foreground
from bench.paced import paced_artifact
from bench.processes import penstock_process, wait_answer
from bench.report import ROOT, finish, spread, versions
from penstock.fleet.machine import cpu_s
from penstock.runtimes.workers.memory import tree_pids
from penstock.sim.scenario import Scenario, load_scenario

ECHO = ROOT / "examples" / "echo" / "python"
GATEWAYS = (1, 2, 4)
CONNECTIONS = (32, 128, 512)
START_S_MAX = 90.0
CALLERS = 24  #: of the crash


def settings(gateways: int) -> dict[str, str]:
    return {"PENSTOCK_LISTEN_GATEWAYS": str(gateways)}


# The echo


@dataclasses.dataclass(frozen=True, slots=True)
class Echo:
    """One run."""

    rps: float
    p99_ms: float
    cores: float  #: that the server's processes kept busy


def echo(gateways: int, connections: list[int], seconds: float) -> dict[int, Echo]:
    """By number of connections; gateways are warmed first."""
    found = {}
    with penstock_process(settings=settings(gateways)) as (base_url, pid):
        deploy(base_url, "echo", ECHO)
        url = f"{base_url}/endpoints/echo/invocations"
        raw = wait_answer(url, JSON_ROW.body, timeout_s=START_S_MAX)
        if JSON_ROW.read(raw) != ROW:
            raise RuntimeError(f"{raw!r} for {ROW}")
        wrk.closed_loop(url, JSON_ROW.body, connections=max(connections), seconds=1)
        for count in connections:
            began, busy = time.perf_counter(), busy_s(pid)
            load = wrk.closed_loop(url, JSON_ROW.body, connections=count, seconds=seconds)
            cores = (busy_s(pid) - busy) / (time.perf_counter() - began)
            if load.failed:
                raise RuntimeError(f"{load.failed} of {load.requests} failed")
            found[count] = Echo(load.rps, load.p99_ms, cores)
    return found


def limit(connections: list[int], seconds: float) -> dict[int, float]:
    """Requests/s of the bare loop."""
    with bare_loop(AS_SHIPPED[0]) as urls:
        wait_answer(urls["json"], JSON_ROW.body, timeout_s=START_S_MAX)
        return {
            count: wrk.closed_loop(
                urls["json"], JSON_ROW.body, connections=count, seconds=seconds
            ).rps
            for count in connections
        }


def busy_s(pid: int) -> float:
    return sum(cpu_s(each) for each in tree_pids(pid))


def echo_rounds(options: argparse.Namespace) -> dict[str, Any]:
    runs: dict[int, dict[int, list[Echo]]] = {
        count: {each: [] for each in options.connections} for count in options.gateways
    }
    bare: dict[int, list[float]] = {each: [] for each in options.connections}
    for turn in range(options.rounds):
        order = options.gateways if turn % 2 == 0 else options.gateways[::-1]
        for count in order:
            for each, seen in echo(count, options.connections, options.seconds).items():
                runs[count][each].append(seen)
                print(
                    f"round {turn + 1}: {count} gateways, {each:4} connections: {seen.rps:8,.0f}"
                    f" req/s, P99 {seen.p99_ms:7.2f} ms, {seen.cores:.2f} cores,"
                    f" {seen.rps / seen.cores:8,.0f} a core",
                    flush=True,
                )
        for each, rps in limit(options.connections, options.seconds).items():
            bare[each].append(rps)
    return {
        "rps": told(runs, lambda one: one.rps),
        "p99_ms": told(runs, lambda one: one.p99_ms),
        "cores": told(runs, lambda one: one.cores),
        "rps_per_core": told(runs, lambda one: one.rps / one.cores),
        "limit_rps": {each: spread(values) for each, values in bare.items()},
    }


def told(runs: dict[int, dict[int, list[Echo]]], of: Any) -> dict[int, dict[int, Any]]:
    return {
        count: {each: spread([of(one) for one in seen]) for each, seen in by.items()}
        for count, by in runs.items()
    }


def ratio_to_one(by: dict[int, dict[int, Any]]) -> dict[int, float]:
    """Of each number of gateways to one: the median over numbers of connections."""
    return {
        count: round(
            statistics.median(of[each]["median"] / by[1][each]["median"] for each in of),
            3,
        )
        for count, of in by.items()
        if 1 in by
    }


# Least outstanding requests


def lor(options: argparse.Namespace) -> dict[str, Any]:
    """First tokens of the same requests through each number of gateways, at the same time."""
    base = load_scenario(ROOT / "scenarios" / "assistant_lor.toml")
    workload = dataclasses.replace(base.workload, rate_rps=options.rate)
    scenario = dataclasses.replace(base, workload=workload, length_s=options.lor_seconds)
    rounds: list[dict[int, list[float]]] = []  #: of each seed
    by_seed: dict[int, dict[int, float]] = {}
    assert base.generation is not None
    for seed in options.seeds:
        with (
            paced_artifact(
                base.generation, prefix_tokens=workload.prefix_tokens, faster=options.faster
            ) as folder,
            ThreadPoolExecutor(len(options.gateways)) as pool,
        ):
            found = list(
                pool.map(
                    lambda count, seed=seed: one_lor(scenario, folder, seed, options.faster, count),
                    options.gateways,
                )
            )
        rounds.append(dict(zip(options.gateways, found, strict=True)))
        by_seed[seed] = {count: round(p99_s(each), 4) for count, each in rounds[-1].items()}
        print(f"least outstanding requests, seed {seed}: P99 {by_seed[seed]} s", flush=True)

    def over_one(count: int, of: Sequence[dict[int, list[float]]]) -> float:
        return pooled_p99_s(of, count) / pooled_p99_s(of, 1)

    return {
        "ratio": {count: round(over_one(count, rounds), 3) for count in options.gateways},
        "ratio_range": {
            count: [round(end, 3) for end in resampled_range(rounds, partial(over_one, count))]
            for count in options.gateways
        },
        "p99_s": {count: round(pooled_p99_s(rounds, count), 4) for count in options.gateways},
        "by_seed_p99_s": by_seed,
        "requests": sum(len(each[1]) for each in rounds),
        "rate_rps": options.rate,
    }


def pooled_p99_s(rounds: Sequence[dict[int, list[float]]], count: int) -> float:
    return p99_s([first_s for each in rounds for first_s in each[count]])


def one_lor(
    scenario: Scenario, folder: Path, seed: int, faster: float, gateways: int
) -> list[float]:
    (variant,) = scenario.variants
    due, bodies = requests_of(scenario, seed, faster)
    program = ("bench.seeded_server", f"{seed}/routing")
    with penstock_process(program=program, settings=settings(gateways)) as (base_url, _):
        deploy(base_url, NAME, folder, copies=variant.copies, routing=routing_of(scenario))
        answers = streamed(base_url, bodies, due, patience_s=60.0)
    failed = [one.error for one in answers if one.error]
    if failed:
        raise RuntimeError(f"{len(failed)} were not answered, the first: {failed[0]}")
    return [one.first_token_s * faster for one in answers]


# A crash


class Callers:
    """Over kept-alive connections; after an error on a new one."""

    def __init__(self, base_url: str) -> None:
        self._host, self._port = urlsplit(base_url).hostname, urlsplit(base_url).port
        self.over = threading.Event()
        #: of each caller: (when it was over, request id's prefix or "" for an error)
        self.told: list[list[tuple[float, str]]] = [[] for _ in range(CALLERS)]

    def run(self, number: int) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self.over.is_set():
            connection = connection or http.client.HTTPConnection(
                str(self._host), self._port, timeout=30
            )
            gateway = ""
            try:
                connection.request(
                    "POST",
                    "/endpoints/echo/invocations",
                    JSON_ROW.body,
                    {"Content-Type": "application/json"},
                )
                answer = connection.getresponse()
                if JSON_ROW.read(answer.read()) == ROW and answer.status == 200:
                    gateway = answer.headers["x-amzn-requestid"][:24]
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                connection.close()
                connection = None
            self.told[number].append((time.perf_counter(), gateway))


def crash(gateways: int) -> dict[str, Any]:
    """One gateway of several is killed under load."""
    with penstock_process(settings=settings(gateways)) as (base_url, _):
        deploy(base_url, "echo", ECHO)
        wait_answer(f"{base_url}/endpoints/echo/invocations", JSON_ROW.body, timeout_s=START_S_MAX)
        callers = Callers(base_url)
        threads = [
            threading.Thread(target=callers.run, args=(number,)) for number in range(CALLERS)
        ]
        for one in threads:
            one.start()
        time.sleep(2.0)
        victim = random.choice(seen(base_url))
        killed_at = time.perf_counter()
        os.kill(victim["pid"], signal.SIGKILL)
        back_s = wait_for_another(base_url, victim, killed_at)
        time.sleep(2.0)
        callers.over.set()
        for one in threads:
            one.join()
    return judged(callers.told, killed_at) | {"back_s": round(back_s, 3), "callers": CALLERS}


def judged(told: list[list[tuple[float, str]]], killed_at: float) -> dict[str, Any]:
    """Errors of callers whose last answer before was of the gateway that died, and of others."""
    after = {gateway for one in told for at, gateway in one if at > killed_at + 1.5 and gateway}
    before = {gateway for one in told for at, gateway in one if at < killed_at and gateway}
    dead = before - after
    lost = others = 0
    for one in told:
        gateway = ""
        for at, which in one:
            if which:
                gateway = which
            elif gateway in dead and at < killed_at + 1.0:
                lost += 1
            else:
                others += 1
    return {
        "lost": lost,
        "others_lost": others,
        "answered": sum(bool(which) for one in told for _, which in one),
        "dead": len(dead),
    }


def seen(base_url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{base_url}/admin/gateways", timeout=30) as answer:
        return list(json.loads(answer.read())["gateways"])


def wait_for_another(base_url: str, victim: dict[str, Any], killed_at: float) -> float:
    """Seconds until one with its name serves again."""
    while time.perf_counter() < killed_at + START_S_MAX:
        try:
            now = next(one for one in seen(base_url) if one["name"] == victim["name"])
        except OSError:
            continue
        if now["state"] == "serving" and now["pid"] != victim["pid"]:
            return time.perf_counter() - killed_at
        time.sleep(0.01)
    raise TimeoutError("the gateway did not come back")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench gateways")
    parser.add_argument("--gateways", type=int, nargs="+", default=list(GATEWAYS))
    parser.add_argument("--connections", type=int, nargs="+", default=list(CONNECTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="whole, of each echo run")
    parser.add_argument("--rate", type=float, default=9.0, help="requests/s of the scenario")
    parser.add_argument("--lor-seconds", type=float, default=120.0, help="of arrivals; 0: none")
    parser.add_argument("--faster", type=float, default=2.0, help="live times are so much shorter")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(1, 21)))
    parser.add_argument("--crashes", type=int, default=3)
    options = parser.parse_args(arguments)
    in_front = foreground()
    with OthersLoad() as others:
        echoes = echo_rounds(options) if options.rounds else {}
        routed = lor(options) if options.lor_seconds else {}
        crashes = [crash(2) for _ in range(options.crashes)]
    several = [ratio for count, ratio in routed.get("ratio", {}).items() if count > 1]
    finish(
        "gateways",
        {
            **({"lor_p99_ratio": max(several)} if several else {}),
            **(
                {
                    "rps_vs_one": ratio_to_one(echoes["rps"]),
                    "rps_per_core_vs_one": ratio_to_one(echoes["rps_per_core"]),
                }
                if echoes
                else {}
            ),
            "crash_lost": [one["lost"] for one in crashes],
            "crash_others_lost": sum(one["others_lost"] for one in crashes),
            "crash_back_s": [one["back_s"] for one in crashes],
        },
        echo=echoes,
        lor=routed,
        crashes=crashes,
        others_cores=round(others.cores, 2),
        foreground=in_front,
        versions=versions("penstock", "uvloop", "httptools", "orjson"),
    )
