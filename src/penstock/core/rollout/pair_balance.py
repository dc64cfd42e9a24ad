"""Which answered requests of a component its other revision is asked too, so that no copy gets more
than its share.

One new copy beside many former ones would get the requests of all of them, and answer late because
of that: equal models would differ in time, and callers would wait. So for each request that goes
from the former revision to the new one, another goes the other way, within `AHEAD_MAX`. Callers'
requests go where least is outstanding, so the copies of both revisions stay about equally busy. How
late a copied request comes to its turn then is no handicap of the new revision alone.
"""

from __future__ import annotations

from typing import Final

#: More in one direction than in the other. A test of time needs more than these to be sure.
AHEAD_MAX: Final = 4


class PairBalance:
    """The requests of one component that were copied from one revision to the other."""

    __slots__ = ("_ahead",)

    def __init__(self) -> None:
        self._ahead = 0  #: those to the new revision, minus those to the former one

    def admits(self, *, to_new: bool) -> bool:
        """Whether one more may go there; call `copied` if it does."""
        return (self._ahead if to_new else -self._ahead) < AHEAD_MAX

    def copied(self, *, to_new: bool) -> None:
        self._ahead += 1 if to_new else -1
