"""What becomes of a request at the region that it was sent to: answered, tried elsewhere, or over.

An answer whose length is known and small is gathered until it is whole: a region that breaks in
the middle of it costs the client nothing then. A region that refuses, or is lost before the client
has seen anything, costs the request another attempt, if it may be computed twice. Every inference
may.

A driver asks at four moments and carries out what it is told:

1. `mode_of`: the head of an answer is here.
2. `verdict`: an answer is complete. `when_turned_down`: it was a refusal.
3. `when_lost`: there will be no answer, or no more of it.
4. `again_after_s`: every region that serves was asked before.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.backoff import Backoff

#: What becomes of the answer that comes.
WHOLE: Final = "whole"
PIECES: Final = "pieces"
REFUSAL: Final = "refusal"  #: it is kept: another region may do better

#: Of an answer that is gathered; two of the largest tensors that fit into a frame of HTTP/2.
WHOLE_BYTES_MAX: Final = 1 << 20
#: More than regions that could fail one after the other, and than tries at one that restarts.
ATTEMPTS_MAX: Final = 16
#: Before the same region is tried again. The tries at others count as well.
AGAIN: Final = Backoff(0.1, 0.5)

#: The region is well, and can't take it now: another may.
_NOT_NOW: Final = (429, 503)
#: The region does not let the orchestrator in.
_NOT_LET_IN: Final = (401, 403)
#: By no fault of the request; a model that failed is told so by other words.
_FAULTS: Final = (500, 502, 504)


class RegionStep(NamedTuple):
    """What the driver does now."""

    do: str  #: route | resume | fail
    reason: str  #: spilled | region-refused | why an exchange was lost
    #: of the region, for `TrafficRouter.release`: False = by its fault, None = nothing is said
    ok: bool | None


def mode_of(status: int, length: int | None, *, begun: bool, repeatable: bool) -> str:
    """How an answer is passed on, if it is.

    Args:
        length: of its body, where the region told it.
        begun: the client has a part of an answer: this one is to a request for the rest.
        repeatable: it may be computed twice.
    """
    if begun:
        return REFUSAL if status >= 300 else PIECES
    if status in _NOT_LET_IN or (status in _NOT_NOW and repeatable):
        return REFUSAL
    return WHOLE if length is not None and length <= WHOLE_BYTES_MAX else PIECES


def verdict(status: int, *, may_retry: bool, model_errors_are_500: bool) -> bool | None:
    """What a complete answer says of its region: that it is well, that it is not, or nothing.

    Args:
        may_retry: False: the region itself says that nobody should.
        model_errors_are_500: the protocol has no other status for a model that failed.
    """
    if status not in _FAULTS:
        return True
    if not may_retry or (status == 500 and model_errors_are_500):
        return None
    return False


def when_turned_down(status: int, *, begun: bool) -> RegionStep:
    """A region can't take it, or lets nobody in. What refuses the rest of an answer for a reason
    of the request's own would be refused everywhere."""
    if status in _NOT_LET_IN:
        return RegionStep("route", "region-refused", ok=False)
    do = "fail" if begun and status not in _NOT_NOW else "route"
    return RegionStep(do, "spilled", ok=None)


def when_lost(reason: str, *, begun: bool, repeatable: bool) -> RegionStep:
    """`reason`: why its exchange ended. Where the connection is lost the region may have taken it;
    one that was never reached has not."""
    if begun:
        return RegionStep("resume", reason, ok=False)
    taken = reason == "connection-lost" and not repeatable
    return RegionStep("fail" if taken else "route", reason, ok=False)


def again_after_s(attempts: int, *, kept: bool) -> float | None:
    """All regions that serve have failed or refused it: s until they are asked again. None: it was
    tried often enough, or a refusal is `kept` that its client can be told."""
    if kept or attempts >= ATTEMPTS_MAX:
        return None
    return AGAIN.pause_s(attempts + 1)
