"""What users of three regions ask for, and the ways of sending it: for live servers and the twin.

Both get the same requests at the same moments. A day is compressed to a minute and a half, and an
engine's table is slower than that of `regions_twin`, with answers shorter by as much: prompts and
waits are as they were, and a token, which is what streaming costs the processor for, is rarer.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from bench.generation_load import completion
from bench.regions_ways import SCENARIO
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    ROUND_ROBIN,
)
from penstock.core.traffic.push_room import CopyRoom, slots_of
from penstock.sim.regions.regions_scenario import (
    Demand,
    InTurn,
    Policy,
    Pushing,
    RegionScenario,
    RegionsScenario,
)
from penstock.sim.workload import Arrival

BYTES_PER_TOKEN = 4  #: of prompts, to a paced engine
SLOWER = 4  #: a step, and an answer has so many tokens fewer
COPIES = 2  #: of each region, for each way of sending
#: 4 % apart; the same for every way, so that two can be compared at one.
RATES_RPS = [round(4.0 * 1.04**level, 3) for level in range(48)]
QUEUE_S = 60.0  #: how long a balancer or an orchestrator keeps what finds no room

PUSHING, LOCAL, ROBIN = "pushing", "region_local", "round_robin"
OTHERS = (LOCAL, ROBIN)
WAYS = (PUSHING, *OTHERS)


def scenario_of(length_s: float) -> RegionsScenario:
    """A day of `length_s`; arrivals stop at its end."""
    base = SCENARIO
    engine = base.generation
    regions = tuple(
        RegionScenario(name=one.name, copies=COPIES, share=1 / 3, peak=one.peak)
        for one in base.regions
    )
    return dataclasses.replace(
        base,
        regions=regions,
        generation=dataclasses.replace(
            engine, step_s=engine.step_s * SLOWER, sequence_s=engine.sequence_s * SLOWER
        ),
        answer_tokens=tuple((tokens // SLOWER, weight) for tokens, weight in base.answer_tokens),
        length_s=length_s,
        day_s=length_s,
    )


# ways of sending


def settings_of(scenario: RegionsScenario) -> dict[str, list[Policy]]:
    """Of each way those that can be had live; the twin says which is its best."""
    sequences = scenario.generation.sequences_max
    # As a region tells it (core/traffic/push_room.py), and by its news alone: the end of a streamed
    # answer tells nothing of the room.
    pushing = Pushing(
        slots=slots_of(CopyRoom(0, 1_000_000, sequences, 0.0, generates=True)),
        room_on_answers=False,
        hold_s_max=QUEUE_S,
    )
    thresholds = (sequences, sequences + 1)
    return {
        PUSHING: [dataclasses.replace(pushing, threshold=each) for each in thresholds],
        LOCAL: [dataclasses.replace(pushing, threshold=each, local=True) for each in thresholds],
        ROBIN: [
            InTurn(strategy=ROUND_ROBIN, in_region_max=COPIES * each)
            for each in (4, 5, 3, sequences, 0)
        ],
    }


def within_of(sequences: int) -> list[Policy]:
    """Regions in turn as before, but each of them chooses its copies by more than their turn."""
    return [
        InTurn(strategy=strategy, in_region_max=COPIES * bound)
        for strategy in (PREFIX_AWARE, LEAST_OUTSTANDING_REQUESTS)
        for bound in (4, 5, sequences)
    ]


# requests


class Asked(NamedTuple):
    """What the users of one region ask for."""

    due: list[float]  #: ascending, s
    bodies: list[str]


def asked_by_region(
    scenario: RegionsScenario, seed: int, *, endpoint: str, label: str
) -> list[Asked]:
    """The twin's requests with this seed. `label` leads every prompt: what caches have of another
    label is of no use."""
    demand = Demand(scenario, seed)
    found = [Asked([], []) for _ in scenario.regions]
    for number, (at, region) in enumerate(demand.arrivals(), start=1):
        arrival = demand.sample(region)
        prompt = text_of(demand.prompt(number, arrival), arrival, label)
        found[region].due.append(at)
        found[region].bodies.append(completion(prompt, arrival.answer_tokens, endpoint))
    return found


def text_of(prompt: bytes, arrival: Arrival, label: str) -> str:
    """As long as the tokens that the twin's engine reads of it."""
    shared = BYTES_PER_TOKEN * arrival.prefix_tokens
    own = BYTES_PER_TOKEN * arrival.length
    begin = f"{label} ".encode() + prompt[:shared]
    return (begin[:shared] + prompt[shared:][:own].ljust(own, b".")).decode()


def prefix_length_of(scenario: RegionsScenario, endpoint: str) -> int:
    """Of a body, in bytes: to the end of the prefix that prompts share."""
    opened = '"prompt": "'
    before = completion("", 1, endpoint).index(opened) + len(opened)
    return before + BYTES_PER_TOKEN * scenario.prefix_tokens
