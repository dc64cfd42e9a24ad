"""One strategy live, on the requests of a twin's run: a server of its own, copies that are paced.

Everything that the twin has in its hands is the same here: requests and their times, times of the
engines' steps, lots that are drawn, empty caches at the beginning. Nothing of one run is there in
the next. `faster` divides all times, so that more requests fit into a minute; figures are told in
the scenario's time.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench.deployment import deploy
from bench.generation_load import completion, streamed
from bench.paced import paced_artifact
from bench.processes import penstock_up
from penstock.core.deployment.deployment import PREFIX_AWARE, ROUND_ROBIN
from penstock.sim.outcome import percentile
from penstock.sim.scenario import Scenario
from penstock.sim.workload import Workload

NAME = "chat"
_PATIENCE_S = 60.0  #: after the last arrival; whoever is not answered then has no first token


def first_tokens_s(scenarios: list[Scenario], seed: int, faster: float) -> list[list[float]]:
    """Of each scenario all first tokens, in the order of arrivals; they run at the same time.

    What is refused or broken off has no first token: its time is infinite.
    """
    spec = scenarios[0].generation
    assert spec is not None
    prefix_tokens = scenarios[0].workload.prefix_tokens
    with (
        paced_artifact(spec, prefix_tokens=prefix_tokens, faster=faster) as folder,
        ThreadPoolExecutor(len(scenarios)) as pool,
    ):
        return list(pool.map(lambda each: _one(each, folder, seed, faster), scenarios))


def p99_s(first_s: list[float]) -> float:
    return percentile(sorted(first_s), 0.99)


def _one(scenario: Scenario, folder: Path, seed: int, faster: float) -> list[float]:
    (variant,) = scenario.variants
    due, bodies = requests_of(scenario, seed, faster)
    environment = {}
    if variant.strategy == ROUND_ROBIN:  # AWS has no name for it in a RoutingConfig
        environment = {"PENSTOCK_ROUTING": ROUND_ROBIN}
    program = ("bench.seeded_server", f"{seed}/routing")
    with penstock_up(program=program) as base_url:
        deploy(
            base_url, NAME, folder, copies=variant.copies, routing=routing_of(scenario),
            environment=environment,
        )  # fmt: skip
        answers = streamed(base_url, bodies, due, patience_s=_PATIENCE_S)
    return [math.inf if each.error else each.first_token_s * faster for each in answers]


def requests_of(scenario: Scenario, seed: int, faster: float) -> tuple[list[float], list[str]]:
    """The twin's: the same arrivals, the same prompts to the byte."""
    workload = Workload(scenario.workload, seed, scenario.length_s)
    due, bodies = [], []
    for number, at in enumerate(workload.open(), start=1):
        arrival = workload.sample()
        prompt = workload.prompt(number, arrival).decode()
        due.append(at / faster)
        bodies.append(completion(prompt, arrival.answer_tokens, NAME))
    return due, bodies


def routing_of(scenario: Scenario) -> dict[str, Any]:
    (variant,) = scenario.variants
    if variant.strategy == ROUND_ROBIN:
        return {}
    routing: dict[str, Any] = {"RoutingStrategy": variant.strategy}
    if variant.strategy == PREFIX_AWARE:
        before = completion("", 1, NAME).index('"prompt": "') + len('"prompt": "')
        routing["PrefixAwareRoutingConfig"] = {
            "PrefixLength": before + variant.prefix_length_max,
            "ConcurrencyThreshold": variant.concurrency_threshold,
        }
    return routing
