"""How often an endpoint's metrics are published: its MetricsConfig.

As SageMaker has it: MetricPublishFrequencyInSeconds is about utilization, and with enhanced metrics
about invocations too. Concurrency is published every ten seconds whatever it says: it is what
scaling in seconds needs. Where nothing is said everything is published every ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.metrics.counts.totals import WINDOW_S

#: A point of a longer period is no high-resolution one.
_HIGH_RESOLUTION_S: Final = 60


@dataclass(frozen=True, slots=True)
class Publishing:
    """Of one variant."""

    utilization_s: int = 0  #: a point for so many seconds; 0 = as it is measured
    invocations_s: int = WINDOW_S
    by_instance: bool = False  #: invocations of each instance, too

    def point(self, at: float) -> tuple[float, bool]:
        """(the time of a measurement's point, whether it is of high resolution)."""
        if not self.utilization_s:
            return at, False
        return at // self.utilization_s * self.utilization_s, (
            self.utilization_s < _HIGH_RESOLUTION_S
        )

    def window(self, start: int) -> tuple[int, bool]:
        """(the time of the point of what ended in a window, whether it is of high resolution)."""
        length_s = self.invocations_s
        return start // length_s * length_s, length_s < _HIGH_RESOLUTION_S

    def window_end(self, start: int) -> int:
        """From when on it may be told: nothing comes to it any more."""
        return self.window(start)[0] + self.invocations_s


ALWAYS: Final = Publishing()


def publishing_of(publish_s: int, *, enhanced: bool) -> Publishing:
    """`publish_s`: MetricPublishFrequencyInSeconds; 0 = not given, which is a minute."""
    if not publish_s and not enhanced:
        return ALWAYS
    publish_s = publish_s or 60
    invocations_s = publish_s if enhanced else WINDOW_S
    return Publishing(publish_s, invocations_s, enhanced)
