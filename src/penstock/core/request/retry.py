"""What becomes of an accepted request that its copy gave back unanswered.

`blame/poison_requests.py` says whether the request ends its workers itself, and is then not sent to
another one. What was given back without having begun (the copy drains, restarts, is not there) is
counted by nobody: held between two tries, it costs time, which its deadline bounds. What its copy
was asked for, because another one has less to do (`routing/rebalance.py`), was no try at all.

A driver asks at three moments and carries out the step it is told; times and counts are arguments:

1. `when_returned`: the copy gave it back. It is routed again, fails, or is given up.
2. `when_picked`: the router has answered. It is sent, held, failed, or routed to any variant.
3. `when_held`: no copy can take it now. It is held, or given up because too many are.

Held requests are picked for again whenever something changed for the better, and at the latest
`RETRY_S` after the last time, so that lost news costs no deadline. A copy that gave a request back
may have it again then, but not at once: it would come back at once, before anything has been
restarted. What comes when no copy is there at all was never given back: `holding.py` says whether
it is held too.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.blame.death_limits import REQUEST_LOSSES_MAX
from penstock.core.blame.poison_requests import Past
from penstock.core.routing.copies import NoRoute, Routed

#: Reason of a return: it waited in the queue of a copy that was asked for it.
REBALANCED: Final = "rebalanced"

#: Held requests; each has a body in memory.
HELD_MAX: Final = 8192
#: A worker takes about a second to start: some twenty looks at most, each over in a millisecond.
RETRY_S: Final = 0.05


class RetryStep(NamedTuple):
    """What the driver does now."""

    do: str  #: route | send | hold | route-any-copy | route-any-variant | give-up | fail
    reason: str
    releases: bool = False  #: the slot that the router has just reserved is not used


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
    """`past` with this return. Part of an answer that was `streamed` can't be taken back."""
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
    """`failures` are the copies that gave it back; `pinned`: its caller named the variant; `moves`:
    it was picked for without the copy whose queue it left, which is as well as any.

    After `route-any-variant` the driver picks without a variant and asks again, `pinned` or not;
    after `route-any-copy` with all copies.
    """
    if isinstance(answer, NoRoute):
        if moves and answer.reason == "all-copies-full":
            return _ANY_COPY
        if answer.reason in ("session-lost", "session-unknown"):
            return _FAIL_SESSION  # its state is lost: no other copy can answer
        if answer.reason != "unknown-variant":
            # What its endpoint no longer takes (a component that left, say) no waiting brings back.
            return _HOLD if answer.retry_after_s is not None else _FAIL_FOR_GOOD
        # Its variant left with an update; those that took over may answer what was not pinned.
        return _FAIL_VARIANT if pinned else _ANY_VARIANT
    if answer.state.copy in failures and not was_held:
        return _HOLD_SAME_COPY
    return _SEND


def when_held(*, held: int) -> RetryStep:
    """`held` requests of this gateway are held already."""
    return _GIVE_UP_HELD if held >= HELD_MAX else _HOLD


def next_retry(*, now: float) -> float:
    """When held requests are picked for again without news, in s."""
    return now + RETRY_S
