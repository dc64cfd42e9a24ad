"""Many models behind one endpoint: cold and cached calls, what fits, and what a cache is worth.

1. Latency. Models whose files have 292 MB, as the seed's: weights in 32 bits, and twice as many
   in 16. The very first call, calls that must load the model again while its compiled blob lies on
   the disk, cached calls, and five at once, at 30, 250 and 550 tokens. The texts reach the model
   through the tokenizer; times are the client's. `cold_start_s` is a cold call less a cached one,
   of 30 tokens, of the model in 32 bits: one size in the file, the blob and the page cache.
2. Overhead. A small model behind a multi-model endpoint against the same model behind an endpoint
   of its own, turn by turn on one server.
3. Room. How many small models are resident within 80 % of an instance's memory, against an instance
   process for each, as the operating system measures both.
4. Caches (`multi_model_caches.py`). Calls of more models than fit, at Poisson times: a Zipf law,
   one whose favourites change, and rounds over all. Ours, a textbook LRU cache, and Ray Serve's
   multiplexing. Loads again per hour, the share of calls that found their model, P50, P99.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from bench import multi_model_models as models
from bench.arithmetic import alternated
from bench.deployment import deploy
from bench.machine import OthersLoad
from bench.multi_model_caches import caches
from bench.multi_model_load import Door, at_once, median_ms, sequential
from bench.multi_model_site import TARGET_MODEL, copy_of, multi_model
from bench.processes import penstock_up, wait_answer
from bench.report import finish, versions, versions_in

TOKENS = (30, 250, 550)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench multi_model")
    parser.add_argument("--rounds", type=int, default=5, help="of each cold call")
    parser.add_argument("--calls", type=int, default=400, help="of each cached latency")
    parser.add_argument("--models", type=int, default=24, help="of each trace")
    parser.add_argument("--seconds", type=float, default=40.0, help="of each trace")
    parser.add_argument("--rate", type=float, default=6.0, help="calls per second of a trace")
    parser.add_argument("--parts", default="latency,overhead,room,caches")
    options = parser.parse_args(arguments)
    parts = set(options.parts.split(","))
    figures: dict[str, Any] = {}
    details: dict[str, Any] = {}
    with OthersLoad() as others:
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
        others_cores=round(others.cores, 2),
        versions=versions("penstock", "openvino", "tokenizers", "uvloop", "httptools"),
        peers={"ray": versions_in("ray", "ray", "openvino", "tokenizers")}
        if "caches" in parts
        else {},
    )


def latency(
    base_url: str, options: argparse.Namespace, figures: dict[str, Any], details: dict[str, Any]
) -> None:
    details["latency_s"] = {}
    for shape, suffix in (("large-fp32", ""), ("large-fp16", "_fp16")):
        seen = latency_of(base_url, shape, options)
        details["latency_s"][shape] = seen
        cached = seen["cached"][str(TOKENS[0])]
        figures[f"cold_start{suffix}_s"] = round(seen["cold"][str(TOKENS[0])] - cached, 3)
        figures[f"cold_start_first{suffix}_s"] = round(seen["first"] - cached, 3)


def latency_of(base_url: str, shape: str, options: argparse.Namespace) -> dict[str, Any]:
    """Medians in s by number of tokens; of the very first call it is what it is."""
    prefix = models.made(shape, 1)
    name = models.name_of(0)
    size_mb = round(models.size_bytes(prefix / name) / 1e6)
    door = multi_model(base_url, f"cold-{shape}", prefix, cache=False)
    first_s = sequential(door, name, models.body(TOKENS[0]), count=1)[0]
    print(f"{shape}, {size_mb} MB, its very first call: {first_s:.3f} s", flush=True)
    cold: dict[str, float] = {}
    for tokens in TOKENS:
        taken = []
        for _ in range(options.rounds):
            time.sleep(0.5)  # it is unloaded when it is idle; the next call loads it again
            taken += sequential(door, name, models.body(tokens), count=1)
        cold[str(tokens)] = round(statistics.median(taken), 4)
    door = multi_model(base_url, f"cached-{shape}", prefix)
    cached: dict[str, float] = {}
    five: dict[str, float] = {}
    for tokens in TOKENS:
        body, key = models.body(tokens), str(tokens)
        sequential(door, name, body, count=3)
        cached[key] = round(statistics.median(sequential(door, name, body, count=10)), 4)
        at_five = [max(at_once(door, name, body, count=5)) for _ in range(options.rounds)]
        five[key] = round(statistics.median(at_five), 4)
        print(
            f"{tokens:4} tokens: cold {cold[key]:.3f} s, cached {cached[key]:.3f} s,"
            f" the last of five at once {five[key]:.3f} s",
            flush=True,
        )
    return {
        "model_mb": size_mb,
        "first": round(first_s, 3),
        "cold": cold,
        "cached": cached,
        "last_of_five": five,
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
