"""The highest Poisson rate that a setting sustains within a latency, according to the twin.

Sustained means: the 99th percentile of all answers is within the bound, and fewer than one request
in a hundred went unanswered. The rate is found by doubling and halving; each step is a run of the
twin with the measured run times. The search varies lanes, threads, rows and delay of one copy.

The chosen setting becomes lines of text, or a model.yaml to serve.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import ModelDescription
from penstock.core.batching.batcher import BatchSpec
from penstock.durable_files import replace_file
from penstock.errors import NotNowError
from penstock.sim.outcome import percentile
from penstock.sim.scenario import Scenario, VariantScenario
from penstock.sim.twin import Twin
from penstock.sim.workload import ServiceSpec, ServiceTimes, WorkloadSpec

#: Delays that are tried besides the service level, s. Longer ones only add latency where the copy
#: is busy, and a busy copy decides the sustainable rate.
_WAITS_S = (0.0, 0.001, 0.002, 0.005)


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One way to serve the model."""

    lanes: int
    threads: int  #: per lane
    rows_max: int
    wait_s_max: float = 0.0
    latency_s_p99_max: float | None = None  #: a service level, used instead of a delay

    @property
    def delay(self) -> str:
        """The delay as text for people."""
        if self.latency_s_p99_max is not None:
            return f"level {self.latency_s_p99_max * 1e3:g} ms"
        return f"{self.wait_s_max * 1e3:g} ms"

    @property
    def delay_kind(self) -> str:
        """none | wait | level."""
        if self.latency_s_p99_max is not None:
            return "level"
        return "wait" if self.wait_s_max > 0 else "none"

    def batch_spec(self, description: ModelDescription) -> BatchSpec:
        """The spec that an instance makes for this setting."""
        batching = description.batching
        return BatchSpec(
            rows_max=self.rows_max,
            wait_s_max=self.wait_s_max,
            lanes=self.lanes,
            queue_rows_max=max(self.rows_max, batching.queue_rows_max),
            buckets=batching.buckets,
            latency_s_p99_max=self.latency_s_p99_max,
        )

    def applied(self, description: ModelDescription) -> ModelDescription:
        """The description with this setting; keys that the setting does not have stay unchanged."""
        batching = dataclasses.replace(
            description.batching,
            rows_max=self.rows_max,
            wait_s_max=self.wait_s_max,
            rows_preferred=(),
            latency_s_p99_max=self.latency_s_p99_max,
        )
        return dataclasses.replace(
            description, batching=batching, lanes=self.lanes, threads_per_lane=self.threads
        )


def lane_choices(cores: int) -> list[tuple[int, int]]:
    """(lanes, threads per lane) that use all cores or half of them, with no core used twice.

    Half of them, because gateway, parsing and tokenizers need cores of the same machine.
    """
    choices = []
    for used in (cores, cores // 2):
        choices += [(lanes, used // lanes) for lanes in range(1, used + 1) if not used % lanes]
    return choices


def row_choices(rows_max: int) -> list[int]:
    """1, 2, 4 ... up to `rows_max`, itself included."""
    return [*(1 << power for power in range((rows_max - 1).bit_length())), rows_max]


def with_delays(setting: Setting, p99_s: float) -> list[Setting]:
    """The setting with each other delay that may help within `p99_s`."""
    if setting.rows_max == 1:
        return []
    waits = [wait_s for wait_s in _WAITS_S if 0 < wait_s < p99_s / 2]
    level = dataclasses.replace(setting, latency_s_p99_max=p99_s)
    return [*(dataclasses.replace(setting, wait_s_max=wait_s) for wait_s in waits), level]


def lines(setting: Setting) -> str:
    """The keys of model.yaml that the setting consists of."""
    batching: dict[str, object] = {"rows_max": setting.rows_max}
    if setting.latency_s_p99_max is not None:
        batching["latency_ms_p99_max"] = round(setting.latency_s_p99_max * 1e3, 6)
    else:
        batching["wait_ms_max"] = round(setting.wait_s_max * 1e3, 6)
    fields = {
        "batching": batching,
        "lanes": setting.lanes,
        "threads_per_lane": setting.threads,
    }
    return str(yaml.safe_dump(fields, sort_keys=False))


def write(model_dir: Path, description: ModelDescription, setting: Setting) -> Path:
    """Writes the whole model.yaml; of its comments, those at the head of the file are kept.

    After a full disk or a power cut either the old file or the new one exists, and nothing else.

    Raises:
        NotNowError: `model-yaml-not-written`.
    """
    path = model_dir / model_yaml.FILE_NAME
    try:
        text = "".join(_head(path)) + model_yaml.dump(setting.applied(description))
        replace_file(path, (text.encode(),), mode=None)
    except OSError as error:
        raise NotNowError(
            "model-yaml-not-written",
            f"{path} can't be written: {error.strerror}",
            hint="Free disk space, or correct the permissions of the folder.",
        ) from error
    return path


def _head(path: Path) -> list[str]:
    head: list[str] = []
    if path.is_file():
        for line in path.read_text().splitlines(keepends=True):
            if not line.startswith("#"):
                break
            head.append(line)
    return head


_REQUESTS = 5000  #: requests per run: 50 lie beyond the 99th percentile
_STEPS = 4  #: number of halvings: the rate is known to 6 %
_RATE_RPS_MIN = 1.0
_RATE_RPS_MAX = 1e6  #: more than any gateway takes
_UNANSWERED_MAX = 0.01


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """One run: a setting under a load, in the twin or live."""

    setting: Setting
    rate_rps: float
    answered_rps: float
    p99_s: float
    unanswered: float = 0.0  #: share of the requests, 0 to 1

    def within(self, p99_s: float) -> bool:
        return self.p99_s <= p99_s and self.unanswered < _UNANSWERED_MAX


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A setting, its best point within the bound, and all points that were run for it."""

    setting: Setting
    best: SearchPoint | None  #: None = not even the lowest rate is within the bound
    points: tuple[SearchPoint, ...]

    @classmethod
    def of(cls, setting: Setting, points: Sequence[SearchPoint], p99_s: float) -> SearchResult:
        within = [point for point in points if point.within(p99_s)]
        best = max(within, key=lambda point: point.rate_rps, default=None)
        return cls(setting, best, tuple(points))

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
    """Half of what the lanes carry in full batches; the search begins there."""
    run_s = ServiceTimes(dataclasses.replace(service, noise=()), 0).run_s(setting.rows_max, bucket)
    return setting.lanes * setting.rows_max / run_s / 2


def sustainable(
    run: Callable[[float], SearchPoint], setting: Setting, p99_s: float, start_rps: float
) -> SearchResult:
    """The highest rate within the bound; `run` returns the point of one rate."""
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
    return SearchResult.of(setting, points, p99_s)


def pareto(points: list[SearchPoint]) -> list[SearchPoint]:
    """The points that no other beats in both rate and latency, by rising rate."""
    front: list[SearchPoint] = []
    for point in sorted(points, key=lambda point: (-point.answered_rps, point.p99_s)):
        if not front or point.p99_s < front[-1].p99_s:
            front.append(point)
    return front[::-1]
