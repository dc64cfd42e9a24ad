"""What a cache of models is worth: ours, a textbook LRU cache, and Ray Serve's multiplexing.

Calls come at a rate that loads can follow: where they can't, how many models are loaded is a matter
of how many callers happen to wait for the same one, and two runs of one system differ by more than
two systems do. The textbook cache is computed (`penstock.sim.model_cache.lru_loads`), and a load
takes it no time. Ours has a budget of memory, and holds now more and now fewer models: the others
hold as many as ours in the mean, rounded up.

Every system is called for each model once before anything counts, so that all graphs are compiled
and each load that follows is a load again. Then come the traces, one after the other, the same for
all. Ray Serve gets that number of models in all, whatever memory it takes it: in one replica, or
half, rounded up, in each of two. How it does best is found out on the beginning of the first trace:
`SETTINGS`; the best of one replica and the best of two then play everything. Ours and both of these
are played in turns, ours first in one and last in the other.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tools.environments import make
from tools.free_port import free_port

from bench import multi_model_models as models
from bench.machine import foreground
from bench.multi_model_load import Calls, Door, played, sequential
from bench.multi_model_site import copy_of, multi_model
from bench.multi_model_traces import TRACES, trace
from bench.processes import penstock_up, running, wait_answer
from penstock.core.residency import Footprint
from penstock.sim.model_cache import SimulatedModelSpec, Trace, lru_loads

PEERS = Path(__file__).parent / "peers"
RAY_MODEL = "serve_multiplexed_model_id"
TOKENS = 30
#: For Ray to start, and its first model.
_PATIENCE_S = 120.0
#: Of the instance's memory: so much that about half of the traces' models fit.
_SHARE = 0.3
_SWEPT_S = 12.0
#: Between looks at how many models ours holds.
_LOOK_S = 0.5


class RaySetting(NamedTuple):
    name: str
    replicas: int
    threads: int = 1  #: of a model's runs
    ongoing: int = 256  #: `max_ongoing_requests` of a replica
    direct: bool = False  #: the replica answers HTTP itself, without Ray's proxy


#: Ray's own switch for throughput is on in all. A replica that answers itself is one: who routes to
#: several by their models is the proxy.
SETTINGS = (
    RaySetting("direct", 1, direct=True),
    RaySetting("proxy", 1),
    RaySetting("proxy, 2 threads", 1, threads=2),
    RaySetting("2 replicas", 2),
    RaySetting("2 replicas, 2 threads", 2, threads=2),
    RaySetting("2 replicas, 16 ongoing", 2, ongoing=16),
)

_OURS, _LRU = "ours", "LRU, textbook"

#: -> loads so far
Loads = Callable[[], int]
#: trace -> system -> what became of each turn
Turns = dict[str, dict[str, list[dict[str, Any]]]]


def caches(options: argparse.Namespace, figures: dict[str, Any], details: dict[str, Any]) -> None:
    prefix = models.made("small", options.models)
    turns: Turns = {kind: {} for kind in TRACES}
    held = ours_played(prefix, options, turns)
    with tempfile.TemporaryDirectory() as folder:
        blobs = Path(folder)
        best, details["ray_swept"] = swept(prefix, held, blobs, options)
        for setting in (*best, *reversed(best)):
            with ray_serve(prefix, setting, held, blobs) as (door, ray):
                once_each(door, options.models)
                played_through(door, f"Ray Serve, {setting.name}", ray, options, turns)
    held = max(held, ours_played(prefix, options, turns))
    found = {
        kind: {name: merged(seen) for name, seen in by_system.items()}
        for kind, by_system in turns.items()
    }
    details["lru_reloads"] = textbook(options, held)
    compared(found, details["lru_reloads"], figures)
    details["caches"] = found
    details["models_held"] = held
    details["models"] = options.models


def ours_played(prefix: Path, options: argparse.Namespace, turns: Turns) -> int:
    """Plays every trace; returns how many models were held in the mean, rounded up."""
    with ours(prefix) as (base_url, door):
        once_each(door, options.models)
        held: list[int] = []
        with every(_LOOK_S, lambda: held.append(models_loaded(base_url))):
            played_through(door, _OURS, partial(our_loads, base_url), options, turns)
    return math.ceil(statistics.mean(held))


@contextlib.contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Calls `act` on a thread for as long as the block lasts."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(seconds):
            act()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def played_through(
    door: Door, system: str, loads: Loads, options: argparse.Namespace, turns: Turns
) -> None:
    """Plays every trace against one system."""
    for kind in TRACES:
        seen = row(door, kind, loads, options, options.seconds)
        turns[kind].setdefault(system, []).append(seen)
        print(f"{kind:13} {system} {seen}", flush=True)


def textbook(options: argparse.Namespace, held: int) -> dict[str, int]:
    """By trace, how many models LRU would load in it, of which `held` fit."""
    names = models.names(options.models)
    one = SimulatedModelSpec(Footprint(host_bytes=1), 0.0)
    calls: list[tuple[float, str]] = [(0.0, name) for name in names]
    before, loads = len(names), {}
    for kind in TRACES:
        calls += trace(kind, names, options.rate, options.seconds)
        budget = Footprint(host_bytes=max(held, 1))
        so_far = lru_loads(Trace(kind, dict.fromkeys(names, one), tuple(calls), budget))
        loads[kind], before = so_far - before, so_far
    return loads


def merged(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of several turns, and the reloads and the P99 of each."""
    means = {name: statistics.mean(one[name] for one in seen) for name in seen[0]}
    return {
        "reloads": round(means["reloads"], 1),
        "reloads_each": [one["reloads"] for one in seen],
        "reloads_per_hour": round(means["reloads_per_hour"]),
        "hit_ratio": round(means["hit_ratio"], 3),
        "p50_ms": round(means["p50_ms"], 1),
        "p99_ms": round(means["p99_ms"], 1),
        "p99_ms_each": [one["p99_ms"] for one in seen],
    }


