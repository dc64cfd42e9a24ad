"""How many request bodies of a job one instance is asked at once."""

from __future__ import annotations

#: Beyond that a body more only waits, and holds its memory meanwhile.
AT_ONCE_MAX = 1024


def bodies_at_once(
    asked: int, *, foreign: bool, lanes: int, rows_max: int, queue_rows_max: int
) -> int:
    """
    Args:
        asked: MaxConcurrentTransforms of the job, or what its container says; 0 = unset.
        foreign: a container of which no more is known: AWS's rule then is 1.
        lanes: requests, or batches of them, that the copy computes at once.
        rows_max: requests that it joins in one batch.
        queue_rows_max: requests that it lets wait, 1 at least.
    """
    # Ours never computes more at once than its lanes hold; as many again wait for the next turn.
    own = 1 if foreign else 2 * lanes * max(1, rows_max)
    return min(asked or own, queue_rows_max, AT_ONCE_MAX)
