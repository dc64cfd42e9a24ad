"""Priority and timeout that a caller names."""

from __future__ import annotations

import pytest

from penstock.core.batching.caller_settings import (
    deadline_of,
    level_of,
    policy_of,
    queue_wait_of,
)
from penstock.core.batching.spec import BatchSpec, LevelPolicy


@pytest.mark.parametrize(("asked", "level"), [(0, 7), (1, 0), (2, 1), (3, 2), (4, 7)])
def test_the_first_priority_is_the_first_level_and_one_beyond_the_last_is_none(
    asked: int, level: int
) -> None:
    assert level_of(asked, otherwise=7, levels=3) == level


BOUNDED = LevelPolicy(wait_s_max=5.0, timeout_override=True)


@pytest.mark.parametrize(
    ("timeout_s", "policy", "wait_s"),
    [
        (0.0, BOUNDED, None),  # none is named
        (2.0, BOUNDED, 2.0),
        (5.0, BOUNDED, None),  # it makes the bound no longer
        (6.0, BOUNDED, None),
        (2.0, LevelPolicy(wait_s_max=5.0), None),  # the policy does not allow it
        (2.0, LevelPolicy(timeout_override=True), None),  # the queue has no bound
        (2.0, LevelPolicy(wait_s_max=5.0, timeout_override=True, delays=True), 2.0),
    ],
)
def test_a_timeout_shortens_the_wait_where_the_policy_allows_it(
    timeout_s: float, policy: LevelPolicy, wait_s: float | None
) -> None:
    assert queue_wait_of(timeout_s, policy) == wait_s


@pytest.mark.parametrize(("deadline", "until"), [(None, 12.0), (11.0, 11.0), (13.0, 12.0)])
def test_the_requests_own_deadline_stays(deadline: float | None, until: float) -> None:
    assert deadline_of(deadline, 2.0, now=10.0) == until


def test_each_level_has_its_policy_and_without_policies_the_queue_has_one() -> None:
    first, last = LevelPolicy(rows_max=1), LevelPolicy(rows_max=2)
    spec = BatchSpec(priorities=2, levels=(first, last))
    assert [policy_of(spec, level) for level in (0, 1, 7)] == [first, last, last]
    plain = BatchSpec(queue_wait_s_max=5.0, timeout_override=True)
    assert policy_of(plain, 3) == BOUNDED
