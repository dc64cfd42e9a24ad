"""Calls between models of one artifact: which would wait for itself, and what a return means."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.blame.poison_requests import FRESH
from penstock.core.request.nested_calls import NestedCalls, Ruling, when_returned

ITSELF = Ruling(False, "calls-itself", 0)
EXHAUSTED = Ruling(False, "lanes-exhausted", 0)


def may(call: int) -> Ruling:
    return Ruling(True, "may-call", call)


def test_a_model_may_call_another_as_often_as_it_likes() -> None:
    calls = NestedCalls({"encoder": 1})
    assert calls.begin(("writer",), 0, "encoder") == may(1)
    assert calls.begin(("writer",), 0, "encoder") == may(2)
    assert calls.begin(("writer",), 1, "encoder") == may(3)
    assert calls.snapshot() == {"writer": {"encoder": 3}}
    for call in (2, 1, 3):
        calls.end(call)
    assert calls.snapshot() == {}


def test_a_call_to_a_model_that_it_came_through_is_refused_however_many_lanes_are_free() -> None:
    calls = NestedCalls({"a": 9, "b": 9})
    assert calls.begin(("a",), 0, "a") == ITSELF
    assert calls.begin(("a",), 0, "b") == may(1)
    assert calls.begin(("a", "b"), 0, "a", [1]) == ITSELF
    assert calls.snapshot() == {"a": {"b": 1}}


def test_the_call_that_closes_a_circle_of_full_models_is_refused_and_leaves_no_trace() -> None:
    """One request goes a -> b, another b -> a, and each holds the only lane of its model."""
    calls = NestedCalls({"a": 1, "b": 1})
    assert calls.begin(("x",), 0, "a") == may(1)
    assert calls.begin(("x",), 1, "b") == may(2)
    assert calls.begin(("x", "a"), 0, "b", [1]) == may(3), "b may yet answer its first call"
    assert calls.begin(("x", "b"), 0, "a", [2]) == EXHAUSTED
    assert calls.snapshot() == {"x": {"a": 1, "b": 1}, "a": {"b": 1}}
    calls.end(3)
    assert calls.begin(("x", "b"), 0, "a", [2]) == may(5)


def test_a_free_lane_lets_a_circle_of_models_move_until_it_waits_as_well() -> None:
    calls = NestedCalls({"a": 1, "b": 2})
    assert calls.begin(("x", "a"), 0, "b") == may(1)
    assert calls.begin(("x", "b"), 0, "a") == may(2), "b's other lane serves the first call"
    assert calls.begin(("x", "b"), 1, "a") == EXHAUSTED


def test_a_call_that_is_computed_waits_for_its_own_lane_and_no_free_one_helps() -> None:
    """c waits for the lane of a that computes its call, which waits for b: that a has another lane
    is nothing to c."""
    calls = NestedCalls({"a": 2, "b": 1, "c": 1})
    assert calls.begin(("c",), 0, "a") == may(1)
    assert calls.begin(("b",), 0, "c") == may(2), "in c's queue"
    assert calls.begin(("c", "a"), 1, "b", [1]) == EXHAUSTED


def test_a_lane_that_waits_for_several_goes_on_only_when_all_of_them_end() -> None:
    calls = NestedCalls({"a": 1, "b": 1, "free": 1})
    assert calls.begin(("x", "a"), 0, "free") == may(1)
    assert calls.begin(("x", "a"), 0, "b") == may(2)
    assert calls.begin(("x", "b"), 0, "a") == EXHAUSTED


def test_full_models_in_a_row_move_from_the_end() -> None:
    calls = NestedCalls({"a": 1, "b": 1, "c": 1})
    assert calls.begin(("x", "b"), 0, "c") == may(1)
    assert calls.begin(("x", "a"), 0, "b") == may(2)
    assert calls.begin(("x",), 0, "a") == may(3)
    assert calls.begin(("y",), 0, "c") == may(4)


MODELS = ("a", "b", "c")


class Travels:
    """Requests that go through the models at random, each to one that it has not come through, and
    wait there for a lane."""

    def __init__(self, chance: random.Random, lanes: tuple[int, ...]) -> None:
        self.chance = chance
        self.free = {m: set(range(count)) for m, count in zip(MODELS, lanes, strict=True)}
        self.calls = NestedCalls(dict(zip(MODELS, lanes, strict=True)))
        #: of each request: the lanes that it holds, innermost last
        self.held: dict[int, list[tuple[str, int]]] = {n: [("entry", n)] for n in range(6)}
        self.made: dict[int, list[int]] = {number: [] for number in self.held}  #: its calls
        self.waits: dict[int, str] = {}
        self.left = dict.fromkeys(self.held, 6)  #: calls that each will yet make

    def step(self) -> None:
        able = [n for n in self.held if n not in self.waits or self.free[self.waits[n]]]
        assert able, f"all wait for one another: {self.held} {self.waits}"
        number = self.chance.choice(able)
        if number in self.waits:
            model = self.waits.pop(number)
            self.held[number].append((model, self.free[model].pop()))
        elif self.left[number] and self.chance.random() < 0.6:
            self.left[number] -= 1
            self.call(number, self.chance.choice(MODELS))
        else:
            self.answer(number)
        self.calls.check_invariants()

    def call(self, number: int, target: str) -> None:
        path = tuple(model for model, _ in self.held[number])
        works_for = self.made[number][-1:]
        ruling = self.calls.begin(path, self.held[number][-1][1], target, works_for)
        if ruling.allowed:
            self.made[number].append(ruling.call)
            self.waits[number] = target

    def answer(self, number: int) -> None:
        model, lane = self.held[number].pop()
        if self.held[number]:
            self.free[model].add(lane)
            self.calls.end(self.made[number].pop())
        else:
            del self.held[number]


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32), lanes=st.tuples(*[st.integers(1, 2)] * 3))
def test_whatever_was_allowed_ends_and_nobody_waits_for_ever(
    seed: int, lanes: tuple[int, ...]
) -> None:
    travels = Travels(random.Random(seed), lanes)
    while travels.held:
        travels.step()
    assert travels.calls.snapshot() == {}


def steps(*reasons: str) -> list[tuple[str, bool]]:
    """What becomes of a call that is given back for these, one after the other; whether alone."""
    past, told = FRESH, []
    for reason in reasons:
        step = when_returned(past, reason)
        past = step.past
        told.append((step.do, past.alone))
    return told


@pytest.mark.parametrize("reason", ["worker-lost", "copy-lost", "another-is-tried-alone"])
def test_what_had_not_begun_is_asked_again_as_it_was(reason: str) -> None:
    assert steps(*[reason] * 9) == [("again", False)] * 9


def test_a_call_that_ended_a_worker_is_made_again_alone_and_fails_the_second_time() -> None:
    assert steps("worker-died", "copy-lost", "worker-died") == [
        ("again", True), ("again", True), ("fail", True),
    ]  # fmt: skip
    assert steps("worker-died-in-company", "worker-died") == [("again", True), ("fail", True)]


@pytest.mark.parametrize("reason", ["copy-failed", "copy-closed", "draining"])
def test_a_model_that_is_gone_for_good_is_not_asked_again(reason: str) -> None:
    assert steps(reason) == [("gone", False)]
