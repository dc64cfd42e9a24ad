"""`/metrics` of a server: of all its processes together, or of one that is named.

The aggregate is made of what processes have told; the page of one process is that process's own,
made when it is asked for, with what only it knows (its memory, its descriptors).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from penstock.errors import CallerError
from penstock.metrics.page.prometheus import PrometheusPage

#: (process, Accept header) -> its page and content type; None: it is not there, or silent
Others = Callable[[str, str], Awaitable[tuple[bytes, str] | None]]


class MetricPages:
    """`others`: None where this process is all there is."""

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
            page: of all processes together.
            own: the name of this process.
            names: of the others.
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
