"""Who may hold how much of the memory for bodies, and who makes room."""

from __future__ import annotations

import pytest

from penstock.core.request.body_budget import SLOW_S, BodyBudget, UnfinishedBodies, peer_name


def test_what_does_not_fit_takes_nothing() -> None:
    budget = BodyBudget(10)
    assert budget.take(7)
    assert not budget.take(4)
    assert (budget.bytes_taken, budget.missing(3), budget.missing(4)) == (7, 0, 1)
    assert budget.take(3)
    budget.give(10)
    assert budget.bytes_taken == 0


def test_giving_back_more_than_was_taken_is_a_bug() -> None:
    budget = BodyBudget(10)
    budget.take(1)
    with pytest.raises(AssertionError):
        budget.give(2)


def test_the_peer_that_holds_most_is_cut_first_and_its_oldest_body_before_others() -> None:
    bodies: UnfinishedBodies[str] = UnfinishedBodies()
    bodies.grown("many-1", "many", 4, now=0.0)
    bodies.grown("one", "one", 5, now=0.1)
    bodies.grown("many-2", "many", 4, now=0.2)
    bodies.grown("many-3", "many", 1, now=0.3)
    assert bodies.making_room(3, "new", now=0.4) == ["many-1"]
    assert bodies.making_room(5, "new", now=0.4) == ["many-1", "many-2"]
    assert bodies.making_room(3, "one", now=0.4) == ["many-1"]


def test_nobody_is_cut_for_one_who_would_hold_as_much_himself() -> None:
    """Else two would cut each other for ever, and neither would end."""
    bodies: UnfinishedBodies[str] = UnfinishedBodies()
    bodies.grown("a", "a", 6, now=0.0)
    bodies.grown("b", "b", 4, now=0.0)
    assert bodies.making_room(1, "b", now=1.0) == ["a"]
    assert bodies.making_room(2, "b", now=1.0) == []
    assert bodies.making_room(6, "new", now=1.0) == []


def test_of_its_own_a_peer_loses_only_what_has_been_coming_for_long() -> None:
    bodies: UnfinishedBodies[str] = UnfinishedBodies()
    bodies.grown("slow", "a", 4, now=0.0)
    bodies.grown("quick", "a", 4, now=5.0)
    assert bodies.making_room(1, "a", now=SLOW_S - 0.1) == []
    assert bodies.making_room(1, "a", now=SLOW_S) == ["slow"]
    assert bodies.making_room(5, "a", now=SLOW_S) == []
    assert bodies.making_room(5, "a", now=5.0 + SLOW_S) == ["slow", "quick"]


def test_a_peer_holds_what_its_bodies_have_grown_to() -> None:
    bodies: UnfinishedBodies[str] = UnfinishedBodies()
    bodies.grown("x", "a", 4, now=0.0)
    bodies.grown("x", "a", 6, now=0.1)
    bodies.grown("y", "b", 7, now=0.2)
    assert bodies.making_room(1, "new", now=0.3) == ["y"]
    assert bodies.making_room(6, "new", now=0.3) == ["y"]
    assert bodies.making_room(7, "new", now=0.3) == []


def test_a_peer_no_longer_holds_the_body_that_has_ended() -> None:
    bodies: UnfinishedBodies[str] = UnfinishedBodies()
    bodies.grown("x", "a", 6, now=0.0)
    bodies.grown("x2", "a", 1, now=0.1)
    bodies.grown("y", "b", 5, now=0.2)
    bodies.ended("nobody", "a")
    assert bodies.making_room(1, "new", now=0.3) == ["x"]
    bodies.ended("x", "a")
    assert len(bodies) == 2
    assert bodies.making_room(1, "new", now=0.3) == ["y"]
    bodies.ended("nobody", "b")
    assert bodies.making_room(4, "new", now=0.3) == ["y"]


def test_of_a_peer_whose_last_body_has_ended_nothing_is_kept() -> None:
    """Addresses are many: who was here once must not stay in memory."""
    bodies: UnfinishedBodies[str] = UnfinishedBodies()
    bodies.grown("x", "a", 1, now=0.0)
    bodies.ended("x", "a")
    assert bodies._peers == {}


def test_a_body_that_grows_keeps_its_age_and_one_that_ended_counts_no_more() -> None:
    bodies: UnfinishedBodies[str] = UnfinishedBodies()
    bodies.grown("x", "a", 1, now=0.0)
    bodies.grown("x", "a", 9, now=SLOW_S)
    assert bodies.making_room(9, "a", now=SLOW_S) == ["x"]
    bodies.ended("x", "a")
    bodies.ended("x", "a")
    bodies.ended("y", "b")
    assert len(bodies) == 0
    assert bodies.making_room(1, "b", now=SLOW_S) == []


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_a_peer_is_an_address_and_of_ipv6_a_network(address: str, name: str) -> None:
    assert peer_name(address) == name
