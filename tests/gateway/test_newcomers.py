"""Requests that come when no copy can take them: they wait in line, or are told why not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.gateway import Bench, Recording, routes

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.gateway.dispatch.invocation import Affinity, Invocation


def asleep(**given: Any) -> Bench:
    """An endpoint at zero copies; instances i1 and i2 are there."""
    bench = Bench(1, 2, **({"zero_capacity": "hold"} | given))
    bench.dispatcher.publish(routes())
    return bench


def sent(bench: Bench, copy: int = 1) -> list[Invocation]:
    return [item[0] for item in bench.link(copy).sent]


def waiting(bench: Bench) -> int:
    count: int = bench.dispatcher.snapshot()["waiting"]
    return count


def counted(bench: Bench) -> list[tuple[Any, ...]]:
    return [row[2:] for row in bench.counting.told]


def components(**copies: tuple[int, ...]) -> EndpointRoutes:
    parts = [replace(routes(*own).variants[0], component=name) for name, own in copies.items()]
    return EndpointRoutes(endpoint="echo", variants=tuple(parts), takes_components=True)


def ask(
    bench: Bench, component: str | None, deadline_s: float = 60.0
) -> tuple[Invocation, Recording]:
    """A request for a component."""
    told = Recording()
    now = bench.clock.monotonic()
    deadline = now + deadline_s
    invocation = Invocation("echo", b"[]", b"body", told, received=now, deadline=deadline)
    invocation.affinity = Affinity(component=component)
    bench.dispatcher.invoke(invocation)
    return invocation, told


# Held, and sent


def test_what_comes_at_zero_copies_is_sent_when_one_is_ready_in_the_order_in_which_it_came() -> (
    None
):
    bench = asleep()
    requests = [bench.invoke()[0] for _ in range(3)]
    assert (waiting(bench), sent(bench), bench.dispatcher.in_flight) == (3, [], 3)
    bench.timers.advance(20.0)
    bench.dispatcher.publish(routes(1))
    assert sent(bench) == requests
    assert [item[2] for item in bench.link(1).sent] == [40_000] * 3, "what is left of a minute"
    assert waiting(bench) == 0


def test_a_held_request_counts_as_one_that_found_no_capacity_and_as_one_in_flight() -> None:
    bench = asleep()
    invocation, told = bench.invoke()
    assert counted(bench) == [("no_capacity",), ("started",)]
    bench.dispatcher.publish(routes(1))
    bench.link(1).reply(b"42")
    bench.dispatcher.written(invocation)
    assert told.told == [("reply", b"42")]
    assert counted(bench)[2][:2] == ("finished", 200)
    assert (bench.outstanding(), bench.dispatcher.in_flight) == ({1: 0}, 0)


def test_it_waits_while_its_only_copy_is_brought_back() -> None:
    bench = Bench(1, zero_capacity="hold")
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    invocation, _ = bench.invoke()
    assert (sent(bench), waiting(bench)) == ([], 1)
    bench.dispatcher.on_event("i1", {"event": "copy-ready", "copy": 1})
    assert sent(bench) == [invocation]


def test_news_that_were_lost_cost_a_twentieth_of_a_second() -> None:
    bench = Bench(1, zero_capacity="hold")
    bench.dispatcher.table.set_lost("i1", 1, True)
    invocation, _ = bench.invoke()
    bench.dispatcher.table.set_lost("i1", 1, False)
    bench.timers.advance(0.05)
    assert sent(bench) == [invocation]


def test_nobody_overtakes_those_that_wait() -> None:
    """A small copy is ready: the second waits for the first's slot, and a newcomer behind it."""
    bench = asleep()
    first, second = (bench.invoke()[0] for _ in range(2))
    bench.dispatcher.publish(routes(1, outstanding_max=1))
    third, _ = bench.invoke()
    assert (sent(bench), waiting(bench)) == ([first], 2)
    assert counted(bench).count(("no_capacity",)) == 2, "the third found a copy, only not its turn"
    for request in (first, second, third):
        assert sent(bench) == [request]
        bench.link(1).reply()
        bench.dispatcher.written(request)
        bench.timers.advance(0.05)
    last, _ = bench.invoke()
    assert sent(bench) == [last], "nobody waits: no line any more"


