"""The twin of regions: the way counts, nothing is lost, and each policy keeps to its regions."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from penstock.core.batching.generation_steps import GenerationSpec
from penstock.core.deployment.deployment import (
    LEAST_OUTSTANDING_REQUESTS,
    PREFIX_AWARE,
    ROUND_ROBIN,
)
from penstock.core.traffic import MANUAL
from penstock.sim.outcome import RegionsOutcome
from penstock.sim.regions.regions import RegionsTwin
from penstock.sim.regions.regions_scenario import (
    CUT,
    REGION_LOST,
    Balanced,
    Demand,
    InTurn,
    Policy,
    Pushing,
    RegionFault,
    RegionScenario,
    RegionsScenario,
    with_copies,
    with_rate,
)

#: Steps of 0.1 s whatever they hold, prompts cost nothing, answers have 4 tokens.
ENGINE = GenerationSpec(sequences_max=2, step_s=0.1, sequence_s=0.0, prefill_token_s=0.0)
SMALL = RegionsScenario(
    regions=(
        RegionScenario(name="a", copies=2, share=0.5),
        RegionScenario(name="b", copies=2, share=0.3, peak=1 / 3),
        RegionScenario(name="c", copies=2, share=0.2, peak=2 / 3),
    ),
    delay_s=((0.005, 0.04, 0.08), (0.04, 0.005, 0.04), (0.08, 0.04, 0.005)),
    generation=ENGINE,
    rate_rps=15.0,
    length_s=20.0,
    day_s=20.0,
    length=((0, 1.0),),
    answer_tokens=((4, 1.0),),
    prefix_tokens=64,
)
LOCAL = Balanced(strategy=LEAST_OUTSTANDING_REQUESTS, everywhere=False)


def run(scenario: RegionsScenario, policy: Policy, seed: int = 1) -> RegionsOutcome:
    return RegionsTwin(scenario, policy, seed=seed).run()


def ways(outcome: RegionsOutcome) -> Counter[str]:
    """Requests by where they went."""
    found: Counter[str] = Counter()
    for told, count in outcome.sent.items():
        found[told.partition(":")[0]] += count
    return found


def answered(outcome: RegionsOutcome) -> int:
    return sum(len(one) for one in outcome.first_token_s)


POLICIES = [
    Pushing(),
    Pushing(room_on_answers=False),
    Pushing(home_first=False),
    LOCAL,
    Balanced(strategy=ROUND_ROBIN, everywhere=True),
    Balanced(strategy=PREFIX_AWARE, everywhere=True, outstanding_max=2, threshold=1),
    Balanced(
        strategy=LEAST_OUTSTANDING_REQUESTS, everywhere=True, outstanding_max=2, together=True
    ),
    InTurn(strategy=ROUND_ROBIN),
    InTurn(strategy=PREFIX_AWARE, in_region_max=2),
]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_is_answered_once_and_one_seed_gives_one_run(
    policy: Policy,
) -> None:
    first, second = run(SMALL, policy), run(SMALL, policy)
    assert first.requests == answered(first) > 200
    assert first.tokens == 4 * first.requests
    assert (first.broken, first.lost, first.rerouted) == (0, 0, 0)
    assert first.report() == second.report()
    assert first.first_token_s == second.first_token_s


def test_the_way_there_and_back_counts() -> None:
    """A lone request of a's users: to b and back 2 * 0.04 s, at home 2 * 0.005 s, a step 0.1 s."""
    quiet = dataclasses.replace(with_rate(SMALL, 0.5), length_s=8.0)
    elsewhere = Pushing(mode=MANUAL, ratios=(0.0, 1.0, 0.0))
    told = run(quiet, elsewhere)
    assert set(ways(told)) <= {"a > b", "b > b", "c > b"}
    assert min(told.first_token_s[0]) == pytest.approx(0.18)
    assert min(run(quiet, Pushing()).first_token_s[0]) == pytest.approx(0.11)
    assert min(run(quiet, LOCAL).first_token_s[0]) == pytest.approx(0.11)


def test_what_a_region_has_no_room_for_goes_to_the_others_by_pushing_alone() -> None:
    """All users live in a, twice as many as it can serve."""
    crowded = dataclasses.replace(
        with_rate(SMALL, 20.0),
        regions=tuple(
            dataclasses.replace(one, share=share)
            for one, share in zip(SMALL.regions, (1.0, 0.0, 0.0), strict=True)
        ),
    )
    pushed, local = run(crowded, Pushing()), run(crowded, LOCAL)
    assert ways(pushed)["a > b"] > 20
    assert pushed.p99_s() < 0.6
    assert local.p99_s() > 5.0