def compared(
    found: dict[str, dict[str, Any]], lru: Mapping[str, int], figures: dict[str, Any]
) -> None:
    """The mean turn's reloads against the textbook's, and against the Ray setting with the fewest;
    its P99 against the Ray setting with the shortest."""
    for kind, by_system in found.items():
        name = kind.replace("-", "_")
        ours = by_system[_OURS]
        rays = [seen for system, seen in by_system.items() if system.startswith("Ray")]
        fewest = min(seen["reloads"] for seen in rays)
        shortest_ms = min(seen["p99_ms"] for seen in rays)
        figures[f"reloads_{name}_vs_lru"] = round(ours["reloads"] / max(lru[kind], 1), 3)
        figures[f"reloads_{name}_vs_ray"] = round(ours["reloads"] / max(fewest, 1), 3)
        figures[f"p99_{name}_vs_ray"] = round(ours["p99_ms"] / shortest_ms, 3)
        print(
            f"{kind}: {ours['reloads_each']} reloads, {_LRU} {lru[kind]};"
            f" P99 {ours['p99_ms_each']} ms, Ray Serve's best {shortest_ms} ms",
            flush=True,
        )


def swept(
    prefix: Path, held: int, blobs: Path, options: argparse.Namespace
) -> tuple[list[RaySetting], dict[str, Any]]:
    """For each number of replicas the setting of the shortest P99; and what all of them showed."""
    seen: dict[RaySetting, dict[str, Any]] = {}
    for setting in SETTINGS:
        with ray_serve(prefix, setting, held, blobs) as (door, loads):
            once_each(door, options.models)
            seconds = min(_SWEPT_S, options.seconds)
            seen[setting] = row(door, TRACES[0], loads, options, seconds)
            print(f"Ray Serve, {setting.name:24} {seen[setting]}", flush=True)
    best = [
        min((one for one in seen if one.replicas == count), key=lambda one: seen[one]["p99_ms"])
        for count in (1, 2)
    ]
    return best, {setting.name: shown for setting, shown in seen.items()}


def once_each(door: Door, count: int) -> None:
    for name in models.names(count):
        sequential(door, name, models.body(TOKENS), count=1)


def row(
    door: Door, kind: str, loads: Loads, options: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    """Plays a trace; the models that are loaded when it begins are those of what came before."""
    before = loads()
    calls = trace(kind, models.names(options.models), options.rate, seconds)
    seen = played(door, calls, models.body(TOKENS))
    return shown(seen, loads() - before, seconds)


def shown(calls: Calls, loads: int, seconds: float) -> dict[str, Any]:
    if calls.failed:
        raise RuntimeError(f"{calls.failed} calls failed, the first: {calls.first_failure}")
    return {
        "reloads": loads,
        "reloads_per_hour": round(loads / seconds * 3600),
        "hit_ratio": round(1 - loads / len(calls.latency_s), 3),
        "p50_ms": round(calls.p50_ms, 1),
        "p99_ms": round(calls.p99_ms, 1),
    }


def our_loads(base_url: str) -> int:
    return int(copy_of(base_url, "cache")["models"]["model_loads"])


def models_loaded(base_url: str) -> int:
    return int(copy_of(base_url, "cache")["models"]["models_loaded"])


@contextlib.contextmanager
def ours(prefix: Path) -> Iterator[tuple[str, Door]]:
    with penstock_up() as base_url:
        environment = {"PENSTOCK_MODEL_CACHE_SHARE": str(_SHARE)}
        door = multi_model(
            base_url, "cache", prefix, instance_type="ml.local.small", environment=environment
        )
        yield base_url, door


@contextlib.contextmanager
def ray_serve(
    prefix: Path, setting: RaySetting, held: int, blobs: Path
) -> Iterator[tuple[Door, Loads]]:
    port, own_port = free_port(), free_port()
    url = f"http://127.0.0.1:{own_port if setting.direct else port}/"
    environment = {
        "REPLICAS": str(setting.replicas),
        "THREADS": str(setting.threads),
        "ONGOING": str(setting.ongoing),
        "MODELS": str(max(1, math.ceil(held / setting.replicas))),
        "BLOBS": str(blobs),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
        "RAY_SERVE_ENABLE_DIRECT_INGRESS": str(int(setting.direct)),
        "RAY_SERVE_DEFAULT_HTTP_HOST": "127.0.0.1",
        "RAY_SERVE_DIRECT_INGRESS_MIN_HTTP_PORT": str(own_port),
        "RAY_SERVE_DIRECT_INGRESS_MAX_HTTP_PORT": str(own_port + 9),
    }
    argv = [str(make("ray")), str(PEERS / "ray_serve_models.py"), str(port), str(prefix)]
    with running(argv, env=environment):
        headers = {"Content-Type": "application/json", RAY_MODEL: models.name_of(0)}
        wait_answer(url, models.body(8), timeout_s=_PATIENCE_S, headers=headers)
        foreground()
        yield Door(url, RAY_MODEL), lambda: ray_loads(url, setting.replicas)


def ray_loads(url: str, replicas: int) -> int:
    """Of all replicas; each answers for itself, so they are asked until all have been met."""
    seen: dict[str, int] = {}
    for _ in range(500):
        with urllib.request.urlopen(f"{url}loads", timeout=30) as answer:
            loads = json.loads(answer.read())
        seen[loads["replica"]] = loads["loads"]
        if len(seen) == replicas:
            return sum(seen.values())
    raise RuntimeError(f"{len(seen)} of {replicas} replicas answered")
