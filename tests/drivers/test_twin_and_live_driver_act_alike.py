"""Twin and live drivers make the same decisions, at the same moments, in the same order.

Each scenario of `scenarios/` runs twice: in the twin, and through the live dispatcher, copies and
batcher drivers under a fake clock. Whole lists of actions are compared.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from live_run import LiveRun

from penstock.sim.record import DecisionRecorder, Row
from penstock.sim.scenario import Scenario, load_scenario
from penstock.sim.twin import Twin

SCENARIOS = sorted((Path(__file__).parents[2] / "scenarios").glob("*.toml"))
#: Requests beyond this prove nothing new and take long: a live run costs ten times a twin's.
REQUESTS_MAX = 6000


def shortened(scenario: Scenario) -> Scenario:
    """The scenario cut to `REQUESTS_MAX`, its faults moved together into what is left."""
    arrivals = Twin(scenario).run().requests
    share = min(1.0, REQUESTS_MAX / arrivals)
    faults = tuple(
        dataclasses.replace(fault, at_s=fault.at_s * share, back_after_s=fault.back_after_s * share)
        for fault in scenario.faults
    )
    return dataclasses.replace(scenario, length_s=scenario.length_s * share, faults=faults)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_twin_and_live_driver_act_alike(path: Path) -> None:
    scenario = shortened(load_scenario(path))
    print(f"seed {scenario.seed}, {scenario.length_s} s")
    live = LiveRun(scenario)
    live.run()
    simulated = Twin(scenario, recorder=DecisionRecorder(keep=True))
    outcome = simulated.run()

    expected: list[Row] = list(simulated.recorder.rows())
    assert len(expected) > 1000
    for position, (ours, theirs) in enumerate(zip(live.recorder.rows(), expected, strict=False)):
        assert ours == theirs, f"action {position} of {len(expected)} differs"
    assert live.recorder.count == simulated.recorder.count
    assert live.recorder.digest() == simulated.recorder.digest()

    latencies_s = [latency for level in outcome.latencies_s for latency in level]
    assert sorted(live.latencies_s) == sorted(latencies_s)
    assert live.first_token_s == outcome.first_token_s
    assert (live.requests, live.cancelled) == (outcome.requests, outcome.cancelled)


def test_there_are_scenarios() -> None:
    assert {"steady", "burst", "overload", "copy_lost"} <= {path.stem for path in SCENARIOS}
