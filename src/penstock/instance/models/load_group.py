"""Drives `core.load_group` on a host: measures when its groups begin and end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.clock import Clock
from penstock.core.models.load_group import LoadGroup
from penstock.core.residency import Footprint
from penstock.instance.models import memory

#: What was measured when one group ended is good for the next that begins so soon.
_FRESH_S: Final = 0.1


class Over(NamedTuple):
    """What is known when a load or an end is over."""

    used: Footprint  #: by the whole host
    taken: Mapping[str, Footprint]  #: by the models of the group, if it is over
    was_one: bool  #: the model that was asked about was alone in it


class LoadGroupDriver:
    """`begins`, then one of `group`'s `loaded`, `failed` and `ended`, then `over`."""

    def __init__(self, clock: Clock) -> None:
        self.group = LoadGroup()
        self._clock = clock
        self._border = asyncio.Lock()  #: a group is begun or ended
        self._used = Footprint()
        self._measured_at = -_FRESH_S
        self._told_apart: dict[str, Footprint] = {}

    async def begins(self) -> None:
        """A load or an end."""
        async with self._border:
            if not self.group.is_open:
                if self._clock.monotonic() >= self._measured_at + _FRESH_S:
                    await self.measure()
                self.group.opens(self._used.host_bytes)
            self.group.begins()

    async def over(self, model: str = "") -> Over:
        """`model`: that was loaded. Its group may be over for longer, if another's end came first;
        the one that is over now is then no word about it."""
        async with self._border:
            await self.measure()
            if not (self.group.is_quiet and self.group.is_open):
                return Over(self._used, {}, was_one=False)
            taken = {
                model: Footprint(host_bytes=taken_bytes)
                for model, taken_bytes in self.group.closes(self._used.host_bytes).items()
            }
            self._told_apart.update(taken)
            return Over(self._used, taken, self.group.was_one and model in taken)

    async def measure(self) -> Footprint:
        self._used = await asyncio.to_thread(memory.footprint)
        self._measured_at = self._clock.monotonic()
        return self._used

    def told_apart(self) -> dict[str, Footprint]:
        """By model, what groups showed that have ended since this was asked last."""
        told, self._told_apart = self._told_apart, {}
        return told

    def charged(self, model: str, taken: Footprint) -> None:
        """Not all of what its group showed is the model's own."""
        self._told_apart[model] = taken

    def gone(self, model: str) -> None:
        self._told_apart.pop(model, None)
