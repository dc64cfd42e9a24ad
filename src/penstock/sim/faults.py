"""The faults of a run and their times. (Clients that disconnect are part of the workload.)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

COPY_LOST: Final = "copy-lost"
COPY_HUNG: Final = "copy-hung"
KINDS: Final = (COPY_LOST, COPY_HUNG)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDeath:
    """A copy's worker dies; its queued and running requests go back to the gateway unanswered.

    Or its instance is stopped (SIGSTOP): its connection stays open without answers until it is
    killed, and another instance is ready at the same moment.
    """

    at_s: float
    copy: int
    kind: str = COPY_LOST  #: one of KINDS
    back_after_s: float = 1.0  #: until a new worker, or a new instance, is ready
