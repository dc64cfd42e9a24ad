"""Live regions against the twin: the same requests, the search for rates, what is claimed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import pytest
from bench.generation_load import Answer
from bench.regions_live_search import Found, Walk, agreement, claimed, compared, plan
from bench.regions_live_site import BESIDE, per_request_ms, summed
from bench.regions_live_trace import (
    BYTES_PER_TOKEN,
    LOCAL,
    PUSHING,
    RATES_RPS,
    ROBIN,
    SLOWER,
    asked_by_region,
    prefix_length_of,
    scenario_of,
    settings_of,
)
from bench.regions_ways import SCENARIO

from penstock.runtimes.paced.engine import PacedTokenizer
from penstock.sim.regions.regions import RegionsTwin
from penstock.sim.regions.regions_scenario import Pushing, RegionsScenario, with_rate
from penstock.sim.workload import Arrival

SHORT = with_rate(scenario_of(20.0), 10.0)
OTHERS = (LOCAL, ROBIN)


# requests


def twins_requests(scenario: RegionsScenario, seed: int) -> list[tuple[float, int, Arrival]]:
    """(moment, region of the user, what it is like), as a run of the twin sends them."""
    twin = RegionsTwin(scenario, settings_of(scenario)[PUSHING][0], seed=seed)
    found: list[tuple[float, int, Arrival]] = []
    ask = twin._senders.ask

    def asked(request, now):  # type: ignore[no-untyped-def]
        found.append((request.at, request.front, request.arrival))
        ask(request, now)

    twin._senders.ask = asked  # type: ignore[method-assign]
    twin.run()
    return found


def test_live_regions_get_the_twins_requests_at_the_twins_moments() -> None:
    told = twins_requests(SHORT, 3)
    live = asked_by_region(SHORT, 3, endpoint="chat", label="probe 1")
    assert len(told) == sum(len(one.due) for one in live) > 100
    for region, one in enumerate(live):
        mine = [(at, arrival) for at, front, arrival in told if front == region]
        assert one.due == [at for at, _ in mine]
        for body, (_, arrival) in zip(one.bodies, mine, strict=True):
            asked = json.loads(body)
            assert asked["max_tokens"] == arrival.answer_tokens
            tokens = PacedTokenizer().encode(asked["prompt"]).ids
            assert len(tokens) == arrival.prefix_tokens + arrival.length


def test_prompts_share_a_prefix_where_the_twins_do_and_with_no_other_probe() -> None:
    """An engine knows a prefix by its tokens: as many differ as the twin's prefixes do."""
    told = twins_requests(SHORT, 3)
    shared = BYTES_PER_TOKEN * SHORT.prefix_tokens
    first, second = (
        {
            json.loads(body)["prompt"][:shared]
            for one in asked_by_region(SHORT, 3, endpoint="chat", label=label)
            for body in one.bodies
        }
        for label in ("probe 1", "probe 2")
    )
    assert len(first) == len({arrival.prefix for _, _, arrival in told}) > 20
    assert not first & second


def test_no_two_prompts_of_a_probe_are_equal() -> None:
    bodies = [
        json.loads(body)["prompt"]
        for one in asked_by_region(SHORT, 3, endpoint="chat", label="probe 1")
        for body in one.bodies
    ]
    assert len(set(bodies)) == len(bodies)


def test_a_regions_router_looks_at_the_whole_prefix_and_no_further() -> None:
    (one, *_) = asked_by_region(SHORT, 3, endpoint="chat", label="probe 1")
    length = prefix_length_of(SHORT, "chat")
    prompt = json.loads(one.bodies[0])["prompt"]
    assert one.bodies[0][:length].endswith(prompt[: BYTES_PER_TOKEN * SHORT.prefix_tokens])


