"""The connection to an instance, on a real socket: coalescing, loss, reconnection, torn frames."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from tests.kit.gateway import FakeInstance, Recording, routes, run, silent
from tests.kit.polling import until

from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.errors import NotNowError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.link import BUFFER_BYTES_MAX
from penstock.gateway.timers import LoopTimers
from penstock.wire import frames

pytestmark = pytest.mark.loop(by=run)


def make_dispatcher() -> Dispatcher:
    clock = SystemClock()
    timers = LoopTimers(asyncio.get_running_loop(), clock)
    limits = LimitConfig()
    return Dispatcher(clock=clock, timers=timers, rng=random.Random(1), limits=limits)


def invoke(dispatcher: Dispatcher, body: bytes = b"body") -> tuple[Invocation, Recording]:
    told = Recording()
    now = dispatcher.clock.monotonic()
    invocation = Invocation("echo", b"[]", body, told, received=now, deadline=None)
    dispatcher.invoke(invocation)
    return invocation, told


async def test_requests_and_answers_of_any_size_cross_the_connection(tmp_path: Path) -> None:
    instance = FakeInstance(str(tmp_path / "i1"))
    await instance.start()
    dispatcher = make_dispatcher()
    await dispatcher.connect("i1", instance.address)
    dispatcher.publish(routes(1, outstanding_max=100))
    bodies = [b"", b"x", b"y" * 70_000, b"z" * 3_000_000, b"w" * 65_536]
    told = [invoke(dispatcher, body)[1] for body in bodies]
    await until(lambda: all(each.told for each in told))
    assert [each.told for each in told] == [[("reply", body)] for body in bodies]
    assert [invoke.copy for invoke in instance.invokes] == [1] * 5
    assert instance.flags == [0] * 5  # none is under suspicion, so all may share a batch
    await dispatcher.close()
    await instance.stop()


async def test_what_a_dead_instance_had_goes_to_another_and_the_link_comes_back(
    tmp_path: Path,
) -> None:
    first, second = FakeInstance(str(tmp_path / "i1")), FakeInstance(str(tmp_path / "i2"))
    first.on_invoke = second.on_invoke = silent
    dispatcher = make_dispatcher()
    for number, instance in ((1, first), (2, second)):
        await instance.start()
        await dispatcher.connect(f"i{number}", instance.address)
    dispatcher.publish(routes(1, 2, outstanding_max=100))
    told = [invoke(dispatcher, b"%d" % number)[1] for number in range(10)]
    await until(lambda: len(first.invokes) == len(second.invokes) == 5)
    first.drop()
    await until(lambda: len(second.invokes) == 10)
    assert sorted(each.body for each in second.invokes) == [b"%d" % n for n in range(10)]
    assert all(each.told == [] for each in told)
    await until(lambda: first.connections)
    await until(lambda: sorted(dispatcher.table.healthy_copies("echo")) == [1, 2])
    await dispatcher.close()
    assert all(len(each.final) <= 1 for each in told)
    await first.stop()
    await second.stop()


async def test_cancelling_tells_the_instance(tmp_path: Path) -> None:
    instance = FakeInstance(str(tmp_path / "i1"))
    instance.on_invoke = silent
    await instance.start()
    dispatcher = make_dispatcher()
    await dispatcher.connect("i1", instance.address)
    dispatcher.publish(routes(1))
    invocation, told = invoke(dispatcher)
    await until(lambda: instance.invokes)
    dispatcher.cancel(invocation)
    await until(lambda: instance.cancelled == [invocation.ident])
    assert told.told == []
    await dispatcher.close()
    await instance.stop()


async def test_an_instance_that_sends_garbage_is_cut_off_and_its_requests_retried(
    tmp_path: Path,
) -> None:
    bad, good = FakeInstance(str(tmp_path / "i1")), FakeInstance(str(tmp_path / "i2"))
    bad.on_invoke = lambda connection, ident, _: connection.write(b"\xff" * 64)
    dispatcher = make_dispatcher()
    for number, instance in ((1, bad), (2, good)):
        await instance.start()
        await dispatcher.connect(f"i{number}", instance.address)
    dispatcher.publish(routes(1, 2))
    told = invoke(dispatcher, b"precious")[1]
    await until(lambda: told.told)
    assert told.told == [("reply", b"precious")]
    await dispatcher.close()
    await bad.stop()
    await good.stop()


async def test_streams_arrive_in_pieces_and_end(tmp_path: Path) -> None:
    def stream(connection: object, ident: int, _: frames.Invoke) -> None:
        meta = frames.encode_reply_meta(frames.ReplyMeta("text/plain"))
        first = frames.encode(
            frames.CHUNK, ident, meta + b"a", flags=frames.FIRST, meta_bytes=len(meta)
        )
        data = first + frames.encode(frames.CHUNK, ident, b"b")
        connection.write(data + frames.encode_reply(ident, kind=frames.END))  # type: ignore[attr-defined]

    instance = FakeInstance(str(tmp_path / "i1"))
    instance.on_invoke = stream
    await instance.start()
    dispatcher = make_dispatcher()
    await dispatcher.connect("i1", instance.address)
    dispatcher.publish(routes(1))
    told = invoke(dispatcher)[1]
    await until(lambda: told.final)
    assert told.told == [("chunk", b"a"), ("chunk", b"b"), ("end", None)]
    await dispatcher.close()
    await instance.stop()


async def test_an_instance_that_is_not_there_is_an_error_that_may_pass(tmp_path: Path) -> None:
    dispatcher = make_dispatcher()
    with pytest.raises(NotNowError) as caught:
        await dispatcher.connect("i1", f"unix:{tmp_path}/nobody", timeout_s=0.05)
    assert caught.value.code == "instance-unreachable"
    late = FakeInstance(str(tmp_path / "nobody"))
    await late.start()
    dispatcher.publish(routes(1))
    await until(lambda: dispatcher.is_ready("echo"))
    await dispatcher.close()
    await late.stop()


async def test_a_body_that_fills_the_buffer_passes_and_so_do_those_behind_it(
    tmp_path: Path,
) -> None:
    """On a real socket whose other end does not read for a while."""
    instance = FakeInstance(str(tmp_path / "i1"))
    await instance.start()
    dispatcher = make_dispatcher()
    await dispatcher.connect("i1", instance.address)
    dispatcher.publish(routes(1, outstanding_max=100))
    await until(lambda: instance.connections)
    transport = instance.connections[0].transport
    transport.pause_reading()
    bodies = [b"z" * (BUFFER_BYTES_MAX + (4 << 20)), *(b"%d" % number for number in range(50))]
    told = [invoke(dispatcher, bodies[0])[1]]
    await until(lambda: dispatcher.table._paused == {"i1"})
    told += [invoke(dispatcher, body)[1] for body in bodies[1:]]
    assert all(each.told == [] for each in told)
    transport.resume_reading()
    await until(lambda: all(each.told for each in told))
    assert [each.told for each in told] == [[("reply", body)] for body in bodies]
    assert dispatcher.table._paused == set()
    await dispatcher.close()
    await instance.stop()
