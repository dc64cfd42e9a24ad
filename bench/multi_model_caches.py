"""What a cache of models is worth: ours by each of its policies, and Ray Serve's multiplexing.

Calls come at a rate that loads can follow: where they can't, how many models are loaded is a matter
of how many callers happen to wait for the same one, and two runs of one policy differ by more than
two policies do. Ours is played in turns, each policy first once; reloads are compared in sum, and
beside them stands by how much LRU's own turns differ.

Every system is called for each model once before anything counts, so that all graphs are compiled
and each load that follows is a load again. Then come the traces, one after the other, the same for
all. Ray Serve gets as many models in all as ours held at most, whatever memory that takes it: in
one replica, or half in each of two. How it does best is found out first, on the beginning of the
first trace: `SETTINGS`; the best of one replica and the best of two then play everything.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tools.environments import make
from tools.free_port import free_port

from bench import multi_model_models as models
from bench.arithmetic import alternated
from bench.machine import foreground
from bench.multi_model_load import Calls, Door, played, sequential
from bench.multi_model_site import copy_of, multi_model
from bench.multi_model_traces import TRACES, trace
from bench.processes import penstock_up, running, wait_answer

PEERS = Path(__file__).parent / "peers"
RAY_MODEL = "serve_multiplexed_model_id"
TOKENS = 30
#: For Ray to start, and its first model.
_PATIENCE_S = 120.0
#: Of the instance's memory: so much that about half of the traces' models fit.
_SHARE = 0.3
_SWEPT_S = 12.0


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

#: Ours is played so often with each policy, in changing order.
_TURNS = 2
_GDSF, _LRU = "ours, GDSF", "ours, LRU"

#: -> loads so far
Loads = Callable[[], int]


def caches(options: argparse.Namespace, figures: dict[str, Any], details: dict[str, Any]) -> None:
    prefix = models.made("small", options.models)
    found: dict[str, dict[str, Any]] = {kind: {} for kind in TRACES}
    held = 0
    turns: dict[str, dict[str, list[dict[str, Any]]]] = {kind: {} for kind in TRACES}
    for turn in range(_TURNS):
        for policy in alternated(("GDSF", "LRU"), turn):
            held = max(held, ours_played(prefix, policy, options, turns))
    for kind, by_policy in turns.items():
        found[kind] = {name: merged(seen) for name, seen in sorted(by_policy.items())}
    with tempfile.TemporaryDirectory() as blobs:
        best, details["ray_swept"] = swept(prefix, held, Path(blobs), options)
        for setting in best:
            with ray_serve(prefix, setting, held, Path(blobs)) as (door, ray):
                once_each(door, options.models)
                for kind in TRACES:
                    seen = row(door, kind, ray, options, options.seconds)
                    found[kind][f"Ray Serve, {setting.name}"] = seen
                    print(f"{kind:13} Ray Serve, {setting.name} {seen}", flush=True)
    compared(found, figures)
    details["caches"] = found
    details["models_held"] = held
    details["models"] = options.models


def ours_played(
    prefix: Path,
    policy: str,
    options: argparse.Namespace,
    turns: dict[str, dict[str, list[dict[str, Any]]]],
) -> int:
    """Plays every trace under a policy; returns how many models were held at most."""
    held = 0
    with ours(prefix, policy) as (base_url, door):
        once_each(door, options.models)
        loads = partial(our_loads, base_url)
        for kind in TRACES:
            seen = row(door, kind, loads, options, options.seconds)
            turns[kind].setdefault(_GDSF if policy == "GDSF" else _LRU, []).append(seen)
            print(f"{kind:13} {policy} {seen}", flush=True)
            held = max(held, copy_of(base_url, "cache")["models"]["models_loaded"])
    return held


def merged(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean of several turns, and the reloads of each."""
    means = {name: statistics.mean(one[name] for one in seen) for name in seen[0]}
    return {
        "reloads": round(means["reloads"], 1),
        "reloads_each": [one["reloads"] for one in seen],
        "reloads_per_hour": round(means["reloads_per_hour"]),
        "hit_ratio": round(means["hit_ratio"], 3),
        "p50_ms": round(means["p50_ms"], 1),
        "p99_ms": round(means["p99_ms"], 1),
    }


def compared(found: dict[str, dict[str, Any]], figures: dict[str, Any]) -> None:
    """Reloads of all turns against LRU's, and the mean turn's against the Ray setting with the
    fewest; P99 against the Ray setting with the shortest."""
    for kind, by_system in found.items():
        name = kind.replace("-", "_")
        ours, lru = by_system[_GDSF], by_system[_LRU]
        rays = [seen for system, seen in by_system.items() if system.startswith("Ray")]
        fewest = min(seen["reloads"] for seen in rays)
        shortest_ms = min(seen["p99_ms"] for seen in rays)
        total, total_lru = sum(ours["reloads_each"]), max(sum(lru["reloads_each"]), 1)
        spread = max(lru["reloads_each"]) - min(lru["reloads_each"])
        figures[f"reloads_{name}_vs_lru"] = round(total / total_lru, 3)
        figures[f"reloads_{name}_lru_spread"] = round(
            spread * len(lru["reloads_each"]) / total_lru, 3
        )
        figures[f"reloads_{name}_vs_ray"] = round(ours["reloads"] / max(fewest, 1), 3)
        figures[f"p99_{name}_vs_ray"] = round(ours["p99_ms"] / shortest_ms, 3)
        print(
            f"{kind}: {total} reloads in all turns, LRU {total_lru} ({lru['reloads_each']});"
            f" P99 {ours['p99_ms']} ms, Ray Serve's best {shortest_ms} ms",
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


@contextlib.contextmanager
def ours(prefix: Path, policy: str) -> Iterator[tuple[str, Door]]:
    with penstock_up() as base_url:
        environment = {
            "PENSTOCK_MODEL_CACHE_POLICY": policy,
            "PENSTOCK_MODEL_CACHE_SHARE": str(_SHARE),
        }
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
        "MODELS": str(max(1, held // setting.replicas)),
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
