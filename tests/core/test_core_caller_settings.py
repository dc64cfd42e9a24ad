"""Priority and timeout that a caller names."""

from __future__ import annotations

import pytest

from penstock.core.batching.caller_settings import deadline_of, level_of


@pytest.mark.parametrize(("asked", "level"), [(0, 7), (1, 0), (2, 1), (3, 2), (4, 7)])
def test_the_first_priority_is_the_first_level_and_one_beyond_the_last_is_none(
    asked: int, level: int
) -> None:
    assert level_of(asked, otherwise=7, levels=3) == level


@pytest.mark.parametrize(
    ("deadline", "timeout_s", "bound_s", "until"),
    [
        (None, 0.0, 5.0, None),  # none is named
        (None, 2.0, None, None),  # the model's queue has no bound
        (None, 2.0, 5.0, 12.0),
        (None, 6.0, 5.0, None),  # it makes the bound no longer
        (11.0, 2.0, 5.0, 11.0),  # the request's own deadline is nearer
        (13.0, 2.0, 5.0, 12.0),
    ],
)
def test_a_timeout_shortens_the_wait_of_a_bounded_queue(
    deadline: float | None, timeout_s: float, bound_s: float | None, until: float | None
) -> None:
    assert deadline_of(deadline, timeout_s, queue_wait_s_max=bound_s, now=10.0) == until
