"""Routing at the size of `docs/scale.md`: one endpoint of 2,000 copies behind 64 gateways.

The routers are the live ones (`core/routing`), one for each gateway; arrivals, copies and the
news of copies are stood in for. A copy has `SLOTS` requests at once and a queue in order of
arrival; requests take lognormal times of mean 4 s, as generated answers of very different lengths
do. Each gateway hears how many requests of others a copy has as instances tell it: with each reply
of the copy to it, and else every `HEARTBEAT_S`; in between it knows of its own requests alone.

Ways that are compared, under the same arrivals:

    one        a single gateway that knows everything: what no number of gateways can beat
    told       64 gateways, told by replies and heartbeats
    shuffled   the same, and each has the copies in an order of its own, as gateways do: ties fall
               differently
    apart      64 gateways, each counts its own requests only
    random     64 gateways, any copy

and how long a decision of a router and a turn of reconciliation take among as many copies, which is
what bounds a gateway process and a control plane.

    make bench NAME=scale_twin
    .venv/bin/python -m bench scale_twin --copies 125 --gateways 4 --length 60
"""

from __future__ import annotations

import argparse
import heapq
import math
import random
import statistics
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from bench.report import finish
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    RANDOM,
    CopyRoute,
    DeploymentSpec,
    EndpointRoutes,
    ModelSource,
    VariantRoutes,
    VariantSpec,
)
from penstock.core.deployment.endpoint_state import (
    IN_SERVICE,
    READY,
    RUNNING,
    CopyObserved,
    EndpointObserved,
    EndpointSpec,
    InstanceObserved,
    PublishRoutes,
)
from penstock.core.endpoint.reconcile import decide as reconcile
from penstock.core.routing.copies import CopyState, Routed
from penstock.core.routing.endpoint import EndpointRouter
from penstock.sim.outcome import percentile

SLOTS: Final = 8
HEARTBEAT_S: Final = 0.02
MEAN_S: Final = 4.0
SIGMA: Final = 1.0
#: A gateway holds no more than this on a copy; never reached here.
OUTSTANDING_MAX: Final = 256
WAYS: Final = ("one", "told", "shuffled", "apart", "random")
_TOLD: Final = ("told", "shuffled")


class Copies:
    """All copies of the endpoint: what runs, and who waits; time is passed in."""

    def __init__(self, count: int, gateways: int) -> None:
        self.running = [0] * count
        self.waiting: list[deque[tuple[float, Held]]] = [deque() for _ in range(count)]
        self.of_gateway = [[0] * gateways for _ in range(count)]
        self.changed: set[int] = set()  #: since the last heartbeat
        self.ends: list[tuple[float, int, Held]] = []  #: heap of (when, number, request)
        self.waits: list[tuple[float, float]] = []  #: (arrival, s in the queue) of what has begun
        self._number = 0

    def take(self, now: float, one: Held) -> None:
        self._count(one, 1)
        if self.running[one.copy] < SLOTS:
            self._begin(now, now, one)
        else:
            self.waiting[one.copy].append((now, one))

    def end(self) -> Held:
        """The next that is over."""
        now, _, one = heapq.heappop(self.ends)
        self._count(one, -1)
        self.running[one.copy] -= 1
        if self.waiting[one.copy]:
            arrived, following = self.waiting[one.copy].popleft()
            self._begin(now, arrived, following)
        return one

    def _begin(self, now: float, arrived: float, one: Held) -> None:
        self.running[one.copy] += 1
        self.waits.append((arrived, now - arrived))
        self._number += 1
        heapq.heappush(self.ends, (now + one.took_s, self._number, one))

    def _count(self, one: Held, by: int) -> None:
        self.of_gateway[one.copy][one.gateway] += by
        self.changed.add(one.copy)


class Size(NamedTuple):
    copies: int
    gateways: int


class Held(NamedTuple):
    """A request on its copy."""

    gateway: int
    state: CopyState
    took_s: float

    @property
    def copy(self) -> int:
        return self.state.copy


def router(strategy: str, order: Sequence[int]) -> EndpointRouter:
    routes = tuple(
        CopyRoute(copy=at, instance_id=f"i{at}", outstanding_max=OUTSTANDING_MAX) for at in order
    )
    variant = VariantRoutes(name="all", weight=1.0, strategy=strategy, copies=routes)
    return EndpointRouter(EndpointRoutes(endpoint="e", variants=(variant,)), random.Random(1))


