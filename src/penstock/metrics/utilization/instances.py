"""Utilization of instances as their processes measure it, converted for the store.

CloudWatch's rules: CPU and GPU go up to 100 times the number of cores or devices; the normalized
forms and the others go up to 100. A value that an instance can't measure is None and is not
published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock.metrics.loop_lag import LagObserved
from penstock.metrics.series.series import MetricKey, metric_key

NAMESPACE: Final = "/aws/sagemaker/Endpoints"
_COUNTS: Final = ("LoadedModelCount", "SequencesRunning", "SequencesWaiting")


@dataclass(slots=True)
class CacheCounts:
    """What response caches did, since the start or since the last sample."""

    hits: int = 0
    misses: int = 0
    hit_s: float = 0.0  #: to look up and answer, of hits
    miss_s: float = 0.0  #: to look up and keep the answer, of misses

    def add(self, other: CacheCounts) -> None:
        self.hits += other.hits
        self.misses += other.misses
        self.hit_s += other.hit_s
        self.miss_s += other.miss_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySample:
    """One measurement of one copy; percentages of what is reserved for it."""

    component: str  #: empty: the variant's own model
    cpu_percent: float | None = None  #: CPU of its processes; None if it has none of its own
    memory_percent: float | None = None
    invocations: int | None = None  #: answered since the last sample; None: unknown
    in_flight: int = 0  #: requests on the instance that wait for the model, or are in it
    queue_rows: int = 0  #: rows of those that wait
    cache: CacheCounts | None = (
        None  #: of its response cache since the last sample; None: it has none
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSample:
    """One measurement of one instance; percentages as CloudWatch counts them."""

    endpoint: str
    variant: str
    instance_id: str
    cpu_percent: float | None = None  #: 0 to 100 x cores
    cpu_cores: int = 1  #: cores that the instance may use
    memory_percent: float | None = None  #: 0 to 100
    disk_percent: float | None = None  #: 0 to 100
    gpu_percent: float | None = None  #: 0 to 100 x devices
    gpu_memory_percent: float | None = None  #: 0 to 100 x devices
    gpu_count: int = 0
    loaded_model_count: int | None = None
    #: sequences that its engines are generating; None: no engine
    sequences_running: int | None = None
    #: accepted sequences without a slot in an engine; None: no engine
    sequences_waiting: int | None = None
    #: sequences of its stateful models: open and backlog now; ended, idle and lost since its start
    stateful: Mapping[str, int] | None = None
    #: lag of its event loop since its start; None: not reported
    loop_lag: LagObserved | None = None
    #: use of the attention cache of its fullest engine, 0 to 100; None: no engine
    cache_percent: float | None = None
    copies: tuple[CopySample, ...] = ()
    #: series that the code of its models has made (`runtimes.python.code_metrics`)
    code_metrics: tuple[dict[str, Any], ...] = ()


def instance_metrics(sample: InstanceSample) -> list[tuple[MetricKey, float]]:
    """The datapoints of one sample: for the variant, and for the single instance."""
    values = {
        "CPUUtilization": sample.cpu_percent,
        "CPUUtilizationNormalized": normalized(sample.cpu_percent, sample.cpu_cores),
        "MemoryUtilization": sample.memory_percent,
        "DiskUtilization": sample.disk_percent,
        "GPUUtilization": sample.gpu_percent,
        "GPUUtilizationNormalized": normalized(sample.gpu_percent, sample.gpu_count),
        "GPUMemoryUtilization": sample.gpu_memory_percent,
        "GPUMemoryUtilizationNormalized": normalized(sample.gpu_memory_percent, sample.gpu_count),
        "LoadedModelCount": sample.loaded_model_count,
        "SequencesRunning": sample.sequences_running,
        "SequencesWaiting": sample.sequences_waiting,
        "KVCacheUtilization": sample.cache_percent,
    }
    variant = {"EndpointName": sample.endpoint, "VariantName": sample.variant}
    instance = variant | {"InstanceId": sample.instance_id}
    return [
        (metric_key(NAMESPACE, name, dimensions, unit_of(name)), float(value))
        for name, value in values.items()
        if value is not None
        for dimensions in (variant, instance)
    ]


def unit_of(name: str) -> str:
    return "None" if name in _COUNTS else "Percent"


def normalized(percent: float | None, count: int) -> float | None:
    """Percent of all cores or devices, 0 to 100; None if not measured or if there are none."""
    return None if percent is None or count < 1 else percent / count
