"""The guilty items of a batch are found by halving, each by itself, and no other is refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.blame.bisection import Action, Bisection, Refuse, RunPart, cut


def played(count: int, guilty: set[int]) -> list[Action]:
    """All actions, where a part fails that holds a guilty record."""
    halves = Bisection(range(count))
    found: list[Action] = []
    actions = halves.begin()
    while actions:
        found += actions
        halves.check_invariants()
        parts = [action for action in actions if isinstance(action, RunPart)]
        assert len(parts) <= 1
        if not parts:
            break
        actions = halves.failed() if guilty & set(parts[0].items) else halves.passed()
    return found


def test_one_of_eight_is_found_in_the_order_of_halves() -> None:
    actions = played(8, {5})
    assert actions == [
        RunPart((0, 1, 2, 3), "half-of-failed"),
        # it passed: so the other half fails, and is not run whole again
        RunPart((4, 5), "half-of-failed"),
        # that failed: nothing is known of 6 and 7 yet
        RunPart((4,), "alone"),
        RunPart((5,), "alone"),
        Refuse(5, "failed-alone"),
        RunPart((6, 7), "rest-of-failed"),
    ]


def test_of_an_odd_number_the_first_half_is_the_larger_one() -> None:
    actions = played(3, {0})
    assert actions == [
        RunPart((0, 1), "half-of-failed"),
        RunPart((0,), "alone"),
        Refuse(0, "failed-alone"),
        RunPart((1,), "alone"),
        RunPart((2,), "alone"),
    ]


def test_suspects_are_cut_into_groups_of_like_size_as_many_as_there_may_be() -> None:
    assert cut("abcdef", 3) == (("a", "b"), ("c", "d"), ("e", "f"))
    assert cut("abcde", 3) == (("a", "b"), ("c", "d"), ("e",))
    assert cut("abcd", 3) == (("a", "b"), ("c", "d"))
    assert cut("ab", 3) == (("a",), ("b",))
    assert cut("", 3) == ()


def test_a_record_that_failed_alone_is_refused_without_another_run() -> None:
    assert played(1, {0}) == [Refuse(0, "failed-alone")]


def test_records_that_fail_only_together_are_answered_apart() -> None:
    halves = Bisection(range(4))
    runs = []
    actions = halves.begin()
    while actions:
        (part,) = actions
        assert isinstance(part, RunPart)
        runs.append(part.items)
        actions = halves.passed()  # no half fails
    assert sorted(item for items in runs for item in items) == [0, 1, 2, 3]


@pytest.mark.parametrize("count", [2, 64, 100, 128, 4096])
def test_a_single_guilty_item_costs_two_runs_for_each_halving_at_most(count: int) -> None:
    for guilty in {0, 1, count // 2, count - 1}:
        actions = played(count, {guilty})
        assert [each for each in actions if isinstance(each, Refuse)] == [
            Refuse(guilty, "failed-alone")
        ]
        runs = len(actions) - 1
        assert runs <= 2 * math.ceil(math.log2(count)) + 1


@given(
    count=st.integers(1, 70),
    guilty=st.sets(st.integers(0, 69)),
)
def test_the_guilty_are_refused_and_all_others_have_passed(count: int, guilty: set[int]) -> None:
    guilty = {each for each in guilty if each < count} or {0}
    actions = played(count, guilty)
    refused = [each.item for each in actions if isinstance(each, Refuse)]
    assert sorted(refused) == sorted(guilty)
    passed = [
        item
        for each in actions
        if isinstance(each, RunPart) and not guilty & set(each.items)
        for item in each.items
    ]
    assert sorted(passed) == sorted(set(range(count)) - guilty)  # each once
    alone = [
        each.items[0] for each in actions if isinstance(each, RunPart) and len(each.items) == 1
    ]
    for item in refused:
        assert alone.count(item) == int(count > 1)
