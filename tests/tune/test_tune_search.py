"""The highest rate within a latency: how it is found, and what the twin says of known copies."""

from __future__ import annotations

from penstock.artifacts.description.description import ModelDescription
from penstock.sim.workload import ServiceSpec
from penstock.tune.procedure import unlike
from penstock.tune.search import (
    SearchPoint,
    SearchResult,
    Setting,
    likely_rps,
    pareto,
    simulate,
    sustainable,
)

SETTING = Setting(1, 1, 8)
MODEL = ModelDescription(runtime="onnxruntime")
#: 1 row takes 2 ms, 8 rows 4 ms
SERVICE = ServiceSpec(measured=((1, 0, 0.002), (8, 0, 0.004)))


def found(limit_rps: float, start_rps: float) -> SearchResult:
    """A copy whose latency is 5 ms up to a rate and 50 ms beyond it."""

    def run(rate_rps: float) -> SearchPoint:
        p99_s = 0.005 if rate_rps <= limit_rps else 0.05
        return SearchPoint(SETTING, rate_rps, rate_rps, p99_s)

    return sustainable(run, SETTING, 0.01, start_rps)


def test_the_rate_is_found_from_below_and_from_above() -> None:
    for start_rps in (10.0, 700.0, 20_000.0):
        result = found(700.0, start_rps)
        assert 700 * 0.9 < result.rate_rps <= 700
        assert result.best is not None
        assert result.best.p99_s == 0.005


def test_what_is_never_within_the_latency_has_no_best() -> None:
    assert found(0.0, 100.0).best is None
    assert found(0.0, 100.0).rate_rps == 0.0


def test_unanswered_requests_count_against_a_rate() -> None:
    assert SearchPoint(SETTING, 1.0, 1.0, 0.001, unanswered=0.005).within(0.01)
    assert not SearchPoint(SETTING, 1.0, 1.0, 0.001, unanswered=0.02).within(0.01)


def test_the_twin_tells_light_load_from_overload() -> None:
    """8 rows in 4 ms are 2000 per s at most."""
    light = simulate(SETTING, MODEL, SERVICE, (0,), 50.0)
    assert 0.002 <= light.p99_s < 0.005
    assert light.unanswered == 0.0
    assert simulate(SETTING, MODEL, SERVICE, (0,), 3000.0).p99_s > 0.1


def test_batching_carries_a_higher_rate_than_single_rows() -> None:
    rates = []
    for setting in (Setting(1, 1, 1), Setting(1, 1, 8)):
        result = sustainable(
            lambda rate, setting=setting: simulate(setting, MODEL, SERVICE, (0,), rate),
            setting,
            0.02,
            likely_rps(setting, SERVICE, 0),
        )
        rates.append(result.rate_rps)
    assert rates[0] < 500
    assert 1200 < rates[1] < 2000


def test_the_front_holds_what_no_other_beats_in_both() -> None:
    slow, fast, beaten = (
        SearchPoint(SETTING, 1.0, answered, p99_s)
        for answered, p99_s in ((100.0, 0.001), (200.0, 0.002), (150.0, 0.003))
    )
    assert pareto([beaten, fast, slow]) == [slow, fast]


def test_lanes_are_verified_before_delays_and_sizes_not_at_all() -> None:
    def result(setting: Setting, rate_rps: float) -> SearchResult:
        return SearchResult(setting, SearchPoint(setting, rate_rps, rate_rps, 0.001), ())

    best = result(Setting(1, 2, 8), 900.0)
    near = result(Setting(1, 2, 4), 800.0)
    level = result(Setting(1, 2, 8, latency_s_p99_max=0.01), 700.0)
    lanes = result(Setting(2, 1, 8), 600.0)
    never = SearchResult(Setting(2, 1, 8, wait_s_max=0.001), None, ())
    assert unlike([best, near, level, lanes, never]) == [best, lanes, level]
