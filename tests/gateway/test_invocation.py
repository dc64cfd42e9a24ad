"""A request as a door makes it, before the dispatcher has seen it."""

from __future__ import annotations

from tests.kit.gateway import Recording

from penstock.gateway.dispatch.invocation import NEW, UNBOUND, Affinity, Invocation
from penstock.gateway.http.call import Call


def test_what_a_door_leaves_out_is_the_usual_request() -> None:
    asked = Invocation("shop", b"[]", b"body", Recording(), received=1.0, deadline=None)
    assert (asked.endpoint, asked.meta, asked.body, asked.received) == ("shop", b"[]", b"body", 1.0)
    assert (asked.deadline, asked.variant, asked.affinity, asked.stream) == (None,) * 4
    assert (asked.priority, asked.door, asked.context, asked.number) == (0, "runtime", None, 0)
    assert (asked.state, asked.finished) == (NEW, False)
    asked.abort()


def test_a_request_is_bound_to_nothing_unless_it_says_so() -> None:
    assert UNBOUND == Affinity() == (None, None, False, None, None, False)


def test_a_call_over_http_begins_with_all_that_any_request_has() -> None:
    """It is made in a step of its own, which must forget nothing."""
    asked = Invocation("shop", b"[]", b"body", Recording(), received=1.0, deadline=None)
    call = Call(None, b"POST", b"/", [], b"body", 1, 1.0, None, None, None, b"", None)  # type: ignore[arg-type]
    call.endpoint, call.meta, call.responder = asked.endpoint, asked.meta, asked.responder
    there = [name for name in Invocation.__slots__ if hasattr(asked, name)]
    assert "aimed" in there
    assert [name for name in there if not hasattr(call, name)] == []
