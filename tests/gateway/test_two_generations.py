"""A gateway while a new generation of an endpoint takes over: copy 1 serves, copy 2 is new."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.kit.gateway import Bench, routes

from penstock.config import LimitConfig
from penstock.core.deployment.deployment import EndpointRoutes
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.traffic_loads import TrafficLoads


def both(old: EndpointRoutes, new: EndpointRoutes, share: float = 0.5) -> EndpointRoutes:
    """The routes of a rollout between these two."""
    (serving,), (coming,) = old.variants, new.variants
    return replace(
        old,
        variants=(
            replace(serving, weight=1 - share),
            replace(coming, weight=share, incoming=True),
        ),
    )


def rollout(**bench: object) -> Bench:
    made = Bench(1, outstanding_max=100, **bench)  # type: ignore[arg-type]
    made.connect("i2")
    made.dispatcher.publish(both(routes(1, outstanding_max=100), routes(2, outstanding_max=100)))
    return made


def sent(bench: Bench, copy: int) -> list[Invocation]:
    return [item[0] for item in bench.link(copy).sent]


@pytest.mark.parametrize("name", [None, "AllTraffic"])
def test_both_generations_answer_and_one_variant_is_counted(name: str | None) -> None:
    bench = rollout()
    invocations = [bench.invoke(variant=name)[0] for _ in range(40)]
    counts = bench.outstanding()
    assert min(counts.values()) >= 10
    assert sum(counts.values()) == 40
    assert bench.counting.told == [("echo", "AllTraffic", "started")] * 40
    assert {one.variant for one in invocations} == {"AllTraffic"}
    for copy in (1, 2):
        while bench.link(copy).sent:
            bench.link(copy).reply()
    for one in invocations:
        bench.dispatcher.written(one)
    assert bench.outstanding() == {1: 0, 2: 0}
    assert {row[1] for row in bench.counting.told} == {"AllTraffic"}


def test_what_is_in_flight_when_the_new_generation_has_taken_over_is_answered() -> None:
    async def drained(timeout_s: float) -> bool:
        waiting = asyncio.ensure_future(bench.dispatcher.drained([1], timeout_s))
        await asyncio.sleep(0)
        for one in sent(bench, 1):
            bench.link(1).reply()
            bench.dispatcher.written(one)
        return await waiting

    bench = rollout()
    for _ in range(20):
        bench.invoke()
    new = len(sent(bench, 2))
    bench.dispatcher.publish(routes(2, outstanding_max=100))
    assert bench.outstanding() == {2: new}
    bench.invoke()
    assert bench.outstanding() == {2: new + 1}
    assert asyncio.run(drained(5.0))


def test_requests_of_a_new_copy_that_is_lost_go_to_the_old_generation() -> None:
    bench = rollout()
    for _ in range(20):
        bench.invoke(variant="AllTraffic")
    before = bench.outstanding()
    bench.link(2).lose()
    assert bench.outstanding() == {1: 20, 2: 0}
    assert len(sent(bench, 1)) == 20 > before[1]
    bench.invoke(variant="AllTraffic")
    assert bench.outstanding() == {1: 21, 2: 0}


def test_a_new_generation_takes_nothing_from_the_queue_of_the_old_one() -> None:
    """Its share is that of new requests: waiting ones are not levelled across generations."""
    bench = Bench(1, outstanding_max=100)
    for _ in range(20):
        bench.invoke()
    bench.connect("i2")
    bench.dispatcher.publish(
        both(routes(1, outstanding_max=100), routes(2, outstanding_max=100), 0.1)
    )
    assert bench.link(1).told == []
    bench.connect("i3")
    bench.dispatcher.publish(
        both(routes(1, 3, outstanding_max=100), routes(2, outstanding_max=100), 0.1)
    )
    assert bench.link(1).told == [{"op": "give-back", "copy": 1, "count": 10}]


def test_while_neither_generation_has_a_copy_all_wait_in_the_line_of_the_variant() -> None:
    """A request that names the only variant and one that names none wait for the same copies."""
    bench = Bench(1, zero_capacity="hold")
    bench.connect("i2")
    bench.dispatcher.publish(both(routes(), routes()))
    held = [bench.invoke()[0], bench.invoke(variant="AllTraffic")[0], bench.invoke()[0]]
    assert bench.wanted == [("echo", "AllTraffic", "", 1)], "it is one line, which has begun"
    bench.dispatcher.publish(both(routes(), routes(2)))
    assert sent(bench, 2) == held
    assert bench.wanted[1:] == [("echo", "AllTraffic", "", 0)]


def test_each_generation_has_room_by_its_own_description() -> None:
    bench = rollout()
    loads = TrafficLoads(bench.dispatcher, LimitConfig())
    models: tuple[dict[str, object], ...] = ({"lanes": 2, "rows_max": 4}, {"lanes": 3})
    old, new = (
        routes(copy, outstanding_max=100, model=model) for copy, model in enumerate(models, start=1)
    )
    alone = []
    for one in (old, new):
        bench.dispatcher.publish(one)
        alone.append(loads.room("echo"))
    assert alone == [2 * 2 * 4, 2 * 3]  # two batches a lane, before any run time is known
    bench.dispatcher.publish(both(old, new))
    assert loads.room("echo") == sum(alone)
