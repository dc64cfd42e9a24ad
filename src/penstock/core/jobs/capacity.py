"""What a job can expect of its capacity: its copies come, it must wait, or it never gets any.

Reconciliation starts instances again and again, and never gives a deployment up. A job does, where
a retry can't help: a model can't be loaded, or is larger than the machine. Room that others hold
may be given back, so the job waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.core.deployment.endpoint_state import SlotFailure

FINE: Final = "fine"  #: copies answer, or are starting
SHORT: Final = "short"  #: no copy, for lack of room that others hold
HOPELESS: Final = "hopeless"

#: Reasons of refusals (`core/machine/room.py`) where others hold the room.
_TAKEN: Final = ("memory-taken", "memory-short", "memory-outgrown", "accelerators-taken")
#: Failures in a row of one slot, if a copy has answered before: so the model is not the cause.
_FAILURES_MAX: Final = 10
#: Signs that others use the machine's cores: a guest gets what is left, which may be nothing, and
#: may be stopped.
_STARVED: Final = (
    "start-timeout", "instance-start-still", "instance-stood-still", "connection-lost",
    "instance-gone", "instance-silent", "instance-unreachable",
)  # fmt: skip
#: A model that loads for too long by the clock may have had no core: it gets its attempts.
_SLOW: Final = ("startup-timeout", "load-timeout")


@dataclass(frozen=True, slots=True)
class CapacityVerdict:
    outcome: str  #: fine | short | hopeless
    message: str = ""  #: message of the failure that decided


def decide(
    failures: Iterable[SlotFailure],
    *,
    copies: int,
    coming: int,
    answered: bool,
    attempts_max: int = 6,
) -> CapacityVerdict:
    """
    Args:
        copies: number of copies that answer.
        coming: number of instances that are still to have an answering copy.
        answered: a copy has answered since the job was taken up.
        attempts_max: failures in a row of one slot, before any copy has answered. Their pauses last
            some fifteen seconds, in which a random cause may pass.
    """
    if copies:
        return CapacityVerdict(FINE)
    ordered = sorted(failures, key=lambda one: one.ordinal)
    count_max = _FAILURES_MAX if answered else attempts_max
    for one in ordered:
        if one.reason in (*_TAKEN, *_STARVED):
            continue
        if (one.permanent and one.reason not in _SLOW) or one.count >= count_max:
            return CapacityVerdict(HOPELESS, one.message)
    if coming:
        return CapacityVerdict(FINE)
    taken = [one for one in ordered if one.reason in _TAKEN]
    return CapacityVerdict(SHORT, taken[0].message) if taken else CapacityVerdict(FINE)


def waits(
    outcome: str,
    *,
    again: bool,
    listed: bool,
    asked: bool,
    copies: int,
    starting: int,
    loading: int,
) -> str:
    """Why a running job computes nothing now; empty: it does.

    Args:
        outcome: the outcome of `decide`.
        again: its run has failed and is taken up again in a moment.
        listed: its objects are known.
        asked: it has requested instances. It has not, or no longer, where no span is left.
        copies: number of copies that answer.
        starting: instances without a connection yet.
        loading: instances that download and load the model.

    Returns one of taken-up-again | input-listing | outputs-assembling | room | instance-starting |
    model-loading | instance-starts-again.
    """
    if again:
        return "taken-up-again"
    if not listed:
        return "input-listing"
    if not asked:
        return "outputs-assembling"
    if copies:
        return ""
    if outcome == SHORT:
        return "room"
    if loading:
        return "model-loading"
    return "instance-starting" if starting else "instance-starts-again"
