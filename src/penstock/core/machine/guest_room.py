"""Which guests' instances are ended so that somebody else has room.

What is under way on them is done again later, so as little as possible is ended: one guest where
one is enough, the smallest such; else the largest, and so on with the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.machine.room import PlacedInstance


def least_stops(
    guests: Sequence[PlacedInstance], enough: Callable[[tuple[PlacedInstance, ...]], bool]
) -> tuple[str, ...]:
    """Their instance ids. `enough` says whether ending these makes the room; all of them do."""
    left = sorted(guests, key=lambda one: (one.memory_bytes, one.instance_id))
    stopped: tuple[PlacedInstance, ...] = ()
    while not enough(stopped):
        one = next((each for each in left if enough((*stopped, each))), left[-1])
        left.remove(one)
        stopped = (*stopped, one)
    return tuple(one.instance_id for one in stopped)
