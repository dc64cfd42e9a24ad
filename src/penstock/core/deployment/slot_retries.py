"""When a slot is tried again: the times and bounds of reconciliation, and what follows from them.

A slot is a place for one instance of a variant, or for one copy of a component, known by its
ordinal. What fails leaves its slot, and the slot remembers how often in a row.
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
#: A process ended and said nothing of why: it may have been killed, or have run out of memory.
_DEATH_CODES = ("worker-died", "process-killed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileSpec:
    """The times and bounds of reconciliation."""

    backoff: Backoff = Backoff(0.5, 30.0)  #: between the attempts of one slot
    attempts_max: int = 3  #: failures of one slot after which a creation or an update has failed
    starting_max: int = 16  #: instances of one variant on their way to a connection at once
    stable_s: float = 60.0  #: a copy that was ready this long begins its count of failures anew
    start_s_max: float = 60.0  #: from asking the fleet to an accepted connection
    margin_s: float = 10.0  #: what the instance may be late with its own timeouts
    gone_s_max: float = 2.0  #: for the fleet to say why an instance broke its connection
    # AWS ends a stream after 480 s: what began before the drain is over by then, by itself.
    drain_s_max: float = 490.0  #: for requests in flight on a copy that is taken away
    drain_at_end_s_max: float = 30.0  #: the same where its whole endpoint goes; never longer

    @property
    def last_drain_s(self) -> float:
        """Where nobody is left who could want to wait."""
        return min(self.drain_s_max, self.drain_at_end_s_max)


@dataclass(frozen=True, slots=True)
class FreeSlot:
    """A slot that nothing holds."""

    ordinal: int
    failed: bool  #: something was in it before, and failed
    due: float | None  #: no attempt before; None = at once
    refused: bool = False  #: it failed for lack of room: it need not wait where there is some


def failure_count(
    former: SlotFailure | None, *, ready_s: float, spec: ReconcileSpec, guest: bool = False
) -> int:
    """The count of a slot that has just failed, after its copy was ready for `ready_s`.

    `guest`: what ends an instance of offline work that was ready is its work, which is counted
    there and given up there; the next one is needed at once to find out what it was.
    """
    stable = ready_s > 0 if guest else ready_s >= spec.stable_s
    return 1 if former is None or stable else former.count + 1


def is_permanent(error: PenstockError) -> bool:
    """Trying again can't help: the request or the model is wrong, or its time is up."""
    permanent = error.family in _PERMANENT_FAMILIES or error.code in _PERMANENT_CODES
    return permanent and not is_death(error)


def is_death(error: PenstockError) -> bool:
    """A process that loads, reads or computes for a model died without a word.

    That is no verdict on the model: it is tried again, until the third death in a row.
    """
    return error.code in _DEATH_CODES


def is_final(failure: SlotFailure, spec: ReconcileSpec) -> bool:
    """Whether a creation, an update or a new count ends by it."""
    return failure.permanent or failure.count >= spec.attempts_max


def free_slots(
    wished: int,
    taken: Collection[int],
    failures: Mapping[int, SlotFailure],
    spec: ReconcileSpec,
    *,
    missing: int,
) -> Iterator[FreeSlot]:
    """At most `missing` of the slots below `wished` that are not `taken`, the lowest first.

    One by one: a count is a number that somebody wrote, and who asks stops when it has enough.
    """
    for ordinal in islice((at for at in range(wished) if at not in taken), max(missing, 0)):
        failure = failures.get(ordinal)
        if failure is None:
            yield FreeSlot(ordinal, failed=False, due=None)
        else:
            due = failure.at + spec.backoff.pause_s(failure.count)
            yield FreeSlot(ordinal, failed=True, due=due, refused=failure.refused)


def earliest(*deadlines: float | None) -> float | None:
    """The nearest of some deadlines, of which any may be missing."""
    return min((at for at in deadlines if at is not None), default=None)