def test_what_came_back_and_what_never_left_wait_in_one_line() -> None:
    bench = Bench(1, zero_capacity="hold")
    accepted, _ = bench.invoke()
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    newcomer, _ = bench.invoke()
    bench.link(1).give_back("copy-lost")
    bench.timers.advance(0.05)
    assert bench.wanted == [("echo", "AllTraffic", "", 1), ("echo", "AllTraffic", "", 2)]
    bench.dispatcher.on_event("i1", {"event": "copy-ready", "copy": 1})
    assert sent(bench) == [newcomer, accepted], "in the order in which they began to wait"


def test_one_that_came_back_keeps_nobody_from_standing_in_line() -> None:
    """The line has newcomers and others: who comes now goes behind them, and is not refused."""
    bench = Bench(1, zero_capacity="hold")
    bench.invoke()
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    for _ in range(2):
        bench.invoke()
    bench.link(1).give_back("copy-lost")
    bench.dispatcher.publish(routes(1, outstanding_max=1))
    bench.dispatcher.on_event("i1", {"event": "copy-ready", "copy": 1})
    assert (len(sent(bench)), waiting(bench)) == (1, 2)
    _, told = bench.invoke()
    assert (told.told, waiting(bench)) == ([], 3)


def test_where_the_first_finds_no_place_nobody_behind_it_is_tried() -> None:
    """Thousands may wait: a look costs one pick for all of them."""
    bench = asleep()
    turns = []
    turn = bench.dispatcher._waiting._turn

    def counted_turn(invocation: Invocation) -> str:
        turns.append(invocation)
        return turn(invocation)

    bench.dispatcher._waiting._turn = counted_turn
    first, *_ = [bench.invoke()[0] for _ in range(5)]
    bench.timers.advance(0.1)
    assert turns == [first, first]


def test_who_named_no_variant_goes_to_the_first_that_has_a_copy() -> None:
    bench = asleep()
    parts = [routes(variant=name).variants[0] for name in ("blue", "green")]
    bench.dispatcher.publish(EndpointRoutes(endpoint="echo", variants=tuple(parts)))
    (pinned, _), (anyone, _) = bench.invoke(variant="blue"), bench.invoke()
    other, _ = bench.invoke(variant="green")
    parts[1] = routes(2, variant="green").variants[0]
    bench.dispatcher.publish(EndpointRoutes(endpoint="echo", variants=tuple(parts)))
    assert (sent(bench, 2), waiting(bench)) == ([anyone, other], 1)
    parts[0] = routes(1, variant="blue").variants[0]
    bench.dispatcher.publish(EndpointRoutes(endpoint="echo", variants=tuple(parts)))
    assert sent(bench) == [pinned]


def test_who_waits_for_a_variant_that_leaves_is_told_so_and_who_named_none_waits_on() -> None:
    bench = asleep()
    parts = [routes(variant=name).variants[0] for name in ("blue", "green")]
    bench.dispatcher.publish(EndpointRoutes(endpoint="echo", variants=tuple(parts)))
    (_, told), (anyone, _) = bench.invoke(variant="blue"), bench.invoke()
    bench.dispatcher.publish(EndpointRoutes(endpoint="echo", variants=tuple(parts[1:])))
    assert (told.told, waiting(bench)) == ([("error", "variant-not-found")], 1)
    bench.dispatcher.publish(routes(2, variant="green"))
    assert sent(bench, 2) == [anyone]


def test_endpoints_wait_apart() -> None:
    bench = asleep()
    bench.dispatcher.publish(routes(endpoint="other"))
    (here, _), (there, _) = bench.invoke(), bench.invoke(endpoint="other")
    bench.dispatcher.publish(routes(2, endpoint="other"))
    assert (sent(bench, 2), waiting(bench)) == ([there], 1)
    bench.dispatcher.publish(routes(1))
    assert sent(bench) == [here]


# Components


def test_those_that_wait_for_one_component_are_not_in_the_way_of_another() -> None:
    """They have no copy to be outstanding on: nobody's forecast has them."""
    bench = asleep()
    bench.dispatcher.publish(components(a=(), b=(2,)))
    answered, _ = ask(bench, "b")
    bench.link(2).reply()  # what a run takes is known now: 4 ms for two rows
    bench.dispatcher.written(answered)
    for _ in range(1000):
        ask(bench, "a")
    _, told = ask(bench, "b", deadline_s=1.0)
    assert (told.told, len(sent(bench, 2)), waiting(bench)) == ([], 1, 1000)


