"""What happens to an accepted request that its copy gave back unanswered.

`blame/poison_requests.py` says whether the request itself ends workers; such a request is sent to
no further one. A return of a request that had not begun (the copy drains, restarts, is not there)
is not counted: it only costs time, which the request's deadline bounds. A return that was requested
because another copy has less to do (`routing/rebalance.py`) is no attempt at all.

A driver asks at three moments and carries out the returned step; times and counts are arguments:

1. `when_returned`: the copy gave it back. It is routed again, fails, or is given up.
2. `when_picked`: the router has answered. It is sent, held, failed, or routed to any variant.
3. `when_held`: no copy can take it now. It is held, or given up because too many are.

Held requests are routed again whenever something changed for the better, and at the latest
`RETRY_S` after the last time, so that a lost event costs no deadline. A copy that gave a request
back may get it again then, but not at once: it would give it back again before the restart is done.
A request that comes when no copy is there was never given back: `holding.py` decides whether it is
held.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.blame.death_limits import REQUEST_LOSSES_MAX
from penstock.core.blame.poison_requests import Past
from penstock.core.routing.copies import NoRoute, Routed

#: Reason of a return: it waited in the queue of a copy that was asked to give back requests.
REBALANCED: Final = "rebalanced"

#: Held requests per gateway; each has a body in memory.
HELD_MAX: Final = 8192
#: s. A worker takes about a second to start: some twenty tries at most, each over in a millisecond.
RETRY_S: Final = 0.05


class RetryStep(NamedTuple):
    """What the driver does now."""

    do: str  #: route | send | hold | route-any-copy | route-any-variant | give-up | fail
    reason: str
    releases: bool = False  #: give back the slot that the router has just reserved


_ROUTE = RetryStep("route", "returned")
_FAIL_DEATHS = RetryStep("fail", "worker-died-twice")
_GIVE_UP_LOSSES = RetryStep("give-up", "instances-lost")
_FAIL_STREAM = RetryStep("fail", "stream-broken")
_SEND = RetryStep("send", "copy-found")
_HOLD_SAME_COPY = RetryStep("hold", "only-the-copy-that-returned-it", releases=True)
_HOLD = RetryStep("hold", "no-copy-now")
_ANY_COPY = RetryStep("route-any-copy", "others-are-full")
_ANY_VARIANT = RetryStep("route-any-variant", "variant-gone")
_FAIL_VARIANT = RetryStep("fail", "variant-gone")
_FAIL_SESSION = RetryStep("fail", "session-gone")
_FAIL_FOR_GOOD = RetryStep("fail", "cannot-pass-later")
_GIVE_UP_HELD = RetryStep("give-up", "too-many-held")


def when_returned(past: Past, *, streamed: bool = False) -> RetryStep:
    """`past` includes this return. An answer that was `streamed` in part can't be taken back."""
    if streamed:
        return _FAIL_STREAM
    if past.blamed:
        return _FAIL_DEATHS
    return _GIVE_UP_LOSSES if past.losses >= REQUEST_LOSSES_MAX else _ROUTE


def when_picked(
    answer: Routed | NoRoute,
    *,
    failures: tuple[int, ...],
    was_held: bool,
    pinned: bool = False,
    moves: bool = False,
) -> RetryStep:
    """`failures`: the copies that gave it back; `pinned`: its caller named the variant; `moves`: it
    was picked without the copy whose queue it left, although that copy could take it too.

    After `route-any-variant` the driver picks without a variant and asks again, `pinned` or not;
    after `route-any-copy` with all copies.
    """
    if isinstance(answer, NoRoute):
        if moves and answer.reason == "all-copies-full":
            return _ANY_COPY
        if answer.reason in ("session-lost", "session-unknown"):
            return _FAIL_SESSION  # the session's state is lost: no other copy can answer
        if answer.reason != "unknown-variant":
            # The endpoint no longer takes it (its component left, say): waiting would not help.
            return _HOLD if answer.retry_after_s is not None else _FAIL_FOR_GOOD
        # Its variant left with an update; the new variants may answer what was not pinned.
        return _FAIL_VARIANT if pinned else _ANY_VARIANT
    if answer.state.copy in failures and not was_held:
        return _HOLD_SAME_COPY
    return _SEND


def when_held(*, held: int) -> RetryStep:
    """`held`: requests that this gateway holds already."""
    return _GIVE_UP_HELD if held >= HELD_MAX else _HOLD


def next_retry(*, now: float) -> float:
    """When held requests are routed again without any event, in s."""
    return now + RETRY_S
