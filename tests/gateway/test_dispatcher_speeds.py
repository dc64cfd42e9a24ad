"""What a dispatcher lets routing learn of copies on several kinds of instances."""

from __future__ import annotations

import dataclasses
from typing import Any

from tests.kit.gateway import Bench, reply, routes

from penstock.core.deployment.deployment import EndpointRoutes

TAKES_S = {1: 0.01, 2: 0.04}


def mixed(*, kinds: tuple[str, ...] = ("large", "small")) -> EndpointRoutes:
    told = routes(1, 2)
    (variant,) = told.variants
    copies = tuple(
        dataclasses.replace(route, kind=kind)
        for route, kind in zip(variant.copies, kinds, strict=True)
    )
    return dataclasses.replace(told, variants=(dataclasses.replace(variant, copies=copies),))


def speeds(bench: Bench) -> Any:
    router = bench.dispatcher.table.endpoints["echo"].router
    return router.snapshot()["variants"][0].get("speeds")


def turn(bench: Bench, *, ends: str = "reply") -> list[int]:
    """A request on each copy, which end one after the other."""
    begun = [bench.invoke()[0] for _ in TAKES_S]
    chosen = [one.copy.copy for one in begun if one.copy is not None]
    for invocation, copy in sorted(zip(begun, chosen, strict=True), key=lambda pair: pair[1]):
        bench.clock.advance(TAKES_S[copy] if copy == 1 else TAKES_S[2] - TAKES_S[1])
        link = bench.link(copy)
        if ends == "reply":
            link.reply()
        elif ends == "error":
            link.events.on_error(link.take(), reply(b"{}"))
        else:
            bench.dispatcher.cancel(invocation)
        bench.dispatcher.written(invocation)
    return chosen


def test_what_copies_answer_says_how_fast_their_kind_is() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(mixed())
    for _ in range(40):
        assert sorted(turn(bench)) == [1, 2]
    told = speeds(bench)
    assert told["large"]["answers_per_busy_s"] == 100.0
    assert told["small"]["answers_per_busy_s"] == 25.0


def test_errors_and_clients_that_leave_say_nothing_of_speed() -> None:
    """A copy that fails at once is not fast."""
    bench = Bench(1, 2)
    bench.dispatcher.publish(mixed())
    for ends in ("error", "cancel") * 20:
        turn(bench, ends=ends)
    assert {one["answers_per_busy_s"] for one in speeds(bench).values()} == {None}


def test_copies_of_one_kind_are_not_watched() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.publish(mixed(kinds=("large", "large")))
    turn(bench)
    assert speeds(bench) is None
    assert not bench.dispatcher.table.endpoints["echo"].looks_closer
