"""Three live regions, what stands before them in each place, and one round of load on it all.

Every region is a whole server in a network namespace (`regions_network.py`), reached from each of
three places by another way. In each place stand an orchestrator, whose home is the region there,
and an HAProxy. Each way of sending has an endpoint of its own in every region, with copies of its
own, so that all of them are measured at the same time and never share an engine.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from bench.deployment import deploy
from bench.generation_load import Answer, completion, streamed
from bench.machine import MachineStalls, OthersLoad, processor_s
from bench.paced import paced_artifact
from bench.processes import Running, wait_answer
from bench.regions_fronts import Front, started_process
from bench.regions_live_trace import (
    COPIES,
    LOCAL,
    PUSHING,
    QUEUE_S,
    RATES_RPS,
    ROBIN,
    Asked,
    asked_by_region,
    prefix_length_of,
)
from bench.regions_network import Host, hosts
from penstock.core.deployment.deployment import PREFIX_AWARE
from penstock.sim.outcome import percentile
from penstock.sim.regions.regions_scenario import InTurn, Policy, RegionsScenario, with_rate

BESIDE = "beside"  #: a second fleet that is sent to as pushing's is
ENDPOINTS = {PUSHING: "pushing", BESIDE: "beside", LOCAL: "local", ROBIN: "robin"}
INSTANCE_TYPE = "ml.m7i.large"  #: a name of AWS's: no memory is set aside that a copy never takes
PATIENCE_S = 30.0  #: after the last arrival; whoever is not answered then has no first token
_START_S = 6.0  #: until all processes of the load are there, with their requests
_PATH = "/v1/completions"


class _Reached(NamedTuple):
    """A region from one place."""

    name: str
    url: str


@dataclass(slots=True)
class Round:
    """What one round of load came to."""

    levels: dict[str, int]
    p99_s: dict[str, float]  #: by fleet, of all users' first tokens; infinite: too many had none
    p50_s: dict[str, float]
    by_region_p99_s: dict[str, list[float]]
    requests: dict[str, int]
    tokens: int
    failed: dict[str, int]
    errors: list[str]
    late_p99_s: float  #: how late requests left, those of all fleets
    late_max_s: float
    stall_s: float  #: the longest of the machine
    others_cores: float
    cores: dict[str, float]  #: that each kind of process took
    processor_ms: dict[str, float] = field(default_factory=dict)  #: per request that it saw


class Site:
    """What runs. `policies`: of each way, the settings that it is deployed with."""

    def __init__(
        self, scenario: RegionsScenario, policies: Mapping[str, Policy], seed: int
    ) -> None:
        self._scenario = scenario
        self._policies = policies
        self._seed = seed
        self._urls: dict[str, list[str]] = {}  #: by fleet, from each place
        self._processes: dict[str, list[Running]] = {}  #: by kind
        self._rounds = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[Site]:
        """Starts everything, and returns once each endpoint has answered from each place."""
        scenario = self._scenario
        ways_ms = {
            one.name: [2e3 * delays[at] for delays in scenario.delay_s]
            for at, one in enumerate(scenario.regions)
        }
        artifact = paced_artifact(scenario.generation, prefix_tokens=scenario.prefix_tokens)
        with artifact as folder, hosts(ways_ms, loss=0.0) as regions, contextlib.ExitStack() as top:
            self._deploy(regions, folder)
            kinds = {"orchestrator": self._orchestrator, "haproxy": self._haproxy}
            urls: dict[str, list[str]] = {}
            for kind, front_of in kinds.items():
                for place in range(len(regions)):
                    reached = {
                        name: _Reached(name, host.url_from(place)) for name, host in regions.items()
                    }
                    front = started_process(front_of(place), reached)
                    url, process = top.enter_context(front)
                    urls.setdefault(kind, []).append(url)
                    self._processes.setdefault(kind, []).append(process)
            self._processes["region"] = [host.server for host in regions.values()]
            self._processes["relay"] = [host.relay for host in regions.values()]
            for fleet in ENDPOINTS:
                self._urls[fleet] = urls["haproxy" if fleet == ROBIN else "orchestrator"]
            self._wait_answers()
            yield self

    def _orchestrator(self, place: int) -> Front:
        home = self._scenario.regions[place].name
        pinned = {ENDPOINTS[LOCAL]: {"pinned": [home]}}
        return Front("ours", "ours", home=home, queue_s=QUEUE_S, endpoints=pinned)

    def _haproxy(self, place: int) -> Front:
        policy = self._policies[ROBIN]
        assert isinstance(policy, InTurn)
        return Front("haproxy", "haproxy", policy.in_region_max, queue_s=QUEUE_S)

    def _deploy(self, regions: Mapping[str, Host], folder: Path) -> None:
        def one(host: Host, fleet: str) -> None:
            routing, environment = self._routing(fleet)
            deploy(
                host.url_from(host.number - 1), ENDPOINTS[fleet], folder, copies=COPIES,
                instance_type=INSTANCE_TYPE, routing=routing, environment=environment,
            )  # fmt: skip

        every = [(host, fleet) for fleet in ENDPOINTS for host in regions.values()]
        with ThreadPoolExecutor(len(regions)) as pool:
            list(pool.map(lambda each: one(*each), every))

    def _routing(self, fleet: str) -> tuple[dict[str, Any], dict[str, str]]:
        """Within a region: a RoutingConfig, or the environment of the model."""
        policy = self._policies[PUSHING if fleet == BESIDE else fleet]
        if policy.strategy != PREFIX_AWARE:
            return {}, {"PENSTOCK_ROUTING": policy.strategy}
        threshold = policy.threshold or self._scenario.generation.sequences_max
        prefix = {
            "PrefixLength": prefix_length_of(self._scenario, ENDPOINTS[fleet]),
            "ConcurrencyThreshold": threshold,
        }
        return {"RoutingStrategy": PREFIX_AWARE, "PrefixAwareRoutingConfig": prefix}, {}

    def _wait_answers(self) -> None:
        for fleet, urls in self._urls.items():
            body = completion("Say something.", 1, ENDPOINTS[fleet]).encode()
            for url in urls:
                for _ in urls:  # each region has its turn where there are turns
                    wait_answer(url + _PATH, body, timeout_s=60.0)

    # load

    def round(self, levels: Mapping[str, int]) -> Round:
        """All users' day, for each fleet at the rate of its level."""
        self._rounds += 1
        label = f"round {self._rounds}"  # what caches have of earlier rounds is of no use
        asked: list[tuple[str, str, Asked]] = []
        for fleet, level in levels.items():
            scenario = with_rate(self._scenario, RATES_RPS[level])
            each = asked_by_region(scenario, self._seed, endpoint=ENDPOINTS[fleet], label=label)
            asked += ((fleet, url, one) for url, one in zip(self._urls[fleet], each, strict=True))
        stalls = MachineStalls(self._scenario.length_s + _START_S)
        start_at, before = time.time() + _START_S, self._processor_s()
        with OthersLoad() as others, ThreadPoolExecutor(len(asked)) as pool:
            answers = list(
                pool.map(
                    lambda each: streamed(
                        each[1], each[2].bodies, each[2].due,
                        patience_s=PATIENCE_S, start_at=start_at,
                    ),
                    asked,
                )
            )  # fmt: skip
        took_s = time.time() - start_at + _START_S
        spent_s = {kind: s - before[kind] for kind, s in self._processor_s().items()}
        longest_s = max((end - start for start, end in stalls.intervals()), default=0.0)
        by_fleet: dict[str, list[list[Answer]]] = {fleet: [] for fleet in levels}
        for (fleet, _, _), one in zip(asked, answers, strict=True):
            by_fleet[fleet].append(one)
        found = summed(levels, by_fleet)
        found.stall_s, found.others_cores = round(longest_s, 3), round(others.cores, 2)
        found.cores = {kind: round(s / took_s, 3) for kind, s in spent_s.items()}
        found.processor_ms = per_request_ms(spent_s, found.requests)
        return found

    def _processor_s(self) -> dict[str, float]:
        return {
            kind: sum(processor_s(each.pid) for each in processes)
            for kind, processes in self._processes.items()
        }