def test_the_table_is_slower_and_answers_are_shorter_so_a_full_copy_answers_as_many() -> None:
    fast, slow = SCENARIO.generation, SHORT.generation
    full = fast.sequences_max
    assert slow.sequences_max == full
    assert slow.step_s + full * slow.sequence_s == pytest.approx(
        SLOWER * (fast.step_s + full * fast.sequence_s)
    )
    assert slow.prefill_token_s == fast.prefill_token_s
    for (mine, share), (theirs, weight) in zip(
        SHORT.answer_tokens, SCENARIO.answer_tokens, strict=True
    ):
        assert (SLOWER * mine, share) == (theirs, weight)


def test_the_twin_is_told_of_as_much_room_as_live_regions_tell() -> None:
    """Their feed alone tells it: a streamed answer has no head left at its end."""
    for name in (PUSHING, LOCAL):
        for policy in settings_of(SHORT)[name]:
            assert isinstance(policy, Pushing)
            assert not policy.room_on_answers
            assert policy.local == (name == LOCAL)
            assert policy.slots == 8


# the search


@pytest.mark.parametrize("guess", [0, 5, 9])
@pytest.mark.parametrize("highest", [-1, 0, 4, 5, 6, 9])
def test_a_walk_finds_the_highest_level_that_keeps_the_promise(guess: int, highest: int) -> None:
    """-1: not even the lowest keeps it."""
    walk = Walk(guess, 10)
    probes = []
    while (level := walk.next()) is not None:
        assert level not in probes
        probes.append(level)
        walk.tell(level, kept=level <= highest)
    assert walk.found == (highest if highest >= 0 else None)
    assert len(probes) <= 7


def test_a_guess_that_is_right_takes_two_probes_and_one_that_is_next_to_it_two_or_three() -> None:
    taken = {}
    for highest in (49, 50, 51):
        walk, probes = Walk(50, 100), []
        while (level := walk.next()) is not None:
            probes.append(level)
            walk.tell(level, kept=level <= highest)
        taken[highest] = probes
    assert taken == {49: [50, 49], 50: [50, 51], 51: [50, 51, 53, 52]}


def search(highest: dict[str, int], guess: dict[str, int]) -> list[dict[str, int]]:
    """The rounds, as they are planned one after the other."""
    walks = {name: Walk(level, 60) for name, level in guess.items()}
    rounds: list[dict[str, int]] = []
    measured: list[int] = []
    while levels := plan(walks, PUSHING, "beside", measured):
        rounds.append(levels)
        for name, level in levels.items():
            if name in (PUSHING, "beside"):
                measured.append(level)
            if name in walks and walks[name].next() == level:
                walks[name].tell(level, kept=level <= highest[name])
    assert {name: walk.found for name, walk in walks.items()} == highest
    assert highest[LOCAL] in measured
    assert highest[ROBIN] in measured
    return rounds


def test_two_rounds_tell_all_where_the_twin_was_right() -> None:
    """Beside pushing's own search its second fleet runs at the rate of one of the others."""
    right = {PUSHING: 40, LOCAL: 20, ROBIN: 30}
    assert search(right, right) == [
        {PUSHING: 40, LOCAL: 20, ROBIN: 30, "beside": 20},
        {PUSHING: 41, LOCAL: 21, ROBIN: 31, "beside": 30},
    ]


def test_what_was_not_measured_beside_is_caught_up_on_by_both_fleets() -> None:
    """Live both others keep the promise one level lower than the twin says."""
    assert search({PUSHING: 40, LOCAL: 19, ROBIN: 29}, {PUSHING: 40, LOCAL: 20, ROBIN: 30}) == [
        {PUSHING: 40, LOCAL: 20, ROBIN: 30, "beside": 20},
        {PUSHING: 41, LOCAL: 19, ROBIN: 29, "beside": 19},
        {"beside": 29},
    ]


# a round


def answer(due: float, *, sent: float, first: float, error: str = "") -> Answer:
    return Answer(due, sent, first, first + 1.0, 8, 0.1, "the answer", error)


