"""What is searched: lanes, threads, rows and delay of one copy; and where the search begins."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from penstock.artifacts.description.description import ModelDescription
from penstock.core.batching.batcher import BatchSpec

#: Delays that are tried beside the service level, s. Longer ones only cost latency where the copy
#: is busy, which is where a sustainable rate is decided.
_WAITS_S = (0.0, 0.001, 0.002, 0.005)


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """One way to serve the model."""

    lanes: int
    threads: int  #: per lane
    rows_max: int
    wait_s_max: float = 0.0
    latency_s_p99_max: float | None = None  #: instead of a delay

    @property
    def delay(self) -> str:
        """The delay as a person reads it."""
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
        """As the instance will make it for this setting."""
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
        """The description with this setting; what the setting does not speak of stays."""
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
    """(lanes, threads per lane) that use all cores, or half of them, without sharing one.

    Half of them, because gateway, parsing and tokenizers want cores of the same machine.
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
