"""How old may a gateway's counts be? Least outstanding requests over several, virtual time.

The real routers of 1 to 8 gateways share the copies of one endpoint. A copy computes some requests
at once and queues the rest. Each gateway knows its own requests; of the others' it hears, as from
an instance: with every reply of its own from that copy, and besides every `tell` seconds. `0` tells
of each change at once, `inf` with replies alone, `own` never: each gateway goes by what it sent.

P99 and mean of the wait in the copies' queues, over those of one gateway with the same arrivals,
services and seeds. Random routing is there for comparison.
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

from bench.report import finish
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    RANDOM,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing import CopyState, EndpointRouter, Routed
from penstock.sim.outcome import percentile

OWN = "own"
SIGMA = 1.0  #: of the services' logarithm: answers of very different lengths


@dataclass(slots=True)
class Copy:
    """What its instance knows."""

    running: int
    queue: deque[tuple[float, int, CopyState, float]]
    in_flight: list[int]  #: by gateway

    def others(self, gateway: int) -> int:
        return sum(self.in_flight) - self.in_flight[gateway]


class Run:
    """One endpoint for `count` requests."""

    def __init__(
        self,
        options: argparse.Namespace,
        gateways: int,
        tell: float | str,
        strategy: str,
        seed: int,
    ) -> None:
        self._options = options
        self._tell = tell
        self._rng = random.Random(f"{seed}/load")
        routes = EndpointRoutes(
            endpoint="e",
            variants=(
                VariantRoutes(
                    name="v",
                    weight=1.0,
                    strategy=strategy,
                    copies=tuple(
                        CopyRoute(copy=n, instance_id=f"i{n}", outstanding_max=1_000_000)
                        for n in range(options.copies)
                    ),
                ),
            ),
        )
        self._routers = [
            EndpointRouter(routes, random.Random(f"{seed}/{n}"), shared=gateways > 1)
            for n in range(gateways)
        ]
        self._copies = [Copy(0, deque(), [0] * gateways) for _ in range(options.copies)]
        self._tick_s, self._tick_at = 0.0, math.inf
        self._events: list[tuple[float, int, int, int, CopyState]] = []
        self._number = 0
        self.waits: list[float] = []

    def run(self) -> list[float]:
        options = self._options
        rate = options.load * options.copies * options.slots / options.service_s
        at = 0.0
        self._tick_s = (
            0.0 if self._tell == OWN or math.isinf(float(self._tell)) else float(self._tell)
        )
        self._tick_at = self._tick_s or math.inf
        for _ in range(options.requests):
            at += self._rng.expovariate(rate)
            gateway = self._rng.randrange(len(self._routers))
            service_s = options.service_s * self._rng.lognormvariate(-(SIGMA**2) / 2, SIGMA)
            self._until(at)
            self._arrive(at, gateway, service_s)
        self._until(math.inf)
        return self.waits

    def _until(self, end: float) -> None:
        while min(self._tick_at, self._events[0][0] if self._events else math.inf) <= end:
            if not self._events:
                return
            if self._tick_at <= self._events[0][0]:
                self._tick_at += self._tick_s
                self._hear_all()
                continue
            at, _, gateway, number, state = heapq.heappop(self._events)
            copy = self._copies[number]
            copy.in_flight[gateway] -= 1
            copy.running -= 1
            self._routers[gateway].release(state)
            if self._tell != OWN:  # the reply says what others have there
                self._hear(gateway, number)
            if copy.queue:
                self._start(at, number, *copy.queue.popleft())

    def _arrive(self, at: float, gateway: int, service_s: float) -> None:
        router = self._routers[gateway]
        if self._tell != OWN and float(self._tell) == 0.0:
            self._hear_all()
        routed = router.pick()
        assert isinstance(routed, Routed)
        number = routed.state.copy
        copy = self._copies[number]
        copy.in_flight[gateway] += 1
        waiting = (at, gateway, routed.state, service_s)
        if copy.running < self._options.slots:
            self._start(at, number, *waiting)
        else:
            copy.queue.append(waiting)

    def _hear_all(self) -> None:
        for gateway in range(len(self._routers)):
            for number in range(len(self._copies)):
                self._hear(gateway, number)

    def _hear(self, gateway: int, number: int) -> None:
        self._routers[gateway].set_others(number, self._copies[number].others(gateway))

    def _start(
        self, now: float, number: int, came: float, gateway: int, state: CopyState, service_s: float
    ) -> None:
        self._copies[number].running += 1
        self.waits.append(now - came)
        self._number += 1
        heapq.heappush(self._events, (now + service_s, self._number, gateway, number, state))


def figures(
    options: argparse.Namespace, gateways: int, tell: float | str, strategy: str
) -> tuple[float, float]:
    """Mean and P99 of the wait, s, over all seeds."""
    waits: list[float] = []
    for seed in options.seeds:
        waits += Run(options, gateways, tell, strategy, seed).run()
    return sum(waits) / len(waits), percentile(sorted(waits), 0.99)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench stale_counts")
    parser.add_argument("--gateways", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument(
        "--tell", nargs="+", default=["0", "0.02", "0.1", "1", "inf", OWN], help="s"
    )
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--slots", type=int, default=4, help="that each computes at once")
    parser.add_argument("--service-s", type=float, default=1.0, help="mean")
    parser.add_argument("--load", type=float, default=0.85, help="share of the slots")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args(arguments)
    mean, p99 = figures(options, 1, 0.0, LEAST_OUTSTANDING_REQUESTS)
    chance = figures(options, 1, 0.0, RANDOM)
    print(f"one gateway: wait {mean:.3f} s, P99 {p99:.3f} s; random {chance[1]:.3f} s", flush=True)
    ratios: dict[str, dict[int, dict[str, float]]] = {}
    for tell in options.tell:
        for gateways in options.gateways:
            known: float | str = OWN if tell == OWN else float(tell)
            found = figures(options, gateways, known, LEAST_OUTSTANDING_REQUESTS)
            ratio = {"mean": round(found[0] / mean, 3), "p99": round(found[1] / p99, 3)}
            ratios.setdefault(tell, {})[gateways] = ratio
            print(f"told every {tell:>5} s, {gateways} gateways: {ratio}", flush=True)
    details: dict[str, Any] = {
        name: getattr(options, name)
        for name in ("copies", "slots", "service_s", "load", "requests", "seeds")
    }
    finish(
        "stale_counts",
        {
            "p99_ratio": {
                tell: {n: one["p99"] for n, one in by.items()} for tell, by in ratios.items()
            }
        },
        mean_ratio={tell: {n: one["mean"] for n, one in by.items()} for tell, by in ratios.items()},
        one_gateway={"wait_s": round(mean, 4), "p99_s": round(p99, 4)},
        random_p99_ratio=round(chance[1] / p99, 2),
        **details,
    )
