"""What goes wrong, and when. (Clients that go away are part of the workload.)"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("copy-lost",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A copy's worker dies; what it had queued or running goes back to the gateway unanswered."""

    at_s: float
    copy: int
    kind: str = "copy-lost"  #: one of KINDS
    back_after_s: float = 1.0  #: a new worker is ready
