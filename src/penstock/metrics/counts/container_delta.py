"""What one container of a model of several did on one instance since the last report."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from penstock.metrics.series.sketch import Sketch

#: The event of an instance that brings the reports of its containers.
CONTAINER_COUNTS: Final = "container-counts"


class ContainerDelta:
    """Requests to one container, on one instance since the last report, or in a window."""

    __slots__ = ("errors_4xx", "errors_5xx", "invocations", "latency_us")

    def __init__(self) -> None:
        self.invocations = 0
        self.errors_4xx = 0  #: that it answered with such a status
        self.errors_5xx = 0  #: that, and those on which it failed otherwise
        self.latency_us = Sketch()  #: from its request to the end of its answer

    def count(self, status: int, latency_s: float) -> None:
        """`status`: of its answer; 500 for one on which it failed."""
        self.invocations += 1
        self.errors_4xx += 400 <= status < 500
        self.errors_5xx += status >= 500
        self.latency_us.add(latency_s * 1e6)

    def add(self, other: ContainerDelta) -> None:
        self.invocations += other.invocations
        self.errors_4xx += other.errors_4xx
        self.errors_5xx += other.errors_5xx
        self.latency_us.merge(other.latency_us)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "invocations": self.invocations,
            "errors_4xx": self.errors_4xx,
            "errors_5xx": self.errors_5xx,
            "latency_us": base64.b64encode(self.latency_us.to_bytes()).decode(),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ContainerDelta:
        """Inverse of `to_dict`. Raises CallerError, KeyError, TypeError or ValueError."""
        made = cls()
        made.invocations = int(fields["invocations"])
        made.errors_4xx = int(fields["errors_4xx"])
        made.errors_5xx = int(fields["errors_5xx"])
        made.latency_us = Sketch.from_bytes(base64.b64decode(fields["latency_us"]))
        return made
