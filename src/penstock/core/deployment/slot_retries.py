"""When a slot is tried again: times and bounds of reconciliation, and what follows from them.

A slot is a place for one instance of a variant, or for one copy of a component, known by its
ordinal. A failed instance or copy leaves its slot; the slot counts its failures in a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from penstock.core.backoff import Backoff
from penstock.core.deployment.endpoint_state import SlotFailure
from penstock.errors import PenstockError

_PERMANENT_FAMILIES = ("caller", "model")
_PERMANENT_CODES = ("startup-timeout", "download-timeout")
#: The process ended without an error of its own: it may have been killed, or have run out of
#: memory.
_DEATH_CODES = ("worker-died", "process-killed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSpec:
    """The times and bounds of reconciliation."""

    backoff: Backoff = Backoff(0.5, 30.0)  #: between the attempts of one slot
    #: failures in a row of one slot after which a creation or an update fails
    attempts_max: int = 3
    #: instances of one variant that may be starting (no connection yet) at once
    starting_max: int = 16
    stable_s: float = 60.0  #: s; after a copy was ready this long, its failures are counted from 0
    start_s_max: float = 60.0  #: s from the request to the fleet to an accepted connection
    margin_s: float = 10.0  #: s that the instance may be late with its own timeouts
    gone_s_max: float = 2.0  #: s for the fleet to report why an instance broke its connection
    # AWS ends a stream after 480 s, so requests from before the drain have ended by then.
    drain_s_max: float = 490.0  #: s for requests in flight on a copy that is to be stopped
    #: s, the same where the whole endpoint is stopped; never longer than `drain_s_max`
    drain_at_end_s_max: float = 30.0

    @property
    def last_drain_s(self) -> float:
        """s for requests in flight when the whole endpoint is stopped."""
        return min(self.drain_s_max, self.drain_at_end_s_max)


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """A slot without an instance or copy."""

    ordinal: int
    failed: bool  #: its last instance or copy failed
    due: float | None  #: no attempt before this time; None = at once
    refused: bool = False  #: it failed for lack of room: it need not wait once there is room


def failure_count(
    former: SlotFailure | None, *, ready_s: float, spec: ReconcileSpec, guest: bool = False
) -> int:
    """The failure count of a slot that has just failed, after its copy was ready for `ready_s`.

    `guest`: if an instance of offline work was ready and then ended, its work ended it. The job
    counts that and may give up; a new instance is needed at once to find the cause.
    """
    stable = ready_s > 0 if guest else ready_s >= spec.stable_s
    return 1 if former is None or stable else former.count + 1


def is_permanent(error: PenstockError) -> bool:
    """A retry can't help: the request or the model is wrong, or its time is up."""
    permanent = error.family in _PERMANENT_FAMILIES or error.code in _PERMANENT_CODES
    return permanent and not is_death(error)


def is_death(error: PenstockError) -> bool:
    """A process that loads, reads or computes for a model died without an error of its own.

    That does not prove the model wrong: it is retried, until the third death in a row.
    """
    return error.code in _DEATH_CODES


def is_final(failure: SlotFailure, spec: ReconcileSpec) -> bool:
    """Whether this failure ends a creation, an update or a change of count."""
    return failure.permanent or failure.count >= spec.attempts_max


def free_slots(
    desired: int,
    taken: Collection[int],
    failures: Mapping[int, SlotFailure],
    spec: ReconcileSpec,
    *,
    missing: int,
) -> Iterator[FreeSlot]:
    """At most `missing` of the slots below `desired` that are not `taken`, the lowest first.

    Yields one by one: a user may have set a huge count, and callers stop when they have enough.
    """
    for ordinal in islice((at for at in range(desired) if at not in taken), max(missing, 0)):
        failure = failures.get(ordinal)
        if failure is None:
            yield FreeSlot(ordinal, failed=False, due=None)
        else:
            due = failure.at + spec.backoff.pause_s(failure.count)
            yield FreeSlot(ordinal, failed=True, due=due, refused=failure.refused)


def earliest(*deadlines: float | None) -> float | None:
    """The nearest of some deadlines, any of which may be None."""
    return min((at for at in deadlines if at is not None), default=None)
