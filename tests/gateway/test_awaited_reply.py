"""A whole answer made of pieces, for doors that await it."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.gateway_fakes import routes
from tests.gateway.virtual_network import Instance, Network, run_virtual

from penstock.errors import ModelError
from penstock.gateway import awaited
from penstock.gateway.awaited import AwaitedReply
from penstock.gateway.invocation import Invocation
from penstock.wire import frames


def ask(network: Network, waiter: AwaitedReply) -> Invocation:
    now = network.loop.time()
    return Invocation("echo", b"[]", b"", waiter, received=now, deadline=None)


def in_pieces(instance: Instance, ident: int, _: frames.Invoke) -> None:
    for piece in (b"x" * 600, b"y" * 600):
        instance.send(frames.encode(frames.CHUNK, ident, piece))
    instance.send(frames.encode_reply(ident, kind=frames.END))


def test_pieces_are_put_together() -> None:
    async def main() -> None:
        network = Network(1)
        await network.connect()
        network.dispatcher.publish(routes(1))
        network.instance(1).on_invoke = in_pieces
        waiter = AwaitedReply(network.dispatcher)
        reply = await waiter.get(ask(network, waiter))
        assert reply.body == b"x" * 600 + b"y" * 600
        await network.dispatcher.close()

    run_virtual(main)


def test_more_than_a_whole_answer_may_be_is_an_error_and_not_a_shorter_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(awaited, "ANSWER_BYTES_MAX", 1000)

    async def main() -> None:
        network = Network(1)
        await network.connect()
        network.dispatcher.publish(routes(1))
        instance = network.instance(1)
        instance.on_invoke = in_pieces
        waiter = AwaitedReply(network.dispatcher)
        invocation = ask(network, waiter)
        with pytest.raises(ModelError) as caught:
            await waiter.get(invocation)
        assert caught.value.code == "answer-too-large"
        await asyncio.sleep(0.01)
        assert (network.dispatcher.in_flight, network.outstanding()) == (0, {1: 0})
        assert instance.cancelled == [invocation.ident]
        await network.dispatcher.close()

    run_virtual(main)
