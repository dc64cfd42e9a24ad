"""Answers in the order of their requests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.batching.response_order import ResponseOrder


def test_an_answer_waits_for_the_requests_before_it() -> None:
    order: ResponseOrder[str] = ResponseOrder()
    for request in (1, 2, 3):
        order.arrived(request)
    assert order.ended(2, "two") == []
    assert order.ended(1, "one") == ["one", "two"]
    order.arrived(4)
    assert order.ended(3, "three") == ["three"]
    assert order.ended(4, "four") == ["four"]


def test_a_request_without_an_answer_holds_back_nobody() -> None:
    order: ResponseOrder[str] = ResponseOrder()
    for request in (1, 2):
        order.arrived(request)
    assert order.ended(2, "two") == []
    assert order.ended(1, None) == ["two"]


@given(st.permutations(range(12)), st.sets(st.integers(0, 11)))
def test_whatever_ends_first_the_answers_leave_as_their_requests_came(
    ends: list[int], silent: set[int]
) -> None:
    order: ResponseOrder[int] = ResponseOrder()
    for request in range(12):
        order.arrived(request)
    left = [one for end in ends for one in order.ended(end, None if end in silent else end)]
    assert left == [one for one in range(12) if one not in silent]
