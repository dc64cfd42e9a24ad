"""What becomes of an accepted request that its copy gave back unanswered.

A driver asks at three moments and carries out the step it is told; times and counts are arguments:

1. `when_returned`: the copy gave it back. It is routed again, or given up.
2. `when_picked`: the router has answered. It is sent, held, failed, or routed to any variant.
3. `when_held`: no copy can take it now. It is held, or given up because too many are.

Held requests are picked for again whenever something changed for the better, and at the latest
`RETRY_S` after the last time, so that lost news costs no deadline. A copy that gave a request back
may have it again then, but not at once: it would come back at once, and use up the attempts before
anything has been restarted. Only accepted requests are held: new ones are refused, because their
clients can go elsewhere.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.core.routing.copies import NoRoute, Routed

#: A request that takes down each worker it meets must not take down all of them.
ATTEMPTS_MAX: Final = 4
#: Held requests; each has a body in memory.
HELD_MAX: Final = 8192
#: A worker takes about a second to start: some twenty looks at most, each over in a millisecond.
RETRY_S: Final = 0.05


class Step(NamedTuple):
    """What the driver does now."""

    do: str  #: route | send | hold | route-any-variant | give-up | fail
    reason: str
    releases: bool = False  #: the slot that the router has just reserved is not used


_ROUTE = Step("route", "returned")
_GIVE_UP_ATTEMPTS = Step("give-up", "attempts-used-up")
_FAIL_STREAM = Step("fail", "stream-broken")
_SEND = Step("send", "copy-found")
_HOLD_SAME_COPY = Step("hold", "only-the-copy-that-returned-it", releases=True)
_HOLD = Step("hold", "no-copy-now")
_ANY_VARIANT = Step("route-any-variant", "variant-gone")
_FAIL_VARIANT = Step("fail", "variant-gone")
_FAIL_SESSION = Step("fail", "session-gone")
_GIVE_UP_HELD = Step("give-up", "too-many-held")


def when_returned(*, attempts: int, streamed: bool = False) -> Step:
    """Sent `attempts` times so far. Part of an answer that was `streamed` can't be taken back."""
    if streamed:
        return _FAIL_STREAM
    return _GIVE_UP_ATTEMPTS if attempts >= ATTEMPTS_MAX else _ROUTE


def when_picked(
    answer: Routed | NoRoute, *, failures: tuple[int, ...], was_held: bool, pinned: bool = False
) -> Step:
    """`failures` are the copies that gave it back; `pinned`: its caller named the variant.

    After `route-any-variant` the driver picks without a variant and asks again, `pinned` or not.
    """
    if isinstance(answer, NoRoute):
        if answer.reason in ("session-lost", "session-unknown"):
            return _FAIL_SESSION  # its state is lost: no other copy can answer
        if answer.reason != "unknown-variant":
            return _HOLD
        # Its variant left with an update; those that took over may answer what was not pinned.
        return _FAIL_VARIANT if pinned else _ANY_VARIANT
    if answer.state.copy in failures and not was_held:
        return _HOLD_SAME_COPY
    return _SEND


def when_held(*, held: int) -> Step:
    """`held` requests of this gateway are held already."""
    return _GIVE_UP_HELD if held >= HELD_MAX else _HOLD


def next_retry(*, now: float) -> float:
    """When held requests are picked for again without news, in s."""
    return now + RETRY_S