def summed(levels: Mapping[str, int], by_fleet: Mapping[str, list[list[Answer]]]) -> Round:
    """What users saw: of each fleet the answers, by the region of the user."""
    every = [one for regions in by_fleet.values() for one in chain(*regions)]
    late_s = sorted(one.sent - one.due for one in every)
    firsts = {fleet: first_tokens_s(chain(*each)) for fleet, each in by_fleet.items()}
    return Round(
        levels=dict(levels),
        p99_s={fleet: percentile(each, 0.99) for fleet, each in firsts.items()},
        p50_s={fleet: percentile(each, 0.5) for fleet, each in firsts.items()},
        by_region_p99_s={
            fleet: [percentile(first_tokens_s(one), 0.99) for one in each]
            for fleet, each in by_fleet.items()
        },
        requests={fleet: len(each) for fleet, each in firsts.items()},
        tokens=sum(one.tokens for one in every),
        failed={
            fleet: sum(bool(one.error) for one in chain(*each)) for fleet, each in by_fleet.items()
        },
        errors=sorted({one.error[:200] for one in every} - {""})[:3],
        late_p99_s=percentile(late_s, 0.99),
        late_max_s=late_s[-1] if late_s else 0.0,
        stall_s=0.0,
        others_cores=0.0,
        cores={},
    )


def first_tokens_s(answers: Any) -> list[float]:
    """Ascending. What is refused or broken off has no first token: its time is infinite."""
    return sorted(math.inf if one.error else one.first_token_s for one in answers)


def per_request_ms(spent_s: Mapping[str, float], requests: Mapping[str, int]) -> dict[str, float]:
    """Processor time of each kind of process over the requests that passed it."""
    every, robin = sum(requests.values()), requests.get(ROBIN, 0)
    passed = {"orchestrator": every - robin, "haproxy": robin}
    return {
        kind: round(1e3 * s / count, 2)
        for kind, s in spent_s.items()
        if (count := passed.get(kind, every))
    }