def test_a_round_tells_of_all_users_and_of_those_of_each_region() -> None:
    """What failed has no first token, however early it failed."""
    told = summed(
        {PUSHING: 3, ROBIN: 2},
        {
            PUSHING: [
                [answer(1.0, sent=1.0, first=1.25), answer(2.0, sent=2.001, first=2.5)],
                [answer(0.0, sent=0.0, first=0.125)],
                [],
            ],
            ROBIN: [[answer(0.0, sent=0.004, first=0.1, error="503")], [], []],
        },
    )
    assert told.levels == {PUSHING: 3, ROBIN: 2}
    assert told.p99_s == {PUSHING: 0.5, ROBIN: math.inf}
    assert told.p50_s == {PUSHING: 0.25, ROBIN: math.inf}
    assert told.by_region_p99_s[PUSHING] == [0.5, 0.125, 0.0]
    assert (told.requests, told.failed) == ({PUSHING: 3, ROBIN: 1}, {PUSHING: 0, ROBIN: 1})
    assert (told.tokens, told.errors) == (32, ["503"])
    assert told.late_max_s == told.late_p99_s == pytest.approx(0.004)


def test_processor_time_is_shared_among_the_requests_that_passed_each_kind_of_process() -> None:
    spent_s = {"region": 8.0, "relay": 4.0, "orchestrator": 3.0, "haproxy": 0.1}
    assert per_request_ms(spent_s, {PUSHING: 500, BESIDE: 0, LOCAL: 250, ROBIN: 250}) == {
        "region": 8.0,
        "relay": 4.0,
        "orchestrator": 4.0,
        "haproxy": 0.4,
    }
    assert "haproxy" not in per_request_ms(spent_s, {PUSHING: 500})


# what is claimed


def test_a_way_is_compared_by_rates_and_by_p99_at_its_own_highest_rate() -> None:
    rates = [10.0, 11.0, 12.0, 15.0]
    found = Found(
        {PUSHING: 3, LOCAL: 0, ROBIN: 2},
        {
            PUSHING: {3: 0.9, 2: 0.5, 0: 0.25},
            LOCAL: {0: 0.75, 1: 2.0},
            ROBIN: {2: 0.8, 3: 1.4},
        },
    )
    assert compared(found, rates, PUSHING, OTHERS) == {
        "vs_region_local": 1.5,
        "vs_region_local_p99": 3.0,
        "vs_round_robin": 1.25,
        "vs_round_robin_p99": 1.6,
    }


def test_what_was_not_found_is_not_compared() -> None:
    found = Found({PUSHING: 1, LOCAL: None, ROBIN: 0}, {PUSHING: {1: 0.9}, ROBIN: {0: 0.5}})
    assert compared(found, [10.0, 11.0], PUSHING, OTHERS) == {
        "vs_region_local": None,
        "vs_region_local_p99": None,
        "vs_round_robin": 1.1,
        "vs_round_robin_p99": None,
    }


def test_agreement_is_live_over_the_twin_where_both_are_known() -> None:
    live = {"a": 1.5, "b": None, "c": 2.0, "d": 1.0}
    assert agreement(live, {"a": 1.2, "b": 1.0, "c": None}) == {
        "a": 1.25,
        "b": None,
        "c": None,
        "d": None,
    }


def test_figures_are_not_claimed_when_the_load_itself_was_late() -> None:
    figures = {"vs_region_local": 1.5}
    assert claimed(figures, [0.001, 0.02], 0.02) == (figures, "")
    told, why = claimed(figures, [0.001, 0.0301], 0.02)
    assert told == {"vs_region_local": None}
    assert "30 ms late" in why


def test_rates_are_four_per_cent_apart_and_reach_both_ends() -> None:
    assert all(
        high / low == pytest.approx(1.04, abs=0.001) for low, high in itertools.pairwise(RATES_RPS)
    )
    assert RATES_RPS[0] == 4.0
    assert RATES_RPS[-1] > 25.0


def test_a_day_is_as_long_as_its_arrivals() -> None:
    scenario = scenario_of(75.0)
    assert (scenario.length_s, scenario.day_s) == (75.0, 75.0)
    assert dataclasses.replace(scenario, rate_rps=0.0) == scenario
