"""A whole answer made of pieces, for doors that await it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.kit.gateway import Bench, reply, routes
from tests.kit.virtual_network import Network, VirtualInstance, run_virtual

from penstock.errors import ModelError, NotNowError
from penstock.gateway.dispatch import awaited
from penstock.gateway.dispatch.awaited import AwaitedReply
from penstock.gateway.dispatch.invocation import Invocation
from penstock.wire import frames

pytestmark = pytest.mark.loop(by=run_virtual)


def ask(network: Network, waiter: AwaitedReply) -> Invocation:
    now = network.loop.time()
    return Invocation("echo", b"[]", b"", waiter, received=now, deadline=None)


def in_pieces(instance: VirtualInstance, ident: int, _: frames.Invoke) -> None:
    for piece in (b"x" * 600, b"y" * 600):
        instance.send(frames.encode(frames.CHUNK, ident, piece))
    instance.send(frames.encode_reply(ident, kind=frames.END))


async def test_pieces_are_put_together() -> None:
    network = Network(1)
    await network.connect()
    network.dispatcher.publish(routes(1))
    network.instance(1).on_invoke = in_pieces
    waiter = AwaitedReply(network.dispatcher)
    reply = await waiter.get(ask(network, waiter))
    assert reply.body == b"x" * 600 + b"y" * 600
    await network.dispatcher.close()


async def test_more_than_a_whole_answer_may_be_is_an_error_and_not_a_shorter_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(awaited, "ANSWER_BYTES_MAX", 1000)
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
    assert waiter._joined._chunks == [], "what was too large is not kept"
    await network.dispatcher.close()


def finished(work: Callable[[Bench, AwaitedReply], Awaitable[None]]) -> Bench:
    """Runs a door's work on a dispatcher of one copy; afterwards nothing may be in flight."""

    async def main() -> None:
        await work(bench, AwaitedReply(bench.dispatcher))

    bench = Bench(1)
    asyncio.run(main())
    assert (bench.dispatcher.in_flight, bench.outstanding()) == (0, {1: 0})
    return bench


def awaited_by(bench: Bench, waiter: AwaitedReply) -> tuple[Invocation, asyncio.Task[frames.Reply]]:
    now = bench.clock.monotonic()
    invocation = Invocation("echo", b"[]", b"", waiter, received=now, deadline=now + 1.0)
    return invocation, asyncio.ensure_future(waiter.get(invocation))


@pytest.mark.parametrize(
    ("first", "last", "meta"),
    [(b"first", b"last", b"first"), (b"", b"last", b"last"), (None, b"last", b"last")],
)
def test_what_is_said_of_the_answer_comes_with_its_first_piece_or_with_its_end(
    first: bytes | None, last: bytes, meta: bytes
) -> None:
    async def work(bench: Bench, waiter: AwaitedReply) -> None:
        invocation, task = awaited_by(bench, waiter)
        await asyncio.sleep(0)
        bench.link(1).take()
        bench.dispatcher.on_chunk(invocation, b"a", first)
        bench.dispatcher.on_chunk(invocation, b"b", None)
        bench.dispatcher.on_end(invocation, reply(b"not this", last))
        whole = await task
        assert (whole.body, whole.meta, whole.batch_rows) == (b"ab", meta, 2)
        assert bench.dispatcher.in_flight == 1, "until the door has written it"
        bench.dispatcher.written(invocation)

    finished(work)


def test_an_answer_may_be_as_large_as_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited, "ANSWER_BYTES_MAX", 4)

    async def work(bench: Bench, waiter: AwaitedReply) -> None:
        invocation, task = awaited_by(bench, waiter)
        await asyncio.sleep(0)
        bench.link(1).take()
        bench.dispatcher.on_chunk(invocation, b"ab", b"")
        bench.dispatcher.on_chunk(invocation, b"cd", None)
        bench.dispatcher.on_end(invocation, reply(b""))
        assert (await task).body == b"abcd"
        bench.dispatcher.written(invocation)

    finished(work)


def test_an_error_is_raised_and_leaves_nothing_to_be_written() -> None:
    async def work(bench: Bench, waiter: AwaitedReply) -> None:
        invocation, task = awaited_by(bench, waiter)
        await asyncio.sleep(0)
        bench.timers.advance(1.0)
        with pytest.raises(NotNowError) as caught:
            await task
        assert caught.value.code == "deadline-passed"
        assert invocation.error is caught.value

    finished(work)


def test_who_is_cancelled_cancels_the_request() -> None:
    async def work(bench: Bench, waiter: AwaitedReply) -> None:
        invocation, task = awaited_by(bench, waiter)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert bench.link(1).cancelled == [invocation]

    bench = finished(work)
    assert bench.counting.told[-1][2] == "cancelled"


@pytest.mark.parametrize(("ends", "status"), [("answered", 200), ("expired", 503)])
def test_what_ends_in_the_moment_in_which_it_is_cancelled_ends_as_it_did(
    ends: str, status: int
) -> None:
    async def work(bench: Bench, waiter: AwaitedReply) -> None:
        invocation, task = awaited_by(bench, waiter)
        await asyncio.sleep(0)
        task.cancel()  # it hears of it in the loop's next turn
        if ends == "answered":
            bench.link(1).reply()
        else:
            bench.timers.advance(1.0)
        with pytest.raises(asyncio.CancelledError):
            await task
        story = bench.dispatcher.explain(bench.dispatcher.ids.text(invocation.number))
        assert story is not None
        assert story["status"] == status

    finished(work)
