"""Many models behind one endpoint: cold and cached calls, what fits, and what a cache is worth.

1. Latency. A model of 292 MB (the seed's size): its very first call, calls that must load it again
   while its compiled blob lies on the disk, cached calls, and five at once, at 30, 250 and 550
   tokens. The texts reach the model through the tokenizer; times are the client's.
2. Overhead. A small model behind a multi-model endpoint against the same model behind an endpoint
   of its own, turn by turn on one server.
3. Room. How many small models are resident within 80 % of an instance's memory, against an instance
   process for each, as the operating system measures both.
4. Caches. Calls of more models than fit, at Poisson times: a Zipf law, one whose favourites change,
   and rounds over all. Ours with each of its two policies, and Ray Serve's multiplexing with as
   many models as ours held, at the better of its two settings. Loads again per hour, the share of
   calls that found their model, P50 and P99.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from tools.environments import make

from bench import multi_model_models as models
from bench.arithmetic import alternated
from bench.deployment import deploy
from bench.multi_model_load import Calls, Door, at_once, median_ms, played, sequential
from bench.multi_model_traces import TRACES, trace
from bench.processes import free_port, penstock_up, running, wait_answer
from bench.report import finish, versions, versions_in

TARGET_MODEL = "X-Amzn-SageMaker-Target-Model"
RAY_MODEL = "serve_multiplexed_model_id"
TOKENS = (30, 250, 550)
PEERS = Path(__file__).parent / "peers"
#: For Ray to start, and its first model.
_PATIENCE_S = 120.0
#: Of the instance's memory: so much that about half of the traces' models fit.
_SHARE = 0.3


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench multi_model")
    parser.add_argument("--rounds", type=int, default=5, help="of each cold call")
    parser.add_argument("--calls", type=int, default=400, help="of each cached latency")
    parser.add_argument("--models", type=int, default=24, help="of each trace")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each trace")
    parser.add_argument("--rate", type=float, default=12.0, help="calls per second of a trace")
    parser.add_argument("--parts", default="latency,overhead,room,caches")
    options = parser.parse_args(arguments)
    parts = set(options.parts.split(","))
    figures: dict[str, Any] = {}
    details: dict[str, Any] = {}
    with penstock_up() as base_url:
        if "latency" in parts:
            latency(base_url, options, figures, details)
        if "overhead" in parts:
            overhead(base_url, options, figures, details)
    if "room" in parts:
        room(options, figures, details)
    if "caches" in parts:
        caches(options, figures, details)
    finish(
        "multi_model",
        figures,
        **details,
        versions=versions("penstock", "openvino", "tokenizers", "uvloop", "httptools"),
        peer_versions=versions_in("ray", "ray", "openvino", "tokenizers") if "caches" in parts
        else {},
    )  # fmt: skip


def multi_model(
    base_url: str,
    name: str,
    prefix: Path,
    *,
    instance_type: str = "ml.local.large",
    cache: bool = True,
    environment: dict[str, str] | None = None,
) -> Door:
    """Creates a multi-model endpoint by boto3 and waits until it is in service."""
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none"}
    client = boto3.client("sagemaker", endpoint_url=base_url, region_name="us-east-1", **keys)
    setting = "Enabled" if cache else "Disabled"
    client.create_model(
        ModelName=name,
        PrimaryContainer={
            "Mode": "MultiModel",
            "ModelDataUrl": f"{prefix.as_uri()}/",
            "MultiModelConfig": {"ModelCacheSetting": setting},
            "Environment": environment or {},
        },
    )
    variant = {
        "VariantName": "all",
        "ModelName": name,
        "InstanceType": instance_type,
        "InitialInstanceCount": 1,
    }
    client.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
    client.create_endpoint(EndpointName=name, EndpointConfigName=name)
    waiter = client.get_waiter("endpoint_in_service")
    waiter.wait(EndpointName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
    return Door(f"{base_url}/endpoints/{name}/invocations", TARGET_MODEL)


def latency(
    base_url: str, options: argparse.Namespace, figures: dict[str, Any], details: dict[str, Any]
) -> None:
    prefix = models.made("large", 2)
    name = models.name_of(0)
    size_mb = models.size_bytes(prefix / name) / 1e6
    door = multi_model(base_url, "cold", prefix, cache=False)
    first_s = sequential(door, name, models.body(TOKENS[0]), count=1)[0]
    print(f"a model of {size_mb:.0f} MB, its very first call: {first_s:.3f} s", flush=True)
    cold: dict[int, float] = {}
    for tokens in TOKENS:
        taken = []
        for _ in range(options.rounds):
            time.sleep(0.5)  # it is unloaded when it is idle; the next call loads it again
            taken += sequential(door, name, models.body(tokens), count=1)
        cold[tokens] = statistics.median(taken)
    door = multi_model(base_url, "cached", prefix)
    cached: dict[int, float] = {}
    five: dict[int, float] = {}
    for tokens in TOKENS:
        body = models.body(tokens)
        sequential(door, name, body, count=3)
        cached[tokens] = statistics.median(sequential(door, name, body, count=10))
        at_five = [max(at_once(door, name, body, count=5)) for _ in range(options.rounds)]
        five[tokens] = statistics.median(at_five)
        print(
            f"{tokens:4} tokens: cold {cold[tokens]:.3f} s, cached {cached[tokens]:.3f} s,"
            f" the last of five at once {five[tokens]:.3f} s",
            flush=True,
        )
    figures["cold_start_s"] = round(cold[TOKENS[0]] - cached[TOKENS[0]], 3)
    figures["cold_start_first_s"] = round(first_s - cached[TOKENS[0]], 3)
    details["model_mb"] = round(size_mb)
    details["latency_s"] = {
        "cold": {str(tokens): round(value, 3) for tokens, value in cold.items()},
        "cached": {str(tokens): round(value, 4) for tokens, value in cached.items()},
        "last_of_five": {str(tokens): round(value, 4) for tokens, value in five.items()},
    }


def overhead(
    base_url: str, options: argparse.Namespace, figures: dict[str, Any], details: dict[str, Any]
) -> None:
    prefix = models.made("tiny", 2)
    name = models.name_of(0)
    many = multi_model(base_url, "tiny-many", prefix, instance_type="ml.local.small")
    deploy(base_url, "tiny-single", prefix / name)
    single = Door(f"{base_url}/endpoints/tiny-single/invocations", TARGET_MODEL)
    body = models.body(8)
    doors = {"many": (many, name), "single": (single, "")}
    for door, model in doors.values():
        sequential(door, model, body, count=options.calls)
    seen: dict[str, list[float]] = {"many": [], "single": []}
    for turn in range(2 * options.rounds):
        for which in alternated(("many", "single"), turn):
            door, model = doors[which]
            seen[which].append(median_ms(sequential(door, model, body, count=options.calls)))
    differences = [many - single for many, single in zip(seen["many"], seen["single"], strict=True)]
    figures["cached_overhead_ms"] = round(statistics.median(differences), 3)
    details["overhead_ms"] = {
        which: round(statistics.median(values), 3) for which, values in seen.items()
    }
    print(f"cached call of a small model: {details['overhead_ms']} ms", flush=True)


def room(options: argparse.Namespace, figures: dict[str, Any], details: dict[str, Any]) -> None:
    """Small models are called one after the other until one is evicted."""
    count = 96
    prefix = models.made("small", count)
    with penstock_up() as base_url:
        door = multi_model(base_url, "room", prefix, instance_type="ml.local.small")
        resident = 0
        for name in models.names(count):
            sequential(door, name, models.body(TOKENS[0]), count=1)
            now = copy_of(base_url, "room")["models"]["models_loaded"]
            if now <= resident:
                break
            resident = now
        instance_bytes = copy_of(base_url, "room")["memory_bytes_max"]
        deploy(base_url, "alone", prefix / models.name_of(0), instance_type="ml.local.small")
        url = f"{base_url}/endpoints/alone/invocations"
        wait_answer(url, models.body(TOKENS[0]), timeout_s=30)
        alone_bytes = copy_of(base_url, "alone")["memory_bytes"]
    alone = int(0.8 * instance_bytes / alone_bytes)
    figures["resident_models"] = resident
    figures["resident_one_process_each"] = alone
    details["room"] = {
        "instance_bytes": instance_bytes,
        "one_process_bytes": alone_bytes,
        "model_mb": round(models.size_bytes(prefix / models.name_of(0)) / 1e6, 1),
    }
    print(f"resident at 80 %: {resident} models, {alone} as processes of their own", flush=True)


def copy_of(base_url: str, endpoint: str) -> dict[str, Any]:
    """What the admin API says of an endpoint's only copy."""
    with urllib.request.urlopen(f"{base_url}/admin/copies", timeout=30) as answer:
        copies = json.loads(answer.read())["copies"]
    [copy] = [one for one in copies if one["endpoint"] == endpoint]
    return dict(copy)


