"""A torn head costs a link one reconnection, and no request its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.kit.gateway import Recording, routes
from tests.kit.virtual_network import Network, VirtualInstance, answer, run_virtual

from penstock.wire import frames
from penstock.wire.frames import LOOK_S, LOOKS_MAX

pytestmark = pytest.mark.loop(by=run_virtual)

GIVEN_UP_S = (LOOKS_MAX + 2) * LOOK_S


def torn_reply(size: int, *, ident: int = 1) -> bytes:
    return frames.HEAD.pack(size, frames.REPLY, 0, 0, ident)


@pytest.mark.parametrize("size", [100, 5 << 20, 900 << 20])
async def test_a_link_that_waits_for_what_never_comes_is_dropped_and_its_requests_retried(
    size: int,
) -> None:
    """A head whose length was spoilt looks like any other: only time tells."""
    network = Network(1, timeout_s=200.0)
    await network.connect()
    network.dispatcher.publish(routes(1, outstanding_max=100))
    instance = network.instance(1)
    told = Recording()
    network.invoke(told, b"precious")
    await asyncio.sleep(0.01)
    instance.send(torn_reply(size))
    instance.on_invoke = answer
    await asyncio.sleep(GIVEN_UP_S + size / (16 << 20))
    assert told.told == [("reply", b"precious")]
    assert instance.connections == 2
    await network.dispatcher.close()


async def test_a_deaf_link_is_dropped_though_replies_still_come_which_it_swallows() -> None:
    network = Network(1, 2, timeout_s=200.0)
    await network.connect()
    network.dispatcher.publish(routes(1, outstanding_max=1000))
    instance = network.instance(1)
    told = [Recording()]
    network.invoke(told[0], b"first")
    await asyncio.sleep(0.01)
    instance.send(torn_reply(5 << 20))
    instance.on_invoke = answer
    for _ in range(40):
        told.append(Recording())
        network.invoke(told[-1], b"later")
        await asyncio.sleep(GIVEN_UP_S / 40)
    await asyncio.sleep(1.0)
    assert all(one.told in ([("reply", b"first")], [("reply", b"later")]) for one in told)
    assert instance.connections == 2
    await network.dispatcher.close()


@pytest.mark.parametrize(
    "torn",
    [
        pytest.param(lambda ident: torn_reply(1 << 31, ident=ident), id="too-large"),
        pytest.param(lambda ident: torn_reply(900 << 20, ident=ident + 5), id="never-asked"),
        pytest.param(lambda ident: torn_reply(20, ident=ident + 5) + bytes(20), id="and-whole"),
        pytest.param(lambda _: b"\xff" * 64, id="garbage"),
        pytest.param(
            lambda ident: torn_reply(3, ident=ident) + bytes(3), id="shorter-than-a-reply"
        ),
        pytest.param(lambda ident: frames.encode(frames.INVOKE, ident, bytes(9)), id="wrong-way"),
        pytest.param(lambda _: frames.encode(frames.EVENT, 0, b"[]"), id="no-news"),
        pytest.param(lambda _: frames.encode(frames.EVENT, 0, b"{"), id="no-json"),
    ],
)
async def test_what_can_not_be_a_frame_costs_the_link_nothing_but_a_new_connection(
    torn: Callable[[int], bytes],
) -> None:
    network = Network(1)
    await network.connect()
    network.dispatcher.publish(routes(1))
    instance = network.instance(1)
    told = Recording()
    invocation = network.invoke(told, b"precious")
    await asyncio.sleep(0.01)
    instance.send(torn(invocation.ident))
    instance.on_invoke = answer
    await asyncio.sleep(0.5)
    assert told.told == [("reply", b"precious")]
    await network.dispatcher.close()


async def test_an_instance_that_tears_each_connection_is_not_called_a_hundred_times_a_second() -> (
    None
):
    network = Network(1)

    class Poison(VirtualInstance):
        def accept(self, link: object) -> None:
            super().accept(link)  # type: ignore[arg-type]
            asyncio.get_running_loop().call_soon(self.send, b"\xff" * 64)

    poison = network.instances["i1"] = Poison("i1")
    await network.connect()
    network.dispatcher.publish(routes(1))
    await asyncio.sleep(60.0)
    assert 50 < poison.connections < 80
    await network.dispatcher.close()
