"""The search for a rate, and that live copies get what the twin gets."""

from __future__ import annotations

import dataclasses
import json

import pytest
from bench.generation_routing import requests_of, routing_of
from bench.lor import BYTES_PER_TOKEN, RATES_RPS, STRATEGIES, search, variation
from bench.report import ROOT

from penstock.core.deployment.deployment import PREFIX_AWARE, ROUND_ROBIN
from penstock.sim.gateway import TwinGateway
from penstock.sim.outcome import RunOutcome
from penstock.sim.record import DecisionRecorder
from penstock.sim.scenario import Scenario, load_scenario


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    base = load_scenario(ROOT / "scenarios" / "assistant_lor.toml")
    return dataclasses.replace(base, length_s=20.0)


@pytest.mark.parametrize("level", [-1, 0, 14, 15, 29, 30])
def test_the_highest_rate_that_keeps_the_promise_is_found(level: int) -> None:
    """Each strategy keeps it up to a level of its own; -1: none keeps it."""
    kept = {name: max(-1, level - at) for at, name in enumerate(STRATEGIES)}

    def probe(rates: dict[str, float]) -> dict[str, float]:
        return {
            name: 0.9 if RATES_RPS.index(rate) <= kept[name] else 1.0
            for name, rate in rates.items()
        }

    lowest = RATES_RPS[0]
    assert search(probe) == {
        name: RATES_RPS[at] if at >= 0 else lowest / 2 for name, at in kept.items()
    }


def test_live_copies_get_the_twins_requests_at_the_twins_times(scenario: Scenario) -> None:
    due, bodies = requests_of(scenario, 7, faster=2.0)
    gateway = TwinGateway(scenario, 7, [], DecisionRecorder(), RunOutcome(1))
    times = list(gateway.workload.open())
    assert due == [at / 2.0 for at in times]
    assert len(bodies) == len(times) > 100
    for number, body in enumerate(bodies, start=1):
        arrival = gateway.workload.sample()
        asked = json.loads(body)
        assert asked["prompt"].encode() == gateway.workload.prompt(number, arrival)
        assert asked["max_tokens"] == arrival.answer_tokens
        tokens = arrival.prefix_tokens + arrival.length
        assert len(asked["prompt"]) == BYTES_PER_TOKEN * tokens


def test_a_prefix_is_told_by_the_bytes_that_bodies_share(scenario: Scenario) -> None:
    changed = variation(scenario, PREFIX_AWARE, 8, 20.0)
    length = routing_of(changed)["PrefixAwareRoutingConfig"]["PrefixLength"]
    _, bodies = requests_of(changed, 7, 1.0)
    shared = scenario.workload.prefix_tokens * BYTES_PER_TOKEN
    assert bodies[0][:length].endswith(json.loads(bodies[0])["prompt"][:shared])
    assert routing_of(variation(scenario, ROUND_ROBIN, 8, 20.0)) == {}