def waits(way: str, size: Size, *, load: float, length_s: float, seed: int) -> list[float]:
    """Seconds that each request waited in its copy's queue, ascending.

    It begins with as many requests under way as the load keeps there, and the first half is left
    out. What has not begun at the end has waited until then.
    """
    rng = random.Random(seed)
    strategy = RANDOM if way == "random" else LEAST_OUTSTANDING_REQUESTS
    order = list(range(size.copies))
    routers = []
    for _ in range(1 if way == "one" else size.gateways):
        if way == "shuffled":
            rng.shuffle(order)
        routers.append(router(strategy, order))
    copies = Copies(size.copies, size.gateways)
    mu = math.log(MEAN_S) - SIGMA * SIGMA / 2

    def send(now: float, took_s: float) -> None:
        gateway = rng.randrange(len(routers))
        route = routers[gateway].pick(now=now)
        assert isinstance(route, Routed), route
        copies.take(now, Held(gateway, route.state, took_s))

    for at in range(round(load * size.copies * SLOTS)):
        # What is found under way is longer than others, and any part of it is left.
        send(0.0, rng.random() * rng.lognormvariate(mu + SIGMA * SIGMA, SIGMA))
        if way in _TOLD and at % 10 == 0:
            tell(copies, routers)
    rate = load * size.copies * SLOTS / MEAN_S
    arrival, beat = rng.expovariate(rate), HEARTBEAT_S
    while arrival < length_s:
        now = min(arrival, copies.ends[0][0], beat)
        if now == beat:
            beat = now + HEARTBEAT_S
            if way in _TOLD:
                tell(copies, routers)
        elif now == arrival:
            send(now, rng.lognormvariate(mu, SIGMA))
            arrival = now + rng.expovariate(rate)
        else:
            over = copies.end()
            routers[over.gateway].release(over.state)
            if way in _TOLD:  # a reply says it, too
                own = copies.of_gateway[over.copy]
                routers[over.gateway].set_others(over.copy, sum(own) - own[over.gateway])
    left = [(at, length_s - at) for queue in copies.waiting for at, _ in queue]
    return sorted(waited for at, waited in (*copies.waits, *left) if at >= length_s / 2)


def tell(copies: Copies, routers: Sequence[EndpointRouter]) -> None:
    """A heartbeat: what of each copy has changed."""
    for copy in copies.changed:
        own = copies.of_gateway[copy]
        together = sum(own)
        for gateway, one in enumerate(routers):
            one.set_others(copy, together - own[gateway])
    copies.changed.clear()


def decision_us(copies: int) -> float:
    """Of one pick and its release among so many copies, in processor time; the median of rounds."""
    routes = router(LEAST_OUTSTANDING_REQUESTS, range(copies))
    rounds = []
    for _ in range(9):
        begun = time.process_time()
        for _ in range(100):
            route = routes.pick(now=0.0)
            assert isinstance(route, Routed)
            routes.release(route.state)
        rounds.append((time.process_time() - begun) / 100 * 1e6)
    return statistics.median(rounds)


def reconcile_ms(copies: int) -> float:
    """Of one turn of reconciliation over an endpoint in service, of which one copy has just become
    ready; in processor time, the median of rounds."""
    spec = VariantSpec(
        name="all",
        model=ModelSource(model_name="m"),
        instance_type="ml.local",
        instance_count=copies,
    )
    desired = EndpointSpec(
        endpoint="e",
        status=IN_SERVICE,
        active=DeploymentSpec(endpoint="e", generation=1, config_name="c", variants=(spec,)),
    )
    held = [
        InstanceObserved(
            instance_id=f"i{at}", variant="all", generation=1, ordinal=at, phase=RUNNING, since=0.0
        )
        for at in range(copies)
    ]
    loaded = [
        CopyObserved(
            copy=at, instance_id=f"i{at}", variant="all", generation=1, component="all", ordinal=at,
            phase=READY, since=0.0, load_s_max=60.0, outstanding_max=SLOTS, model={"name": "m"},
            routed=at > 0, outstanding=0,
        )
        for at in range(copies)
    ]  # fmt: skip
    seen = EndpointObserved(instances=tuple(held), copies=tuple(loaded))
    rounds = []
    for _ in range(5):
        begun = time.process_time()
        decision = reconcile(desired, seen, now=1.0)
        rounds.append((time.process_time() - begun) * 1e3)
    assert any(isinstance(action, PublishRoutes) for action in decision.actions)
    return statistics.median(rounds)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="bench scale_twin", description=__doc__)
    parser.add_argument("--load", type=float, nargs="+", default=[0.8, 0.95])
    parser.add_argument("--length", type=float, default=16.0, help="simulated seconds")
    parser.add_argument("--copies", type=int, default=2000)
    parser.add_argument("--gateways", type=int, default=64)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    size, rows = Size(asked.copies, asked.gateways), []
    for load in asked.load:
        for way in asked.ways:
            found = waits(way, size, load=load, length_s=asked.length, seed=asked.seed)
            row = {
                "load": load,
                "way": way,
                "requests": len(found),
                "waited": round(sum(one > 0 for one in found) / len(found), 4),
                "wait_s_p99": round(percentile(found, 0.99), 3),
                "wait_s_mean": round(statistics.fmean(found), 4),
            }
            print(row, flush=True)
            rows.append(row)
    turns = {str(count): round(reconcile_ms(count), 2) for count in (10, 100, 1000, 2000)}
    decisions = {str(count): round(decision_us(count), 1) for count in (1, 10, 100, 1000, 2000)}
    finish(
        "scale_twin",
        {"decision_us": decisions, "reconcile_ms": turns},
        copies=size.copies, gateways=size.gateways, slots=SLOTS, heartbeat_s=HEARTBEAT_S,
        seed=asked.seed, length_s=asked.length, rows=rows,
    )  # fmt: skip
