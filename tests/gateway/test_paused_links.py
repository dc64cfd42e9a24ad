"""A link that takes nothing right now has lost nothing: "not now" is neither "gone" nor "no"."""

from __future__ import annotations

import asyncio

import pytest
from tests.kit.gateway import Bench, Recording, routes
from tests.kit.virtual_network import Network, answer, run_virtual

from penstock.core.deployment.deployment import EndpointRoutes
from penstock.gateway.dispatch.invocation import Affinity, Invocation
from penstock.gateway.dispatch.link import BUFFER_BYTES_MAX

pytestmark = pytest.mark.loop(by=run_virtual)

LARGE = b"x" * (BUFFER_BYTES_MAX + (1 << 20))


def two_copies_of_one_variant() -> EndpointRoutes:
    return routes(1, 2, outstanding_max=100)


async def test_a_lone_body_larger_than_the_buffer_passes() -> None:
    network = Network(1)
    await network.connect()
    network.dispatcher.publish(routes(1))
    instance = network.instance(1)
    instance.on_invoke = answer
    assert instance.transport is not None
    instance.transport.reading = False
    told, small = Recording(), Recording()
    network.invoke(told, LARGE)
    await asyncio.sleep(0)
    network.invoke(small, b"small")
    assert (told.told, small.told) == ([], []), "accepted: it waits for its turn"
    instance.transport.read_all()
    await asyncio.sleep(0.001)
    assert (told.told, small.told) == ([("reply", LARGE)], [("reply", b"small")])
    await network.dispatcher.close()


async def test_what_is_sent_meanwhile_leaves_in_its_turn_with_the_time_that_is_left() -> None:
    network = Network(1)
    await network.connect()
    network.dispatcher.publish(routes(1, outstanding_max=100))
    instance = network.instance(1)
    assert instance.transport is not None
    instance.transport.reading = False
    network.invoke(Recording(), LARGE)
    await asyncio.sleep(0)
    told = [Recording() for _ in range(3)]
    bodies = (b"first", b"second", b"third")
    asked = [
        network.invoke(one, body, deadline_s=10.0) for one, body in zip(told, bodies, strict=True)
    ]
    await asyncio.sleep(4.0)
    network.dispatcher.cancel(asked[1])
    instance.transport.read_all()
    await asyncio.sleep(0.001)
    seen = [(invoke.body, invoke.deadline_ms) for _, invoke in instance.invokes[1:]]
    assert [body for body, _ in seen] == [b"first", b"third"]
    assert all(5_990 <= left_ms <= 6_000 for _, left_ms in seen)
    assert instance.cancelled == [], "what was never sent need not be cancelled"
    await network.dispatcher.close()


async def test_what_waits_ends_at_its_deadline_and_is_never_sent() -> None:
    network = Network(1)
    await network.connect()
    network.dispatcher.publish(routes(1))
    instance = network.instance(1)
    assert instance.transport is not None
    instance.transport.reading = False
    large = network.invoke(Recording(), LARGE)
    await asyncio.sleep(0)
    told = Recording()
    late = network.invoke(told, b"late", deadline_s=2.0)
    await asyncio.sleep(2.1)
    assert told.told == [("error", "deadline-passed")]
    network.dispatcher.written(late)
    instance.transport.read_all()
    assert [invoke.body for _, invoke in instance.invokes] == [LARGE]
    network.dispatcher.cancel(large)
    assert (network.dispatcher.in_flight, network.outstanding()) == (0, {1: 0})
    await network.dispatcher.close()


async def test_what_waits_for_an_instance_that_dies_goes_to_another() -> None:
    network = Network(1, 2)
    await network.connect()
    network.dispatcher.publish(routes(1, outstanding_max=100))
    first, second = network.instance(1), network.instance(2)
    second.on_invoke = answer
    assert first.transport is not None
    first.transport.reading = False
    told = [Recording() for _ in range(3)]
    for one, body in zip(told, (LARGE, b"a", b"b"), strict=True):
        network.invoke(one, body)
        await asyncio.sleep(0)
    network.dispatcher.publish(two_copies_of_one_variant())
    first.accepts = False
    first.drop()
    await asyncio.sleep(0.01)
    assert [one.told for one in told] == [[("reply", body)] for body in (LARGE, b"a", b"b")]
    await network.dispatcher.close()


async def test_an_instance_that_never_reads_again_holds_no_more_than_the_requests_in_flight() -> (
    None
):
    """The transport's buffer is bounded; the rest are references to bodies that wait anyway."""
    network = Network(1)
    await network.connect()
    network.dispatcher.publish(routes(1, outstanding_max=50))
    instance = network.instance(1)
    assert instance.transport is not None
    instance.transport.reading = False
    body = b"y" * (3 << 20)
    told = [Recording() for _ in range(60)]
    for one in told:
        network.invoke(one, body, deadline_s=5.0)
        await asyncio.sleep(0)
    assert instance.transport.get_write_buffer_size() < BUFFER_BYTES_MAX + 2 * len(body)
    assert [one.told for one in told[50:]] == [[("error", "all-copies-full")]] * 10
    await asyncio.sleep(6.0)
    assert [one.told for one in told[:50]] == [[("error", "deadline-passed")]] * 50
    await network.dispatcher.close()


# Which copy meanwhile


def test_others_are_picked_before_a_paused_copy_and_it_before_none() -> None:
    bench = Bench(1, 2, outstanding_max=2)
    bench.dispatcher.on_paused("i1", True)
    asked = [bench.invoke()[0] for _ in range(4)]
    copies = [invocation.copy.copy for invocation in asked if invocation.copy is not None]
    assert copies == [2, 2, 1, 1]
    reasons = [invocation.route.reason for invocation in asked if invocation.route is not None]
    assert reasons[2:] == ["paused-copy", "paused-copy"]
    assert bench.invoke()[1].told == [("error", "all-copies-full")]


def test_a_copy_that_is_no_longer_paused_has_its_share_again() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.on_paused("i1", True)
    bench.dispatcher.on_paused("i1", False)
    copies = {bench.invoke()[0].copy.copy for _ in range(2)}  # type: ignore[union-attr]
    assert copies == {1, 2}


def test_new_routes_keep_in_mind_who_is_paused() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.on_paused("i1", True)
    bench.dispatcher.publish(routes(1, 2))
    assert bench.invoke()[0].copy.copy == 2  # type: ignore[union-attr]


def test_a_new_connection_is_not_paused() -> None:
    bench = Bench(1, 2)
    bench.dispatcher.on_paused("i1", True)
    bench.link(1).lose()
    bench.link(1).come_back()
    copies = {bench.invoke()[0].copy.copy for _ in range(2)}  # type: ignore[union-attr]
    assert copies == {1, 2}


def test_a_session_stays_with_its_copy_while_that_is_paused() -> None:
    bench = Bench(1, 2)

    def ask(*, opens: bool = False) -> Invocation:
        now = bench.clock.monotonic()
        told = Recording()
        invocation = Invocation("echo", b"[]", b"", told, received=now, deadline=None)
        invocation.affinity = Affinity(session="s", opens=opens)
        bench.dispatcher.invoke(invocation)
        assert told.told == []
        return invocation

    first = ask(opens=True)
    assert first.copy is not None
    home = first.copy.copy
    bench.dispatcher.on_paused(f"i{home}", True)
    second = ask()
    bench.dispatcher.on_paused(f"i{home}", False)
    third = ask()
    for invocation in (second, third):
        assert invocation.copy is not None
        assert invocation.copy.copy == home
