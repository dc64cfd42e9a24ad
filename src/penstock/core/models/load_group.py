"""What each of several models took that were loaded side by side, and others ended meanwhile.

Of loads that overlap the operating system shows only the sum. A *group* is what begins when nothing
is loaded or ended and lasts until that is so again. A load that was alone in its group took what
came on top. Of several each is charged with what was expected of it until the group is over; then
what came on top is divided among them in these proportions. What came on top of a group in which
models were ended as well is more by what those had been charged with.

No share is less than half of what was expected, nor more than a quarter above it: a group also
shows what other parts of the process have taken or given back, and that is nobody's. On the safe
side: who seems to take more than there is, is ended for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_SHARE_MIN: Final = 0.5
_SHARE_MAX: Final = 1.25


class LoadGroup:
    """From one quiet moment to the next. Give `opens` what was measured before `begins`, unless it
    `is_open`; ask `closes` when it `is_quiet` again. One that begins before that still belongs to
    it."""

    def __init__(self) -> None:
        self.is_open = False
        self._before_bytes = 0
        self._running = 0
        self._begun = 0  #: loads and ends in all
        self._loaded: dict[str, int] = {}  #: expected of those that stay, in bytes
        self._ended_bytes = 0  #: charged to models that were there before, and are gone

    @property
    def is_quiet(self) -> bool:
        """Nothing is being loaded or ended."""
        return not self._running

    @property
    def was_one(self) -> bool:
        """One load or end was all: what was measured is its own."""
        return self._begun == 1

    def opens(self, used_bytes: int) -> None:
        """What everything takes, measured while it was quiet."""
        self.is_open = True
        self._before_bytes = used_bytes
        self._begun, self._ended_bytes = 0, 0
        self._loaded.clear()

    def begins(self) -> None:
        """A load or an end."""
        self._running += 1
        self._begun += 1

    def loaded(self, model: str, expected_bytes: int) -> None:
        """A load is over, and the model stays."""
        self._running -= 1
        self._loaded[model] = max(expected_bytes, 1)

    def failed(self) -> None:
        """A load is over, and nothing of it stays."""
        self._running -= 1

    def ended(self, model: str, charged_bytes: int) -> None:
        """A model is gone, which was charged with so much."""
        self._running -= 1
        if self._loaded.pop(model, None) is None:
            self._ended_bytes += charged_bytes

    def closes(self, used_bytes: int) -> Mapping[str, int]:
        """What each of those took that are loaded, in bytes; `used_bytes`: measured while quiet."""
        self.is_open = False
        on_top = max(0, used_bytes - self._before_bytes + self._ended_bytes)
        if self.was_one:
            return {model: on_top for model in self._loaded}
        expected = sum(self._loaded.values())
        share = min(max(on_top / max(expected, 1), _SHARE_MIN), _SHARE_MAX)
        return {model: int(share * each) for model, each in self._loaded.items()}