def test_a_request_waits_for_its_own_component_and_for_no_other() -> None:
    bench = asleep()
    bench.dispatcher.publish(components(a=(), b=(2,)))
    (first, _), (other, _) = ask(bench, "a"), ask(bench, "b")
    assert (sent(bench, 2), waiting(bench)) == ([other], 1)
    bench.dispatcher.publish(components(a=(1,), b=(2,)))
    assert sent(bench) == [first]
    assert {row[:3] for row in bench.counting.told} == {
        ("echo", "AllTraffic", "a"),
        ("echo", "AllTraffic", "b"),
    }


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        (None, "component-required", "Inference Component Name header is required for endpoints"),
        ("c", "component-not-found", "Inference component c of endpoint echo not found."),
    ],
)
def test_an_endpoint_of_components_says_what_is_missing(
    name: str | None, code: str, text: str
) -> None:
    bench = asleep()
    bench.dispatcher.publish(components(a=()))
    invocation, told = ask(bench, name)
    assert told.told == [("error", code)]
    assert invocation.error is not None
    assert invocation.error.message.startswith(text)
    assert counted(bench) == [("refused", code, 400, "runtime")]
    assert bench.counting.told[0][:2] == ("echo", "AllTraffic"), "it is no component's"


def test_an_endpoint_of_models_takes_no_component() -> None:
    bench = Bench(1)
    _, told = ask(bench, "a")
    assert told.told == [("error", "component-not-allowed")]


def test_a_component_that_is_deleted_takes_its_waiting_requests_along() -> None:
    bench = asleep()
    bench.dispatcher.publish(components(a=(), b=()))
    invocation, told = ask(bench, "a")
    bench.dispatcher.publish(components(b=()))
    assert told.told == [("error", "component-not-found")]
    bench.dispatcher.written(invocation)
    assert (waiting(bench), bench.dispatcher.in_flight) == (0, 0)


def test_a_component_may_refuse_as_aws_does_and_clients_find_the_text() -> None:
    bench = asleep()
    parts = components(a=())
    asked = replace(parts.variants[0], zero_capacity="refuse")
    bench.dispatcher.publish(replace(parts, variants=(asked,)))
    invocation, told = ask(bench, "a")
    assert told.told == [("error", "component-no-capacity")]
    assert invocation.error is not None
    assert (invocation.error.status, invocation.error.message) == (
        400,
        "Inference Component has no capacity to process this request. ApplicationAutoScaling may"
        " be in-progress (if configured) or try to increase the capacity by invoking"
        " UpdateInferenceComponentRuntimeConfig API.",
    )
    told_metrics = ("echo", "AllTraffic", "a", "no_capacity")
    assert told_metrics in bench.counting.told, "wake-up alarms watch it"
    assert bench.wanted == []


# Bounds


def test_at_its_deadline_it_is_told_that_there_was_no_copy() -> None:
    bench = asleep()
    invocation, told = bench.invoke(deadline_s=10.0)
    bench.timers.advance(9.9)
    assert told.told == []
    bench.timers.advance(0.1)
    assert told.told == [("error", "no-capacity-in-time")]
    assert waiting(bench) == 0
    bench.dispatcher.written(invocation)
    assert bench.dispatcher.in_flight == 0


def test_what_no_start_could_serve_in_time_is_refused_at_once_and_capacity_is_asked_for() -> None:
    bench = asleep()
    bench.ready_in_s = 12.5
    invocation, told = bench.invoke(deadline_s=12.0)
    assert told.told == [("error", "ready-too-late")]
    assert invocation.error is not None
    assert (invocation.error.status, invocation.error.retry_after_s) == (503, 12.5)
    assert bench.wanted == [("echo", "AllTraffic", "", 1), ("echo", "AllTraffic", "", 0)]
    _, told = bench.invoke(deadline_s=13.0)
    assert told.told == []


