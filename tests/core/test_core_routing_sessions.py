"""Sticky sessions: opened, kept on their copy, lost with it, expired, closed."""

from __future__ import annotations

import random

from penstock.core.deployment.deployment import CopyRoute, EndpointRoutes, VariantRoutes
from penstock.core.routing import CopyState, EndpointRouter, NoRoute, Routed
from penstock.core.routing.sessions import Sessions

UNKNOWN = NoRoute("session-unknown", None)
LOST = NoRoute("session-lost", None)


def routes(**variants: tuple[int, ...]) -> EndpointRoutes:
    return EndpointRoutes(
        endpoint="chat",
        variants=tuple(
            VariantRoutes(
                name=name,
                weight=1.0,
                strategy="LEAST_OUTSTANDING_REQUESTS",
                copies=tuple(
                    CopyRoute(copy=copy, instance_id="i", outstanding_max=2) for copy in copies
                ),
            )
            for name, copies in variants.items()
        ),
    )


def router_of(*copies: int, idle_s: float = 60.0, sessions_max: int = 100) -> EndpointRouter:
    sessions = Sessions(idle_s_max=idle_s, sessions_max=sessions_max)
    return EndpointRouter(routes(blue=copies), random.Random(1), sessions)


def ask(router: EndpointRouter, session: str, now: float, **more: object) -> tuple[int, str]:
    """Copy and reason; the request is over at once."""
    routed = router.pick(session=session, now=now, **more)  # type: ignore[arg-type]
    assert isinstance(routed, Routed), routed
    router.release(routed.state)
    router.check_invariants()
    return routed.state.copy, routed.reason


def test_a_session_stays_on_the_copy_that_took_its_first_request() -> None:
    router = router_of(1, 2, 3)
    assert ask(router, "a", 0.0, opens=True) == (1, "least-outstanding")
    assert ask(router, "b", 1.0, opens=True) == (2, "least-outstanding")
    assert ask(router, "a", 2.0) == (1, "session")
    assert ask(router, "b", 3.0) == (2, "session")
    assert router.snapshot()["sessions"] == 2


def test_a_session_may_open_without_a_request() -> None:
    router = router_of(1, 2)
    opened = router.open_session("a", now=0.0)
    assert isinstance(opened, CopyState)
    assert (opened.copy, opened.outstanding) == (1, 0)
    assert ask(router, "a", 1.0) == (1, "session")


def test_an_unknown_session_is_not_opened_by_using_it() -> None:
    router = router_of(1, 2)
    assert router.pick(session="a", now=0.0) == UNKNOWN
    assert router.close_session("a", now=0.0) == UNKNOWN


def test_a_closed_session_is_unknown() -> None:
    router = router_of(1, 2)
    router.open_session("a", now=0.0)
    assert router.close_session("a", now=1.0) is None
    assert router.pick(session="a", now=2.0) == UNKNOWN


def test_a_session_expires_when_nobody_has_used_it_for_so_long() -> None:
    router = router_of(1, 2, idle_s=60.0)
    router.open_session("a", now=0.0)
    assert ask(router, "a", 59.0) == (1, "session")
    assert ask(router, "a", 118.0) == (1, "session")
    assert router.pick(session="a", now=178.0) == UNKNOWN
    assert router.snapshot()["sessions"] == 0


def test_sessions_expire_each_by_its_own_last_use() -> None:
    router = router_of(1, 2, idle_s=60.0)
    router.open_session("a", now=0.0)
    router.open_session("b", now=50.0)
    assert ask(router, "b", 61.0) == (2, "session")
    assert router.pick(session="a", now=61.0) == UNKNOWN


def test_a_session_that_was_opened_anew_expires_behind_those_used_before_that() -> None:
    router = router_of(1, 2, idle_s=60.0)
    router.open_session("a", now=0.0)
    router.open_session("b", now=1.0)
    router.set_healthy(1, False)
    assert ask(router, "a", 10.0, opens=True) == (2, "only-copy")
    assert router.pick(session="b", now=61.0) == UNKNOWN
    assert ask(router, "a", 61.0) == (2, "session")


def test_an_expired_session_cannot_be_closed() -> None:
    router = router_of(1, idle_s=60.0)
    router.open_session("a", now=0.0)
    assert router.close_session("a", now=60.0) == UNKNOWN


def test_a_copy_that_answers_sessions_has_had_its_turn() -> None:
    """The next request without one goes to the copy that was asked longest ago."""
    router = router_of(1, 2)
    router.open_session("a", now=0.0)
    for _ in range(2):
        second = router.pick()
        assert isinstance(second, Routed)
        assert second.state.copy == 2
        router.release(second.state)
        assert ask(router, "a", 1.0) == (1, "session")
    assert router.snapshot()["picks"] == 5


