"""When a notification that could not be delivered is sent again, and when it is given up.

Twice as long each time from a second to twenty minutes, for a day: who receives them may be down
for a night. Delivery is at least once; a message keeps its id, by which it is known again.
"""

from __future__ import annotations

from typing import Final, NamedTuple

FIRST_S: Final = 1.0
MOST_S: Final = 1200.0
GIVE_UP_AFTER_S: Final = 86_400.0


class Retry(NamedTuple):
    """What becomes of one that was not delivered."""

    at: float | None  #: wall s; None: it is given up
    reason: str  #: not-delivered | given-up


def decide(*, made: float, tries: int, now: float) -> Retry:
    """
    Args:
        made: wall s of the outcome that it tells of.
        tries: those that came to nothing, with this one.
    """
    wait_s = min(FIRST_S * 2.0 ** min(tries - 1, 32), MOST_S)
    if now + wait_s > made + GIVE_UP_AFTER_S:
        return Retry(None, "given-up")
    return Retry(now + wait_s, "not-delivered")