def test_no_more_wait_than_may() -> None:
    bench = asleep(held_requests_max=2)
    _, second = bench.invoke(), bench.invoke()[0]
    _, told = bench.invoke()
    assert told.told == [("error", "held-too-many")]
    bench.dispatcher.cancel(second)
    _, told = bench.invoke()
    assert told.told == [], "who left makes room"


def test_no_larger_bodies_wait_than_may() -> None:
    bench = asleep(held_bytes_max=10)
    bench.invoke(body=b"12345678")
    _, told = bench.invoke(body=b"123")
    assert told.told == [("error", "held-bytes-too-many")]
    _, told = bench.invoke(body=b"12")
    assert told.told == []
    bench.dispatcher.publish(routes(1))
    bench.dispatcher.publish(routes())
    _, told = bench.invoke(body=b"1234567890")
    assert told.told == [], "those that were sent hold none of it"


def test_a_client_that_goes_away_leaves_the_line_at_once() -> None:
    bench = asleep()
    (first, told), (second, _) = bench.invoke(), bench.invoke()
    bench.dispatcher.cancel(first)
    assert (waiting(bench), bench.dispatcher.in_flight) == (1, 1)
    bench.dispatcher.publish(routes(1))
    assert (sent(bench), told.told) == ([second], [])
    assert ("cancelled", "runtime") in counted(bench)


def test_a_server_that_drains_refuses_those_that_never_met_a_copy() -> None:
    bench = asleep()
    invocation, told = bench.invoke()

    async def drain() -> tuple[list[tuple[str, Any]], bool]:
        drained = asyncio.ensure_future(bench.dispatcher.drain(5.0))
        await asyncio.sleep(0)
        bench.dispatcher.written(invocation)
        return told.told, await drained

    assert asyncio.run(drain()) == ([("error", "stopping")], True)


def test_a_server_that_drains_still_waits_for_the_copies_of_what_it_had_accepted() -> None:
    bench = Bench(1, zero_capacity="hold")
    invocation, told = bench.invoke()
    bench.dispatcher.on_event("i1", {"event": "copy-lost", "copy": 1})
    bench.link(1).give_back("copy-lost")

    async def drain() -> bool:
        drained = asyncio.ensure_future(bench.dispatcher.drain(5.0))
        await asyncio.sleep(0)
        bench.dispatcher.on_event("i1", {"event": "copy-ready", "copy": 1})
        bench.link(1).reply()
        bench.dispatcher.written(invocation)
        return await drained

    assert (asyncio.run(drain()), told.told) == (True, [("reply", b"answer")])


def test_an_endpoint_that_is_deleted_takes_its_waiting_requests_along() -> None:
    bench = asleep()
    _, told = bench.invoke()
    bench.dispatcher.withdraw("echo")
    assert (told.told, waiting(bench)) == ([("error", "endpoint-not-found")], 0)
    assert bench.wanted[-1] == ("echo", "AllTraffic", "", 0)


# Whoever scales is told


def test_whoever_scales_is_told_at_once_how_many_wait_and_when_nobody_does_any_more() -> None:
    bench = asleep()
    for _ in range(3):
        bench.invoke()
    assert bench.wanted == [("echo", "AllTraffic", "", 1)], "at once, but not for each"
    bench.timers.advance(0.05)
    assert bench.wanted[1:] == [("echo", "AllTraffic", "", 3)]
    bench.timers.advance(1.0)
    assert len(bench.wanted) == 2, "nothing new"
    bench.dispatcher.publish(routes(1))
    assert bench.wanted[2:] == [("echo", "AllTraffic", "", 0)]


def test_whoever_scales_is_told_of_each_component() -> None:
    bench = asleep()
    bench.dispatcher.publish(components(a=(), b=()))
    ask(bench, "a")
    ask(bench, "b")
    assert bench.wanted == [("echo", "AllTraffic", "a", 1), ("echo", "AllTraffic", "b", 1)]


def test_a_model_without_copies_keeps_the_description_that_its_last_one_gave() -> None:
    bench = Bench(1)
    bench.dispatcher.publish(routes(1, model={"task": "text-generation"}))
    bench.dispatcher.publish(routes())
    known = bench.dispatcher.routes("echo")
    assert known is not None
    assert known.variants[0].model == {"task": "text-generation"}