def test_balancers_that_are_one_know_of_every_request_on_a_copy() -> None:
    """Places for all: no engine's queue is used, which each for itself can't know."""
    asked = Balanced(strategy=LEAST_OUTSTANDING_REQUESTS, everywhere=True, outstanding_max=2)
    together = RegionsTwin(SMALL, dataclasses.replace(asked, together=True), seed=1)
    alone = RegionsTwin(SMALL, asked, seed=1)
    deepest = []
    for twin in (together, alone):
        most = 0
        send = twin.send

        def sent(request, region, copy, now, twin=twin, send=send):  # type: ignore[no-untyped-def]
            nonlocal most
            send(request, region, copy, now)
            on_copies = Counter(one.copy.copy for one in twin.requests.values() if one.copy)
            most = max(most, *on_copies.values())

        twin.send = sent  # type: ignore[method-assign]
        twin.run()
        deepest.append(most)
    assert deepest[0] == 2 < deepest[1]


def test_prompts_that_find_their_prefix_are_counted() -> None:
    """Two prefixes, of which a copy keeps one or both. One region, one copy."""
    alone = dataclasses.replace(
        with_rate(SMALL, 4.0),
        regions=(RegionScenario(name="a", copies=1, share=1.0),),
        delay_s=((0.005,),),
        prefixes=2,
        prefixes_shared=0,
    )
    both = dataclasses.replace(ENGINE, prefixes_cached_max=2)
    told = run(dataclasses.replace(alone, generation=both), LOCAL)
    assert told.joined == told.requests
    assert 2 <= told.joined - told.found <= 4, "each once, or twice if two came before its end"
    less = dataclasses.replace(ENGINE, prefixes_cached_max=1)
    one = run(dataclasses.replace(alone, generation=less), LOCAL)
    assert 0.3 < one.found_share() < 0.7
    assert run(alone, LOCAL).found == 0


def test_a_balancer_of_one_region_never_leaves_it() -> None:
    twin = RegionsTwin(with_copies(SMALL, (4, 1, 1)), LOCAL, seed=1)
    sent: set[tuple[int, int]] = set()
    send = twin.send
    twin.send = lambda request, region, copy, now: (  # type: ignore[method-assign]
        sent.add((request.front, region)),
        send(request, region, copy, now),
    )[1]
    twin.run()
    assert sent == {(0, 0), (1, 1), (2, 2)}


def test_regions_in_turn_get_as_much_each_from_every_balancer() -> None:
    found = ways(run(with_rate(SMALL, 6.0), InTurn(strategy=ROUND_ROBIN)))
    for front in "abc":
        counts = [found[f"{front} > {region}"] for region in "abc"]
        assert min(counts) > 0
        assert max(counts) - min(counts) <= 1


def test_what_exceeds_the_bound_of_a_region_waits_at_the_balancer_in_order() -> None:
    """Each balancer may have one request in each region: four tokens of 0.1 s, then the next."""
    crowded = with_rate(SMALL, 30.0)
    policy = InTurn(strategy=LEAST_OUTSTANDING_REQUESTS, in_region_max=1)
    twin = RegionsTwin(crowded, policy, seed=1)
    there: Counter[tuple[int, int]] = Counter()
    asked: dict[int, list[float]] = {0: [], 1: [], 2: []}
    send, on_answered = twin.send, twin._on_answered

    def sent(request, region, copy, now):  # type: ignore[no-untyped-def]
        there[request.front, region] += 1
        assert there[request.front, region] == 1
        asked[request.front].append(request.at)
        send(request, region, copy, now)

    def answered_(now, attempt, epoch):  # type: ignore[no-untyped-def]
        request = twin.requests[attempt]
        there[request.front, request.region] -= 1
        on_answered(now, attempt, epoch)

    twin.send, twin._on_answered = sent, answered_  # type: ignore[method-assign]
    told = twin.run()
    assert told.requests == answered(told) == sum(map(len, asked.values())) > 400
    assert all(moments == sorted(moments) for moments in asked.values())
    assert told.queued == 0, "three balancers have no more than three in a region of four places"


def test_a_balancer_asks_another_region_once_one_has_failed() -> None:
    faults = (RegionFault(at_s=6.0, region=0, kind=REGION_LOST, back_after_s=6.0),)
    quiet = dataclasses.replace(with_rate(SMALL, 6.0), faults=faults)
    told = run(quiet, InTurn(strategy=ROUND_ROBIN))
    assert told.lost == 0
    assert told.requests == answered(told)
    assert told.rerouted > 0


