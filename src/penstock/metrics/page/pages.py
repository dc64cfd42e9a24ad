"""`/metrics` of a server: of all its processes together, of one of them, or of a follower.

The aggregate is made of the processes' reports. The page of one process is made by that process
when it is requested, with what only it knows (its memory, its descriptors). A server that follows
shows only its own process and who leads. The leader's page has the endpoints; otherwise a scraper
of all servers would count them twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from penstock.errors import CallerError
from penstock.metrics.catalogue.catalogue import PrometheusMetric
from penstock.metrics.catalogue.prometheus_families import MetricPage, gauge
from penstock.metrics.page.prometheus import PrometheusPage

#: (process, Accept header) -> its page and content type; None: it is gone, or does not answer
Others = Callable[[str, str], Awaitable[tuple[bytes, str] | None]]


class MetricPages:
    """The pages of one server. `others`: None if this process is the only one."""

    def __init__(
        self,
        page: PrometheusPage,
        own: str,
        *,
        names: Callable[[], Sequence[str]] = tuple,
        others: Others | None = None,
    ) -> None:
        """
        Args:
            page: the page of all processes together.
            own: the name of this process.
            names: the names of the other processes.
        """
        self._page = page
        self._own = own
        self._names = names
        self._others = others

    async def render(self, process: str = "", accept: str = "") -> tuple[bytes, str]:
        """(body, content type). `process`: "" or the name of this one is the aggregate.

        Raises:
            CallerError: `process-not-found`.
        """
        if process in ("", self._own):
            return self._page.render(accept)
        found = None
        if self._others is not None and process in self._names():
            found = await self._others(process, accept)
        if found is None:
            raise CallerError(
                "process-not-found",
                f"No process {process!r} of this server answers.",
                hint=f"There are: {', '.join((self._own, *self._names()))}.",
                status=404,
            )
        return found


STANDBY: Final = PrometheusMetric(
    "penstock_standby", "gauge", ("leader", "address"),
    "1 on a server that follows, with who leads as it sees it; empty while nobody does.",
)  # fmt: skip
PROMETHEUS: Final = (STANDBY,)


class StandbyPage(MetricPage, Collector):
    """The page of a server while it follows."""

    def __init__(self, leader: Callable[[], tuple[str, str]]) -> None:
        """`leader`: name and address of the current leader; empty: there is none."""
        self._leader = leader
        super().__init__(self)

    def collect(self) -> Iterator[Metric]:
        yield gauge(STANDBY, [(self._leader(), 1.0)])
