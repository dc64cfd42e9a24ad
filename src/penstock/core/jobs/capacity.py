"""What a job may hope for from its capacity: whether its copies come, must wait, or never will.

Instances are kept up and tried again by reconciliation, which never gives a deployment up. A job
does, where trying again can't help: a model that can't be loaded, or one that is larger than the
machine. Room that others hold may be given back, so it is waited for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from penstock.core.deployment.endpoint_state import SlotFailure

FINE: Final = "fine"  #: copies answer, or are on their way
SHORT: Final = "short"  #: no copy, for lack of room that others hold
HOPELESS: Final = "hopeless"

#: Reasons of refusals for room (`core/machine/room.py`), by whether others hold it.
_TAKEN: Final = ("memory-taken", "memory-short", "memory-outgrown", "accelerators-taken")
#: Of one slot in a row, when a copy answered before: then it is not the model.
_FAILURES_MAX: Final = 10
#: Signs of a machine whose cores others want: a guest gets what is left, and that may be nothing;
#: who needs them may stop it, too.
_STARVED: Final = (
    "start-timeout", "instance-start-still", "instance-stood-still", "connection-lost",
    "instance-gone", "instance-silent", "instance-unreachable",
)  # fmt: skip
#: A model that loads for too long on the clock may have had no core: it gets its attempts.
_SLOW: Final = ("startup-timeout", "load-timeout")


@dataclass(frozen=True, slots=True)
class CapacityVerdict:
    outcome: str  #: fine | short | hopeless
    message: str = ""  #: of the failure that says so


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
        copies: that answer.
        coming: instances on their way to a copy that answers.
        answered: a copy did, since the job was taken up.
        attempts_max: failures in a row of one slot, before any copy has answered: some fifteen
            seconds of pauses, in which who kills at random may stop.
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
    """Why a job that has begun computes nothing now; empty: it does.

    Args:
        outcome: of `decide`.
        again: its run has failed and is taken up again in a moment.
        listed: its objects are known.
        asked: for instances. It is not, or no more, where no span is left.
        copies: that answer.
        starting: instances that have no connection yet.
        loading: instances that bring and load the model.

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
