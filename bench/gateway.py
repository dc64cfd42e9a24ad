"""The echo of four floats through the whole path, against three other servers and the bare loop.

Ours runs as it is shipped, with admission, routing, the instance, the dynamic batcher and metrics;
authentication is off. Every other server is tried with several settings first, at each number of
connections, and compared at the best of them (`echo_servers.py`; the whole table is printed).
Servers run alone, the load generator on the same cores, in rounds that alternate between them.

Two servers are compared at the same door only: plain JSON with mosec, Ray Serve and the bare loop,
tensors of the Open Inference Protocol, in JSON and in binary, with Triton. A ratio is of one round,
then the median of the rounds; each figure that is told first is the lowest of all numbers of
connections and doors. The whole curve is in `ratios`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from typing import Any

from bench import wrk
from bench.arithmetic import alternated, best, median_ratio, worst
from bench.echo_servers import DOORS, ROW, SERVERS, Server, Setting, versions_of
from bench.machine import OthersLoad, foreground
from bench.processes import wait_answer
from bench.report import finish, spread, versions

CONNECTIONS = (8, 32, 128, 512)
PAUSE_S = 0.3  #: between two servers: what the one before left behind may still run
START_S_MAX = 90.0

#: (server, door, connections)
Case = tuple[str, str, int]


class Run:
    """What every server did, by door and number of connections."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.swept: dict[Case, dict[str, list[float]]] = defaultdict(dict)
        self.loads: dict[Case, dict[int, wrk.Load]] = defaultdict(dict)  #: by round
        self.missing: dict[str, str] = {}  #: servers, and "server: setting", that were not measured
        self.chosen: dict[Case, str] = {}

    def sweep(self, server: Server) -> None:
        """One short run of every setting at every door and number of connections."""
        for setting in server.settings:
            try:
                found = self._asked(server, setting, self._options.connections, seconds=1)
            except (RuntimeError, TimeoutError) as error:
                self._left_out(f"{server.name}: {setting.name}", error)
                continue
            for case, load in found.items():
                if load.failed:
                    reason = RuntimeError(f"{load.failed} of {load.requests} failed at {case[2]}")
                    self._left_out(f"{server.name}: {setting.name}", reason)
                else:
                    self.swept[case].setdefault(setting.name, []).append(load.rps)
            told = ", ".join(
                f"{case[1]} {case[2]}: {load.rps:,.0f}" for case, load in found.items()
            )
            print(f"sweep {server.name:10} {setting.name:30} {told}", flush=True)
        for case, by_setting in self.swept.items():
            if case[0] == server.name:
                self.chosen[case] = best(by_setting)
        if not any(case[0] == server.name for case in self.chosen):
            self.missing[server.name] = "no setting answered"

    def round(self, server: Server, turn: int) -> None:
        """The best setting of each number of connections, for longer."""
        for setting in server.settings:
            counts = {
                case[2]
                for case, name in self.chosen.items()
                if case[0] == server.name and name == setting.name
            }
            if len(server.settings) == 1:
                counts = set(self._options.connections)
            if not counts:
                continue
            try:
                found = self._asked(server, setting, sorted(counts), seconds=self._options.seconds)
            except (RuntimeError, TimeoutError) as error:
                if server.name == "ours":
                    raise
                self._left_out(f"{server.name}: {setting.name}, round {turn + 1}", error)
                continue
            for case, load in found.items():
                if self.chosen.get(case, setting.name) != setting.name:
                    continue  # the best at another door
                if load.failed:
                    raise RuntimeError(f"{case}: {load.failed} of {load.requests} failed")
                self.loads[case][turn] = load
                print(
                    f"round {turn + 1} {case[0]:10} {case[1]:7} {case[2]:4} connections"
                    f" {load.rps:9,.0f} req/s   P50 {load.p50_ms:8.2f} ms   P99 {load.p99_ms:8.2f}"
                    f" ms   {setting.name}",
                    flush=True,
                )

    def _asked(
        self, server: Server, setting: Setting, counts: list[int], *, seconds: float
    ) -> dict[Case, wrk.Load]:
        """Starts the server, sees that it answers right, warms it and loads it."""
        time.sleep(PAUSE_S)
        found: dict[Case, wrk.Load] = {}
        with server.start(setting) as urls:
            for name, url in urls.items():
                door = DOORS[name]
                raw = wait_answer(url, door.body, timeout_s=START_S_MAX, headers=door.headers)
                if door.read(raw) != ROW:
                    raise RuntimeError(f"{server.name} answered {raw!r} for {ROW}")
                asked = {"headers": door.headers, "seconds": 1}
                wrk.closed_loop(url, door.body, **(asked | {"connections": max(counts)}))
                for count in counts:
                    # What the run before left in a queue is answered first, and is not this one's.
                    wait_answer(url, door.body, timeout_s=START_S_MAX, headers=door.headers)
                    found[server.name, name, count] = wrk.closed_loop(
                        url, door.body, connections=count, seconds=seconds, headers=door.headers
                    )
        return found

    def _left_out(self, what: str, error: Exception) -> None:
        self.missing[what] = str(error)[-300:]
        print(f"{what}: not measured: {self.missing[what]}", flush=True)

    def ratios(self, peer: str) -> dict[str, dict[int, float]]:
        """Ours over a peer's, by door and number of connections."""
        found: dict[str, dict[int, float]] = {}
        for (name, door, count), loads in sorted(self.loads.items()):
            mine = self.loads.get(("ours", door, count), {})
            both = sorted(mine.keys() & loads.keys())
            if name == peer and both:
                rps = [mine[turn].rps for turn in both], [loads[turn].rps for turn in both]
                found.setdefault(door, {})[count] = round(median_ratio(*rps), 3)
        return found