def test_shares_by_hand_are_kept() -> None:
    told = run(with_rate(SMALL, 6.0), Pushing(mode=MANUAL, ratios=(0.5, 0.5, 0.0)))
    found = ways(told)
    assert not any(way.endswith("> c") for way in found)
    to_a = sum(count for way, count in found.items() if way.endswith("> a"))
    assert to_a / told.requests == pytest.approx(0.5, abs=0.08)


def test_a_region_that_is_lost_costs_only_answers_that_had_begun() -> None:
    faults = (RegionFault(at_s=6.0, region=0, kind=REGION_LOST, back_after_s=6.0),)
    told = run(dataclasses.replace(with_rate(SMALL, 10.0), faults=faults), Pushing())
    assert told.lost == 0
    assert told.requests == answered(told), "each has a first token, of one region or another"
    assert 0 < told.broken <= 4, "what two copies of two sequences were writing"
    assert told.rerouted > 0
    assert told.rerouted_s_max < 2.0
    assert ways(told)["a > b"] > 0


def test_a_region_that_is_cut_off_serves_its_own_and_the_others_go_elsewhere() -> None:
    """b's users are sent to a by hand, until it says nothing more."""
    faults = (RegionFault(at_s=6.0, region=0, kind=CUT, back_after_s=30.0),)
    cut = dataclasses.replace(with_rate(SMALL, 10.0), faults=faults)
    told = run(cut, Pushing(mode=MANUAL, ratios=(0.9, 0.1, 0.0)))
    assert told.lost == 0
    assert told.rerouted > 0
    assert told.rerouted_s_max < 2.0
    found = ways(told)
    assert found["a > a"] > 70, "its own users reach it"
    assert found["b > b"] + found["c > b"] > 40


def test_a_region_that_came_back_is_used_again() -> None:
    faults = (RegionFault(at_s=2.0, region=0, back_after_s=3.0),)
    lost = dataclasses.replace(with_rate(SMALL, 10.0), faults=faults, length_s=30.0)
    never = dataclasses.replace(faults[0], back_after_s=1000.0)
    back = ways(run(lost, Pushing()))
    gone = ways(run(dataclasses.replace(lost, faults=(never,)), Pushing()))
    assert back["a > a"] > gone["a > a"] + 50


def test_a_run_ends_as_soon_as_the_promise_is_broken() -> None:
    crowded = with_rate(SMALL, 100.0)
    told = RegionsTwin(crowded, LOCAL, seed=1, promise_s=0.5).run()
    assert told.stopped
    assert told.p99_s() == told.region_p99_s(0) == float("inf")
    assert told.requests < 1000


def test_demand_follows_the_day_of_each_region_and_its_share() -> None:
    day = dataclasses.replace(with_rate(SMALL, 100.0), swing=0.9, length_s=200.0, day_s=200.0)
    arrivals = list(Demand(day, 1).arrivals())
    assert arrivals == sorted(arrivals)
    counts = Counter(region for _, region in arrivals)
    assert len(arrivals) == pytest.approx(20_000, rel=0.03)
    assert counts[0] / len(arrivals) == pytest.approx(0.5, abs=0.02)
    halves = Counter(region for at, region in arrivals if at < 50.0 or at >= 150.0)
    assert halves[0] / counts[0] == pytest.approx(0.5 + 0.9 / 3.1416, abs=0.02)
    assert day.rate_at(1, 200.0 / 3) == pytest.approx(100.0 * 0.3 * 1.9)


def test_prompts_of_a_region_begin_alike_and_some_with_what_all_share() -> None:
    demand = Demand(SMALL, 1)
    drawn = [[demand.sample(region).prefix for _ in range(2000)] for region in range(3)]
    shared = set(range(SMALL.prefixes_shared))
    for mine in drawn:
        assert sum(one in shared for one in mine) / 2000 == pytest.approx(0.2, abs=0.04)
    own = [set(mine) - shared for mine in drawn]
    assert all(len(one) == SMALL.prefixes for one in own)
    assert not own[0] & own[1] | own[1] & own[2] | own[0] & own[2]
    arrival = demand.sample(0)
    first, second = demand.prompt(1, arrival), demand.prompt(2, arrival)
    assert first[: 4 * 64] == second[: 4 * 64]
    assert first != second
