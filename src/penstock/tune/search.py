"""The highest Poisson rate that a setting sustains within a latency, as the twin tells it.

Sustained means: the 99th percentile of all answers is within the bound, and fewer than one request
in a hundred went unanswered. The rate is found by doubling and halving; each step is a run of the
twin with the measured run times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from penstock.artifacts.description.description import ModelDescription
from penstock.core.request.admission import AdmissionSpec
from penstock.sim.outcome import percentile
from penstock.sim.scenario import Scenario, VariantScenario
from penstock.sim.service import ServiceSpec, ServiceTimes
from penstock.sim.twin import Twin
from penstock.sim.workload import WorkloadSpec
from penstock.tune.settings import Setting

_REQUESTS = 5000  #: per run: 50 beyond the 99th percentile
_STEPS = 4  #: halvings: the rate is known to 6 %
_RATE_RPS_MIN = 1.0
_RATE_RPS_MAX = 1e6  #: beyond what any gateway takes
_UNANSWERED_MAX = 0.01


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """One run: a setting under a load, in the twin or live."""

    setting: Setting
    rate_rps: float
    answered_rps: float
    p99_s: float
    unanswered: float = 0.0  #: share of the requests

    def within(self, p99_s: float) -> bool:
        return self.p99_s <= p99_s and self.unanswered < _UNANSWERED_MAX


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A setting, its best point within the bound, and all that was looked at for it."""

    setting: Setting
    best: SearchPoint | None  #: None: not even the lowest rate is within the bound
    points: tuple[SearchPoint, ...]

    @property
    def rate_rps(self) -> float:
        return self.best.rate_rps if self.best is not None else 0.0


def simulate(
    setting: Setting,
    description: ModelDescription,
    service: ServiceSpec,
    lengths: tuple[int, ...],
    rate_rps: float,
) -> SearchPoint:
    """One run of the twin."""
    scenario = Scenario(
        name="tune",
        about="",
        seed=1,
        length_s=_REQUESTS / rate_rps,
        variants=(VariantScenario(name="tuned"),),
        batching=setting.batch_spec(description),
        admission=AdmissionSpec(in_flight_max=100_000),
        workload=WorkloadSpec(
            arrivals="poisson",
            rate_rps=rate_rps,
            length=tuple((length, 1.0) for length in lengths),
        ),
        service=service,
    )
    outcome = Twin(scenario).run()
    latencies_s = sorted(each for level in outcome.latencies_s for each in level)
    span_s = max(scenario.length_s, outcome.answered_at)
    requests = max(1, outcome.requests)
    return SearchPoint(
        setting,
        rate_rps,
        len(latencies_s) / span_s,
        percentile(latencies_s, 0.99) if latencies_s else float("inf"),
        1 - len(latencies_s) / requests,
    )


def likely_rps(setting: Setting, service: ServiceSpec, bucket: int) -> float:
    """Half of what the lanes carry in full batches: where a search begins."""
    run_s = ServiceTimes(dataclasses.replace(service, noise=()), 0).run_s(setting.rows_max, bucket)
    return setting.lanes * setting.rows_max / run_s / 2


def sustainable(
    run: Callable[[float], SearchPoint], setting: Setting, p99_s: float, start_rps: float
) -> SearchResult:
    """The highest rate within the bound; `run` tells what comes of one rate."""
    points: list[SearchPoint] = []

    def good(rate_rps: float) -> bool:
        points.append(run(rate_rps))
        return points[-1].within(p99_s)

    low, high = 0.0, max(start_rps, _RATE_RPS_MIN)
    while high < _RATE_RPS_MAX and good(high):
        low, high = high, high * 2
    while not low and high > _RATE_RPS_MIN:
        lower = high / 4
        if good(lower):
            low = lower
        else:
            high = lower
    for _ in range(_STEPS if low else 0):
        middle = (low + high) / 2
        if good(middle):
            low = middle
        else:
            high = middle
    best = max(
        (point for point in points if point.within(p99_s)),
        key=lambda point: point.rate_rps,
        default=None,
    )
    return SearchResult(setting, best, tuple(points))


def pareto(points: list[SearchPoint]) -> list[SearchPoint]:
    """Those that no other beats in both rate and latency, by rising rate."""
    front: list[SearchPoint] = []
    for point in sorted(points, key=lambda point: (-point.answered_rps, point.p99_s)):
        if not front or point.p99_s < front[-1].p99_s:
            front.append(point)
    return front[::-1]