def lowest(by_door: dict[str, dict[int, float]]) -> dict[str, Any] | None:
    """The least favourable ratio, and where it was seen."""
    flat = {(door, count): ratio for door, row in by_door.items() for count, ratio in row.items()}
    if not flat:
        return None
    (door, count), ratio = worst(flat)
    return {"ratio": ratio, "door": door, "connections": count}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench gateway")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2.0, help="whole, of each run")
    parser.add_argument("--connections", type=int, nargs="*", default=list(CONNECTIONS))
    parser.add_argument("--only", nargs="*", default=[server.name for server in SERVERS])
    options = parser.parse_args(arguments)
    options.only = {"ours", *options.only}
    servers = [server for server in SERVERS if server.name in options.only]
    run = Run(options)
    in_front = foreground()
    with OthersLoad() as others:
        for server in servers:
            if len(server.settings) > 1:
                run.sweep(server)
        for turn in range(options.rounds):
            for name in alternated([server.name for server in servers], turn):
                if name not in run.missing:
                    run.round(next(each for each in servers if each.name == name), turn)
    report(run, servers, options, others_cores=round(others.cores, 2), foreground=in_front)


def report(run: Run, servers: list[Server], options: argparse.Namespace, **details: Any) -> None:
    peers = [server.name for server in servers if server.name != "ours"]
    curves = {peer: run.ratios(peer) for peer in peers}
    told = {peer: lowest(curve) for peer, curve in curves.items()}
    for peer, found in told.items():
        if found:
            where = f"{found['connections']} connections, {found['door']}"
            print(f"ours / {peer}: {found['ratio']:.2f} at worst ({where}); {curves[peer]}")
    loads = list(run.loads.items())
    mine = {case: found for case, found in loads if case[0] == "ours"}
    at_32 = mine.get(("ours", "json", 32)) or next(iter(mine.values()))
    finish(
        "gateway",
        {
            "echo_rps": round(statistics.median(load.rps for load in at_32.values())),
            **{
                name: found["ratio"] if found else run.missing.get(peer, "not measured")
                for peer, name in (
                    ("mosec", "vs_mosec"), ("triton", "vs_triton"), ("ray_serve", "vs_ray_serve"),
                    ("limit", "of_limit"),
                )
                if peer in peers
                for found in (told[peer],)
            },
        },
        worst=told,
        ratios=curves,
        rps=by_case({case: [each.rps for each in found.values()] for case, found in loads}),
        p99_ms=by_case({case: [each.p99_ms for each in found.values()] for case, found in loads}),
        settings={
            server.name: nested({case: name for case, name in run.chosen.items()}, server.name)
            for server in servers
            if len(server.settings) > 1
        },
        swept={
            server.name: nested(
                {
                    case: {name: round(statistics.median(rps)) for name, rps in found.items()}
                    for case, found in run.swept.items()
                },
                server.name,
            )
            for server in servers
            if len(server.settings) > 1
        },
        missing=run.missing,
        peers={server.name: versions_of(server) for server in servers if server.environment},
        rounds=options.rounds,
        seconds=options.seconds,
        **details,
        versions=versions("penstock", "uvloop", "httptools", "orjson", "numpy", "openvino"),
    )  # fmt: skip


def nested(by_case: dict[Case, Any], server: str) -> dict[str, dict[int, Any]]:
    """Of one server: door -> connections -> value."""
    found: dict[str, dict[int, Any]] = {}
    for (name, door, count), value in sorted(by_case.items(), key=lambda item: item[0]):
        if name == server:
            found.setdefault(door, {})[count] = value
    return found


def by_case(samples: dict[Case, list[float]]) -> dict[str, dict[str, dict[int, Any]]]:
    """Server -> door -> connections -> median and range."""
    spreads = {case: spread(values) for case, values in samples.items()}
    return {name: nested(spreads, name) for name in dict.fromkeys(case[0] for case in samples)}
