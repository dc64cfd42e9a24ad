"""Which answered requests the other side of a rollout is asked too, where it has fewer or more
copies: so that no copy gets more than its share.

One new copy beside many former ones would get the requests of all of them, and answer late because
of that: equal models would differ in time, and callers would wait. So for each request that goes
from the former side to the new one, another goes the other way, within `AHEAD_MAX`. Callers'
requests go where least is outstanding, so the copies of both sides stay about equally busy. How
late a copied request comes to its turn then is no handicap of the new side alone.
"""

from __future__ import annotations

from typing import Final

#: More in one direction than in the other. A test of time needs more than these to be sure.
AHEAD_MAX: Final = 4


class PairBalance:
    """The requests that were copied from one side of a rollout to the other."""

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self._ahead = 0  #: those to the new side, minus those to the former one

    def admits(self, *, to_new: bool) -> bool:
        """Whether one more may go there; call `copied` if it does."""
        return (self._ahead if to_new else -self._ahead) < AHEAD_MAX

    def copied(self, *, to_new: bool) -> None:
        self._ahead += 1 if to_new else -1