def test_a_session_is_lost_when_its_copy_begins_to_serve_another_variant() -> None:
    router = router_of(1)
    router.open_session("a", now=0.0)
    router.replace(routes(green=(1,)))
    assert router.pick(session="a", now=1.0) == LOST
    router.set_healthy(1, False)
    router.set_healthy(1, True)
    assert router.pick(session="a", now=2.0) == LOST


def test_a_session_is_lost_with_its_copy_even_if_that_comes_back() -> None:
    """Its state is gone: an answer without it would be wrong, and nobody would notice."""
    router = router_of(1, 2)
    router.open_session("a", now=0.0)
    router.set_healthy(1, False)
    assert router.pick(session="a", now=1.0) == LOST
    router.set_healthy(1, True)
    assert router.pick(session="a", now=2.0) == LOST
    assert router.close_session("a", now=3.0) is None
    assert router.pick(session="a", now=4.0) == UNKNOWN


def test_a_lost_session_is_forgotten_when_it_would_have_expired() -> None:
    router = router_of(1, 2, idle_s=60.0)
    router.open_session("a", now=0.0)
    router.set_healthy(1, False)
    assert router.pick(session="a", now=59.0) == LOST
    assert router.pick(session="a", now=60.0) == UNKNOWN


def test_a_session_is_lost_when_its_copy_leaves_the_routes() -> None:
    router = router_of(1, 2)
    router.open_session("a", now=0.0)
    router.replace(routes(blue=(2, 3)))
    assert router.pick(session="a", now=1.0) == LOST


def test_a_session_survives_new_routes_that_keep_its_copy() -> None:
    router = router_of(1, 2)
    router.open_session("a", now=0.0)
    router.replace(routes(blue=(1, 3)))
    assert ask(router, "a", 1.0) == (1, "session")


def test_a_full_copy_refuses_its_session_rather_than_sending_it_away() -> None:
    router = router_of(1, 2)
    router.open_session("a", now=0.0)
    held = [router.pick(session="a", now=1.0) for _ in range(2)]
    assert router.pick(session="a", now=1.0) == NoRoute("all-copies-full", 0.1)
    assert isinstance(held[0], Routed)
    router.release(held[0].state)
    assert ask(router, "a", 2.0) == (1, "session")


def test_a_request_that_came_back_within_its_session_goes_nowhere_else() -> None:
    router = router_of(1, 2)
    router.open_session("a", now=0.0)
    assert ask(router, "a", 1.0, exclude=(1,)) == (1, "session")
    router.set_healthy(1, False)
    assert router.pick(session="a", now=1.1, exclude=(1,)) == LOST


def test_the_request_that_opens_a_session_may_be_retried_elsewhere() -> None:
    router = router_of(1, 2)
    assert ask(router, "a", 0.0, opens=True) == (1, "least-outstanding")
    assert ask(router, "a", 0.1, opens=True, exclude=(1,)) == (2, "retry")
    assert ask(router, "a", 1.0) == (2, "session")
    router.set_healthy(2, False)
    assert ask(router, "a", 1.1, opens=True, exclude=(1, 2)) == (1, "retry")
    assert ask(router, "a", 2.0) == (1, "session")


def test_a_session_belongs_to_a_variant() -> None:
    router = EndpointRouter(routes(blue=(1,), green=(2,)), random.Random(1))
    router.open_session("a", variant="green", now=0.0)
    assert ask(router, "a", 1.0) == (2, "session")
    assert ask(router, "a", 1.0, variant="green") == (2, "session")
    assert router.pick(session="a", variant="blue", now=1.0) == UNKNOWN
    assert router.open_session("b", variant="red", now=1.0) == NoRoute("unknown-variant", None)


def test_a_session_that_no_copy_can_take_is_not_opened() -> None:
    router = router_of(1)
    router.set_healthy(1, False)
    assert router.open_session("a", now=0.0) == NoRoute("no-healthy-copy", 1.0)
    router.set_healthy(1, True)
    assert router.pick(session="a", now=1.0) == UNKNOWN


def test_with_a_full_table_those_who_are_there_stay_and_no_one_joins() -> None:
    router = router_of(1, 2, sessions_max=2, idle_s=60.0)
    router.open_session("a", now=0.0)
    router.open_session("b", now=10.0)
    assert router.open_session("c", now=20.0) == NoRoute("sessions-full", 10.0)
    assert ask(router, "b", 30.0) == (2, "session")
    # a has expired and leaves its place.
    assert isinstance(router.open_session("c", now=60.0), CopyState)
    assert router.pick(session="a", now=61.0) == UNKNOWN
