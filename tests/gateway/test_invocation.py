"""A request as a door makes it, before the dispatcher has seen it."""

from __future__ import annotations

from tests.kit.gateway import Recording

from penstock.gateway.dispatch.invocation import NEW, UNBOUND, Affinity, Invocation


def test_what_a_door_leaves_out_is_the_usual_request() -> None:
    asked = Invocation("shop", b"[]", b"body", Recording(), received=1.0, deadline=None)
    assert (asked.endpoint, asked.meta, asked.body, asked.received) == ("shop", b"[]", b"body", 1.0)
    assert (asked.deadline, asked.variant, asked.affinity, asked.stream) == (None,) * 4
    assert (asked.priority, asked.door, asked.context, asked.number) == (0, "runtime", None, 0)
    assert (asked.state, asked.finished) == (NEW, False)
    asked.abort()


def test_a_request_is_bound_to_nothing_unless_it_says_so() -> None:
    assert UNBOUND == Affinity() == (None, None, False, None, None, False)
