"""What happens to a request at the region that it was sent to: answered, tried elsewhere, or over.

An answer whose length is known and small is collected until it is complete: a region that fails in
the middle of it then costs the client nothing. If a region refuses, or is lost before the client
has seen anything, the request gets another attempt, if it may be computed twice. Every inference
may.

A driver asks at four moments and carries out the result:

1. `mode_of`: the head of an answer is here.
2. `verdict`: an answer is complete. `when_turned_down`: it was a refusal.
3. `when_lost`: there will be no answer, or no more of it.
4. `again_after_s`: every region that serves was tried before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.backoff import Backoff

#: How to handle an answer that comes.
WHOLE: Final = "whole"
PIECES: Final = "pieces"
REFUSAL: Final = "refusal"  #: it is kept, as another region may do better

#: Reason of a loss: the region itself reports that it broke an answer off, as its copy is gone.
BROKEN_OFF: Final = "stream-broken"

#: Largest answer that is collected; two of the largest tensors that fit into a frame of HTTP/2.
WHOLE_BYTES_MAX: Final = 1 << 20
#: More than the number of regions that could fail in turn, and than tries at one that restarts.
ATTEMPTS_MAX: Final = 16
#: Pauses before the same region is tried again. Tries at other regions count as well.
AGAIN: Final = Backoff(0.1, 0.5)

#: The region is healthy, and can't take the request now: another may.
_NOT_NOW: Final = (429, 503)
#: The region refuses the orchestrator's credentials.
_NOT_LET_IN: Final = (401, 403)
#: Failures that are not the request's fault; a failed model has other statuses.
_FAULTS: Final = (500, 502, 504)


class RegionStep(NamedTuple):
    """What the driver does now."""

    do: str  #: route | resume | fail
    reason: str  #: spilled | region-refused | why an exchange was lost
    #: for `TrafficRouter.release`: False = failed by the region's fault, None = says nothing about
    #: it
    ok: bool | None


def mode_of(status: int, length: int | None, *, begun: bool, repeatable: bool) -> str:
    """How an answer is passed on.

    Args:
        length: length of its body; None where the region did not give it.
        begun: the client has a part of an answer: this one is to a request for the rest.
        repeatable: the request may be computed twice.
    """
    if begun:
        return REFUSAL if status >= 300 else PIECES
    if status in _NOT_LET_IN or (status in _NOT_NOW and repeatable):
        return REFUSAL
    return WHOLE if length is not None and length <= WHOLE_BYTES_MAX else PIECES


def verdict(status: int, *, may_retry: bool, model_errors_are_500: bool) -> bool | None:
    """What a complete answer says about its region: healthy, failed, or nothing (None).

    Args:
        may_retry: False: the region itself says that nobody should retry.
        model_errors_are_500: the protocol has no other status for a model that failed.
    """
    if status not in _FAULTS:
        return True
    if not may_retry or (status == 500 and model_errors_are_500):
        return None
    return False


def when_turned_down(status: int, *, begun: bool) -> RegionStep:
    """A region can't take it now, or refuses the orchestrator. If it refuses the rest of an answer
    for a reason of the request's own, every region would refuse."""
    if status in _NOT_LET_IN:
        return RegionStep("route", "region-refused", ok=False)
    do = "fail" if begun and status not in _NOT_NOW else "route"
    return RegionStep(do, "spilled", ok=None)


def when_lost(reason: str, *, begun: bool, repeatable: bool) -> RegionStep:
    """`reason`: why its exchange ended. If the connection was lost the region may have received the
    request; if it was never reached, it has not."""
    if begun:
        return RegionStep("resume", reason, ok=None if reason == BROKEN_OFF else False)
    taken = reason == "connection-lost" and not repeatable
    return RegionStep("fail" if taken else "route", reason, ok=False)


def again_after_s(attempts: int, *, kept: bool) -> float | None:
    """All regions that serve have failed or refused it: s until they are tried again. None: it was
    tried often enough, or a refusal is `kept` that the client can get."""
    if kept or attempts >= ATTEMPTS_MAX:
        return None
    return AGAIN.pause_s(attempts + 1)
