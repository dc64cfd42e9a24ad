"""Models that come and go under virtual time: held against a textbook LRU cache; nothing lost."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penstock.core.residency import Footprint, ResidencySpec
from penstock.sim.model_cache import (
    MIB,
    ModelCacheSim,
    SimulatedModelSpec,
    Trace,
    alike,
    budget_for,
    compared,
    cyclic_calls,
    day_calls,
    lru_loads,
    mixed,
    scan_calls,
    traces,
    zipf_calls,
)

TRACES = {trace.name: trace for trace in traces(seed=1, number=60, length_s=900.0)}


@pytest.mark.parametrize("name", TRACES)
def test_loads_are_those_of_lru(name: str) -> None:
    """A cache of names evicts models that answer at that moment, and loads others in no time: one
    load in a hundred may differ."""
    outcome = compared(TRACES[name])
    assert outcome["loads"] <= 1.01 * outcome["lru_loads"]
    assert outcome["refused"] == 0


@pytest.mark.parametrize("name", ["mixed-zipf", "mixed-uniform", "mixed-day"])
def test_fewer_loads_where_sizes_differ_because_nobody_goes_in_vain(name: str) -> None:
    outcome = compared(TRACES[name])
    assert outcome["loads"] <= 0.97 * outcome["lru_loads"]


def test_a_textbook_cache_evicts_by_last_use_alone() -> None:
    models = alike(3, mib=1)
    calls = tuple((float(at), f"model-000{name}") for at, name in enumerate("0120212"))
    assert lru_loads(Trace("few", models, calls, Footprint(host_bytes=2 * MIB))) == 5


def test_ten_minutes_with_twice_the_budget_of_models() -> None:
    """No request fails, no model thrashes, memory never exceeds its budget.

    Sizes are estimated two fifths too large. Models are called once in 30 s on average, and half
    of them fit: a model that is loaded five times within a minute would thrash.
    """
    rng = random.Random("ten-minutes")
    models = {
        name: SimulatedModelSpec(
            target.size,
            target.load_s,
            need=Footprint(host_bytes=target.size.host_bytes * 7 // 5),
        )
        for name, target in mixed(60, rng).items()
    }
    budget = budget_for(models, 0.5)
    calls = zipf_calls(list(models), rng, rate=2.0, length_s=600.0, skew=0.8, shift_s=200.0)
    sim = ModelCacheSim(
        Trace("ten-minutes", models, calls, budget),
        ResidencySpec(budget=budget),
        prepare_s=0.05,
        deadline_s=60.0,
    )
    outcome = sim.run()
    assert outcome.calls == len(calls) > 1000
    assert outcome.refused == 0
    assert len(outcome.wait_s) == len(calls), "every call was answered"
    assert outcome.over_budget == 0
    assert 0.9 * budget.host_bytes <= outcome.used_max <= budget.host_bytes
    for times in outcome.loaded_at.values():
        assert max(sum(at <= t < at + 60.0 for t in times) for at in times) <= 4
    assert outcome.reloads > 100, "there was something to decide"


def test_callers_whose_deadline_can_not_be_met_are_refused_and_a_retry_finds_the_model() -> None:
    models = {"a": SimulatedModelSpec(Footprint(host_bytes=10), 4.0)}
    calls = ((0.0, "a"), (1.0, "a"), (1.0, "a"), (5.0, "a"))
    trace = Trace("late", models, calls, Footprint(host_bytes=10))
    outcome = ModelCacheSim(trace, ResidencySpec(budget=trace.budget), deadline_s=2.0).run()
    assert (outcome.calls, outcome.refused, outcome.hits) == (4, 3, 1)
    assert outcome.wait_s == [0.0]


def test_waits_loads_and_hits_are_counted() -> None:
    models = alike(2, mib=100, load_s=0.5)
    calls = ((0.0, "model-0000"), (0.2, "model-0000"), (1.0, "model-0000"), (60.0, "model-0001"),
             (120.0, "model-0000"))  # fmt: skip
    trace = Trace("few", models, calls, Footprint(host_bytes=100 * MIB))
    sim = ModelCacheSim(trace, ResidencySpec(budget=trace.budget), prepare_s=0.1, unload_s=0.05)
    outcome = sim.run()
    assert outcome.summary(120.0) == {
        "loads": 3,
        "reloads": 1,
        "reloads_per_hour": 30.0,
        "load_s": 1.5,
        "hit_ratio": 0.2,
        "refused": 0,
        "wait_s_p50": 0.6,
        "wait_s_p99": 0.65,
    }
    assert outcome.unloads == 2
    assert outcome.used_max == 100 * MIB


def test_a_seed_repeats_its_traces_and_another_has_others() -> None:
    one, same = traces(seed=3, number=10, length_s=60.0), traces(seed=3, number=10, length_s=60.0)
    assert one == same
    assert one != traces(seed=4, number=10, length_s=60.0)
    assert len({trace.name for trace in one}) == len(one)


def test_zipf_calls_the_first_model_most_and_shifting_changes_which() -> None:
    names = [f"m{at}" for at in range(10)]
    calls = zipf_calls(names, random.Random(1), rate=10.0, length_s=200.0)
    assert Counter(model for _, model in calls).most_common(1)[0][0] == "m0"
    shifted = zipf_calls(names, random.Random(1), rate=10.0, length_s=200.0, shift_s=100.0)
    later = Counter(model for at, model in shifted if at >= 100.0)
    assert later.most_common(1)[0][0] == "m2"


def test_rounds_call_all_models_in_turn() -> None:
    calls = cyclic_calls(["a", "b"], random.Random(1), gap_s=10.0, length_s=40.0)
    assert calls == ((0.0, "a"), (10.0, "b"), (20.0, "a"), (30.0, "b"))
    shaken = cyclic_calls(["a", "b"], random.Random(1), gap_s=10.0, length_s=400.0, jitter=2.0)
    assert [at for at, _ in shaken] == sorted(at for at, _ in shaken)
    assert max(abs(at - 10.0 * n) for n, (at, _) in enumerate(sorted(shaken))) <= 20.0


def test_a_scan_goes_round_those_who_are_not_called_often() -> None:
    names = [f"m{at}" for at in range(8)]
    calls = scan_calls(names, random.Random(1), rate=10.0, length_s=100.0)
    others = [model for _, model in calls if model not in ("m0", "m1")]
    assert others == [f"m{2 + at % 6}" for at in range(len(others))]
    assert 0.5 < 1 - len(others) / len(calls) < 0.7


def test_a_day_has_office_hours_by_thirds_of_the_models() -> None:
    names = [f"m{at}" for at in range(30)]
    calls = day_calls(names, random.Random(1), rate=20.0, length_s=600.0, skew=0.0)
    first = Counter(int(model[1:]) % 3 for at, model in calls if 100.0 <= at < 200.0)
    assert first[0] > 3 * (first[1] + first[2])
