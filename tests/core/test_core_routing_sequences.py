"""Sequences of stateful models at a gateway: they begin where the fewest are, stay there, are lost
with their copy, and go on to their end where it leaves the routes."""

from __future__ import annotations

import random

from penstock.core.deployment.deployment import CopyRoute, EndpointRoutes, VariantRoutes
from penstock.core.routing import EndpointRouter, NoRoute, Routed
from penstock.core.routing.sequences import is_sequence, sequence_key, shown
from penstock.core.routing.sessions import Sessions

NOT_STARTED = NoRoute("sequence-not-started", None)
LOST = NoRoute("sequence-lost", None)
IDLE_S = 5.0
STATEFUL = {"sequence_idle_s": IDLE_S}


def routes(*copies: int) -> EndpointRoutes:
    placed = tuple(
        CopyRoute(copy=copy, instance_id=f"i{copy}", outstanding_max=9) for copy in copies
    )
    blue = VariantRoutes(
        name="blue", weight=1.0, strategy="RANDOM", copies=placed, model=dict(STATEFUL)
    )
    return EndpointRoutes(endpoint="adds", variants=(blue,))


def router_of(*copies: int, sessions_max: int = 100) -> EndpointRouter:
    sessions = Sessions(sessions_max=sessions_max)
    return EndpointRouter(routes(*copies), random.Random(1), sessions)


def ask(
    router: EndpointRouter, sequence: int | str, marks: str = "", *, now: float = 0.0,
    exclude: tuple[int, ...] = (),
) -> int | NoRoute:  # fmt: skip
    """The copy; the request is over at once. `marks`: "(" begins the sequence, ")" ends it."""
    key = sequence_key("", sequence)
    routed = router.pick(session=key, opens="(" in marks, exclude=exclude, now=now)
    if isinstance(routed, NoRoute):
        return routed
    if ")" in marks:
        router.sequence_ends(key)
    router.release(routed.state)
    if ")" in marks:
        router.sequence_ended(key, now=now)
    router.check_invariants()
    return routed.state.copy


def test_a_key_says_what_kind_of_id_it_has() -> None:
    number, text = sequence_key("c", 5), sequence_key("c", "5")
    assert number != text
    assert shown(number) == shown(text) == "5"
    assert shown(sequence_key("", "a b  c")) == "a b  c"
    assert is_sequence(number)
    assert not is_sequence("0f8b-5")


def test_each_begins_where_the_fewest_are_and_stays() -> None:
    router = router_of(1, 2, 3)
    begun = {sequence: ask(router, sequence, "(") for sequence in range(9)}
    assert sorted(begun.values()) == [1, 1, 1, 2, 2, 2, 3, 3, 3]  # type: ignore[type-var]
    assert {sequence: ask(router, sequence) for sequence in range(9)} == begun


def test_one_that_was_not_begun_or_has_ended_is_refused_here() -> None:
    router = router_of(1, 2)
    assert ask(router, 5) == NOT_STARTED
    ask(router, 5, "(")
    ask(router, 5, ")")
    assert ask(router, 5) == NOT_STARTED


def test_one_that_begins_again_before_its_end_is_answered_does_not_end() -> None:
    """The client sends the next START while the answer to END is on its way."""
    router = router_of(1)
    key = sequence_key("", 5)
    ask(router, 5, "(")
    last = router.pick(session=key, now=0.0)
    assert isinstance(last, Routed)
    router.sequence_ends(key)
    ask(router, 5, "(")
    router.sequence_ended(key, now=0.0)
    assert ask(router, 5) == 1


def test_with_its_copy_a_sequence_is_lost_until_it_begins_again() -> None:
    router = router_of(1, 2)
    copy = ask(router, 5, "(")
    assert isinstance(copy, int)
    router.set_healthy(copy, False)
    assert ask(router, 5) == LOST
    router.set_healthy(copy, True)
    assert ask(router, 5) == LOST
    assert ask(router, 5, "(") in (1, 2)
    assert ask(router, 5) in (1, 2)


def test_a_copy_that_gave_a_request_back_has_no_right_state_any_more() -> None:
    router = router_of(1, 2)
    copy = ask(router, 5, "(")
    assert isinstance(copy, int)
    assert ask(router, 5, exclude=(copy,)) == LOST
    assert ask(router, 5) == LOST
    assert ask(router, 6, "(", exclude=(copy,)) == 3 - copy


def test_a_copy_that_leaves_the_routes_keeps_its_sequences_until_they_end() -> None:
    router = router_of(1, 2)
    first, second = ask(router, "a", "("), ask(router, "b", "(")
    assert {first, second} == {1, 2}
    stays, leaves = ("a", "b") if first == 2 else ("b", "a")
    gone = router.replace(routes(2, 3))
    assert [state.copy for state in gone] == [1]
    assert ask(router, leaves, now=1.0) == 1
    assert ask(router, stays, now=1.0) == 2
    assert ask(router, "c", "(", now=1.0) == 3
    assert router.keeps_sequences(gone[0], now=5.9)
    assert not router.keeps_sequences(gone[0], now=6.0)  # idle for 5 s
    ask(router, leaves, ")", now=5.0)
    assert not router.keeps_sequences(gone[0], now=5.0)
    router.let_go(gone[0])
    router.check_invariants()


def test_what_a_copy_still_has_when_it_ends_is_lost() -> None:
    router = router_of(1)
    ask(router, "a", "(")
    (gone,) = router.replace(routes(2))
    router.let_go(gone)
    assert ask(router, "a") == LOST
    assert ask(router, "a", "(") == 2


def test_with_the_instance_of_a_draining_copy_its_sequences_are_lost() -> None:
    router = router_of(1)
    ask(router, "a", "(")
    router.replace(routes(2))
    router.instance_lost("i2")
    assert ask(router, "a") == 1
    router.instance_lost("i1")
    assert ask(router, "a") == LOST


def test_a_gateway_takes_over_what_another_one_knows_even_of_a_draining_copy() -> None:
    router = router_of(1, 2)
    key = sequence_key("", "a")
    (gone,) = router.replace(routes(2))
    assert router.adopt_session(key, 1, now=0.0)
    assert ask(router, "a") == 1
    router.let_go(gone)
    assert not router.adopt_session(key, 1, now=0.0)


def test_what_another_gateway_still_believes_of_a_dead_copy_is_lost() -> None:
    """A request for it would wait for its deadline."""
    router = router_of(1, 2)
    router.set_healthy(1, False)
    assert router.adopt_session(sequence_key("", "a"), 1, now=0.0)
    assert ask(router, "a") == LOST
    assert ask(router, "a", "(") == 2
    assert ask(router, "a") == 2


def test_a_full_table_forgets_what_was_unused_for_longest() -> None:
    router = router_of(1, sessions_max=2)
    for sequence in (1, 2, 3):
        assert ask(router, sequence, "(", now=float(sequence)) == 1
    assert ask(router, 1, now=4.0) == NOT_STARTED
    assert ask(router, 2, now=4.0) == 1
    state = router.state_of(1)
    assert state is not None
    assert state.sessions == 2
