"""Which loads may run at one time: those whose needs are known.

What a model takes is seen in what the operating system says before and after its load. Of loads
that run side by side only the sum is seen, so each must be known to take about a certain part of
it: it was loaded here before, or others of its kind and size were. A model of unknown need loads
alone. While it waits for that, nobody behind it begins: else those who come all the time would
keep it waiting for ever.
"""

from __future__ import annotations


class SideBySide:
    """The loads that run now."""

    def __init__(self) -> None:
        self._running: dict[str, bool] = {}  #: model -> its need is known

    def __len__(self) -> int:
        return len(self._running)

    def may_begin(self, *, known: bool) -> bool:
        """Whether a load may begin beside those that run; `known`: what it will take."""
        return not self._running or (known and all(self._running.values()))

    def begins(self, model: str, *, known: bool) -> None:
        self._running[model] = known

    def ends(self, model: str) -> None:
        """It is loaded, or failed."""
        del self._running[model]