def caches(options: argparse.Namespace, figures: dict[str, Any], details: dict[str, Any]) -> None:
    prefix = models.made("small", options.models)
    found: dict[str, dict[str, Any]] = {kind: {} for kind in TRACES}
    held = 0
    for policy in ("GDSF", "LRU"):
        with ours(prefix, policy) as (base_url, door):
            for kind in TRACES:
                before = copy_of(base_url, "cache")["models"]
                calls = play(door, kind, options)
                after = copy_of(base_url, "cache")["models"]
                held = max(held, after["models_loaded"])
                loads = after["model_loads"] - before["model_loads"]
                found[kind][f"ours {policy}"] = row(calls, loads, options)
    for replicas in (1, 2):
        setting = f"ray_serve {replicas} x {max(1, held // replicas)}"
        with ray_serve(prefix, replicas, max(1, held // replicas)) as (url, door):
            for kind in TRACES:
                before_loads = ray_loads(url, replicas)
                calls = play(door, kind, options)
                found[kind][setting] = row(calls, ray_loads(url, replicas) - before_loads, options)
    for kind, by_system in found.items():
        for system, seen in by_system.items():
            print(f"{kind:13} {system:18} {seen}", flush=True)
        reloads = {name: seen["loads"] for name, seen in by_system.items()}
        figures[f"loads_{kind.replace('-', '_')}_vs_lru"] = round(
            reloads["ours GDSF"] / max(reloads["ours LRU"], 1), 3
        )
        peer = min((name for name in reloads if name.startswith("ray")), key=lambda n: reloads[n])
        figures[f"loads_{kind.replace('-', '_')}_vs_ray"] = round(
            reloads["ours GDSF"] / max(reloads[peer], 1), 3
        )
    details["caches"] = found
    details["models_held"] = held
    details["models"] = options.models


def play(door: Door, kind: str, options: argparse.Namespace) -> Calls:
    """The calls of one trace; the models that are loaded when it begins are those of the last."""
    calls = trace(kind, models.names(options.models), options.rate, options.seconds)
    return played(door, calls, models.body(TOKENS[0]))


def row(calls: Calls, loads: int, options: argparse.Namespace) -> dict[str, Any]:
    if calls.failed:
        raise RuntimeError(f"{calls.failed} calls failed, the first: {calls.first_failure}")
    return {
        "loads": loads,
        "loads_per_hour": round(loads / options.seconds * 3600),
        "hit_ratio": round(1 - loads / len(calls.latency_s), 3),
        "p50_ms": round(calls.p50_ms, 1),
        "p99_ms": round(calls.p99_ms, 1),
    }


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
def ray_serve(prefix: Path, replicas: int, count: int) -> Iterator[tuple[str, Door]]:
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    with tempfile.TemporaryDirectory() as blobs:
        environment = {"REPLICAS": str(replicas), "MODELS": str(count), "BLOBS": blobs}
        argv = [str(make("ray")), str(PEERS / "ray_serve_models.py"), str(port), str(prefix)]
        with running(argv, env=environment):
            headers = {"Content-Type": "application/json", RAY_MODEL: models.name_of(0)}
            wait_answer(url, models.body(8), timeout_s=_PATIENCE_S, headers=headers)
            yield url, Door(url, RAY_MODEL)


def ray_loads(url: str, replicas: int) -> int:
    """Of all replicas; each answers for itself, so they are asked until all have been met."""
    seen: dict[str, int] = {}
    for _ in range(200):
        with urllib.request.urlopen(f"{url}loads", timeout=30) as answer:
            which, _, loads = answer.read().decode().partition(" ")
        seen[which] = int(loads)
        if len(seen) == replicas:
            break
    return sum(seen.values())
