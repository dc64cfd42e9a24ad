"""What gRPC calls may hold: before their credentials are looked at, and while messages come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from tests.api.http2_frames import BareClient
from tests.kit.doors import DoorSite, door_site
from tests.kit.polling import until

from penstock.api.oip import grpc_calls
from penstock.api.oip.grpc import ENVELOPE_BYTES_MAX, STREAMS_OF_ONE_MAX
from penstock.api.oip.grpc_calls import (
    LOOKAHEAD_BYTES,
    RECEIVED_AT_ONCE_MAX,
    RECEIVED_AT_ONCE_OF_ONE,
    MessageReader,
)
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.grants import Grant
from penstock.errors import CallerError, NotNowError
from penstock.wire.aws.errors import AwsError
from penstock.wire.oip_messages import SERVICE, ModelInferRequest

MESSAGE_BYTES = 6_000_000
CALLS = 60


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def grant_of(token: str) -> Grant:
    if token != "right":
        raise AwsError("UnrecognizedClientException", "Who is this?", status=403)
    return Grant("invoke", frozenset({"echo"}))


async def pour(client: BareClient, calls: list[int]) -> int:
    """Sends until the server takes no more of any call; returns how many bytes that was."""
    quiet = 0
    while quiet < 20:
        moved = [client.send(call, MESSAGE_BYTES) for call in calls]
        quiet = 0 if any(moved) else quiet + 1
        await asyncio.sleep(0.01)
    return sum(client.bytes_sent.values())


@pytest.mark.parametrize("metadata", [(), ((b"authorization", b"Bearer wrong"),)])
def test_a_denied_call_ends_without_its_message_and_nothing_of_it_is_held(
    metadata: tuple[tuple[bytes, bytes], ...],
) -> None:
    async def main() -> None:
        async with door_site(grant_of=grant_of) as served:
            client = await BareClient.open(served.grpc_port)
            for method in ("ModelInfer", "ModelStreamInfer", "ModelMetadata", "NoSuchMethod"):
                call = client.call(method, metadata)
                await until(lambda call=call: call in client.ended)
            calls = [client.call("ModelInfer", metadata) for _ in range(CALLS)]
            assert await pour(client, calls) <= CALLS * LOOKAHEAD_BYTES
            await until(lambda: client.ended.issuperset(calls))
            await client.close()

    run(main)


def test_unfinished_calls_hold_as_much_as_is_received_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sixty calls whose messages never end, from one connection that may call."""
    monkeypatch.setattr(grpc_calls, "PATIENCE_S", 60.0)

    async def main() -> None:
        async with door_site(grant_of=grant_of) as served:
            client = await BareClient.open(served.grpc_port)
            assert client.streams_max == STREAMS_OF_ONE_MAX
            metadata = ((b"authorization", b"Bearer right"),)
            calls = [client.call("ModelInfer", metadata) for _ in range(CALLS)]
            sent = await pour(client, calls)
            asked_for = RECEIVED_AT_ONCE_OF_ONE * MESSAGE_BYTES
            assert asked_for - RECEIVED_AT_ONCE_OF_ONE <= sent
            assert sent <= asked_for + CALLS * 2 * LOOKAHEAD_BYTES
            await client.close()

    run(main)


@pytest.mark.parametrize("method", ["ModelInfer", "ModelReady"])
def test_a_call_whose_message_does_not_come_ends(method: str) -> None:
    async def main() -> None:
        async with door_site(body_timeout_s=0.2) as served:
            client = await BareClient.open(served.grpc_port)
            silent, unfinished = client.call(method), client.call(method)
            assert client.send(unfinished, MESSAGE_BYTES)
            await until(lambda: {silent, unfinished} <= client.ended)
            assert served.dispatcher.in_flight == 0
            await client.close()

    run(main)


def test_slow_connections_do_not_keep_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has had its time gives way, and only where somebody else waits for it."""
    monkeypatch.setattr(grpc_calls, "PATIENCE_S", 0.1)

    async def main() -> None:
        async with door_site() as served:
            slow = [await BareClient.open(served.grpc_port) for _ in range(4)]
            for client in slow:
                for _ in range(RECEIVED_AT_ONCE_MAX):
                    client.send(client.call("ModelInfer"), MESSAGE_BYTES)
            await infer(served)
            for client in slow:
                await client.close()

    run(main)


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady"])
def test_what_anybody_may_ask_keeps_nobody_with_a_key_out(
    monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Strangers' messages that never end: what they ask does not wait for them."""
    monkeypatch.setattr(grpc_calls, "PATIENCE_S", 60.0)

    async def main() -> None:
        async with door_site(grant_of=grant_of) as served:
            strangers = [await BareClient.open(served.grpc_port) for _ in range(3)]
            for client in strangers:
                calls = [client.call(method) for _ in range(RECEIVED_AT_ONCE_MAX)]
                assert await pour(client, calls) <= len(calls) * 2 * LOOKAHEAD_BYTES
                await until(lambda client=client, calls=calls: client.ended.issuperset(calls))
            assert await infer(served, "right")
            for client in strangers:
                await client.close()

    run(main)


def test_open_streams_reserve_little_and_hold_what_has_come_of_their_messages() -> None:
    """Many idle streams, then some whose second message never ends: they hold what they have sent,
    up to gRPC's half of the budget. The connection that sent most is cut; others go on."""

    async def main() -> None:
        mib = 1 << 20
        async with door_site(bodies_bytes_max=96 * mib, body_bytes_max=mib) as served:
            greedy = await BareClient.open(served.grpc_port)
            honest = grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}")
            path = f"/{SERVICE}/ModelStreamInfer"
            small = ModelInferRequest(model_name="echo").SerializeToString()
            streams = [honest.stream_stream(path)() for _ in range(100)]
            for stream in streams:
                await stream.write(small)
                assert await stream.read()
            budget = served.bodies
            assert budget.bytes_taken == 100 * LOOKAHEAD_BYTES

            calls = [greedy.call("ModelStreamInfer") for _ in range(10)]
            for call in calls:
                greedy.send_whole(call, small)
            await until(lambda: budget.bytes_taken == 110 * LOOKAHEAD_BYTES)
            most = 0
            while not greedy.ended.issuperset(calls):
                for call in calls * 20:
                    greedy.send(call, 60 * mib)
                await asyncio.sleep(0.01)
                most = max(most, budget.bytes_taken)
            assert 30 * mib < most <= 48 * mib + 110 * LOOKAHEAD_BYTES
            await until(lambda: budget.bytes_taken == 100 * LOOKAHEAD_BYTES)
            for stream in streams:
                await stream.write(small)
                assert await stream.read()
            await honest.close()
            await greedy.close()

    run(main)


async def infer(served: DoorSite, token: str = "", model: str = "echo") -> bytes:
    message = ModelInferRequest(model_name=model).SerializeToString()
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        return bytes(await call(message, timeout=30, metadata=metadata))


def test_a_key_of_one_endpoint_is_denied_what_the_message_asks_of_another() -> None:
    async def main() -> None:
        async with door_site(grant_of=grant_of) as served:
            assert await infer(served, "right")
            for token, model, code in (
                ("right", "bank", grpc.StatusCode.PERMISSION_DENIED),
                ("wrong", "echo", grpc.StatusCode.UNAUTHENTICATED),
                ("", "echo", grpc.StatusCode.UNAUTHENTICATED),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await infer(served, token, model)
                assert caught.value.code() == code

    run(main)


async def messages(*given: bytes) -> Any:
    for one in given:
        yield one


async def never() -> Any:
    await asyncio.Event().wait()
    yield b""


def test_room_is_taken_while_a_message_comes_and_given_back_whatever_happens() -> None:
    async def main() -> None:
        budget = BodyBudget(100)
        reader = MessageReader(budget, 60, 0.05)
        assert await reader.first(messages(b"one"), "a") == b"one"
        assert budget.bytes_taken == 0
        with pytest.raises(CallerError, match="without a message"):
            await reader.first(messages(), "a")
        waiting = asyncio.ensure_future(reader.first(never(), "a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert budget.bytes_taken == 60
        with pytest.raises(CallerError) as caught:
            await waiting
        assert caught.value.code == "message-too-slow"
        assert budget.bytes_taken == 0
        assert budget.take(60)  # another door has so much
        with pytest.raises(NotNowError):
            await reader.first(messages(b"two"), "b")

    run(main)


def test_messages_wait_for_room_rather_than_being_refused() -> None:
    async def main() -> None:
        reader = MessageReader(BodyBudget(400), 100, 5.0)  # half of it has room for two
        gate = asyncio.Event()

        async def behind() -> Any:
            await gate.wait()
            yield b"late"

        early = [asyncio.ensure_future(reader.first(behind(), name)) for name in "ab"]
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(reader.first(messages(b"third"), "c"))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        gate.set()
        assert await asyncio.gather(*early, waiting) == [b"late", b"late", b"third"]

    run(main)


def test_a_call_of_many_messages_holds_its_room_until_there_are_no_more() -> None:
    async def main() -> None:
        budget = BodyBudget(100)
        reader = MessageReader(budget, 60, 5.0)
        with reader.stream(messages(b"one", b"two"), "a") as given:
            assert await anext(given) == b"one"
            assert budget.bytes_taken == 60
            assert await anext(given) == b"two"
            with pytest.raises(StopAsyncIteration):
                await anext(given)
            assert budget.bytes_taken == 0
        with reader.stream(never(), "a"):
            assert budget.bytes_taken == 60
        assert budget.bytes_taken == 0

    run(main)


def test_turns_that_end_together_leave_nobody_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """All slow messages have had their time at one moment, as after a pause of the process."""
    monkeypatch.setattr(grpc_calls, "PATIENCE_S", 0.05)

    async def main() -> None:
        reader = MessageReader(BodyBudget(1 << 40), ENVELOPE_BYTES_MAX, 600.0)
        names = [name for name in "abcd" for _ in range(RECEIVED_AT_ONCE_OF_ONE)]
        slow = [asyncio.ensure_future(reader.first(never(), name)) for name in names]
        quick = asyncio.ensure_future(reader.first(messages(b"quick"), "e"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251 - the process itself stands still
        assert await quick == b"quick"
        for one in slow:
            one.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    run(main)


def test_calls_wait_their_turn_and_are_served_in_the_order_they_came() -> None:
    async def main() -> None:
        reader = MessageReader(BodyBudget(1 << 40), ENVELOPE_BYTES_MAX, 5.0)
        gates = [asyncio.Event() for _ in range(RECEIVED_AT_ONCE_OF_ONE + 2)]
        began: list[int] = []

        async def behind(number: int) -> Any:
            began.append(number)
            await gates[number].wait()
            yield b"%d" % number

        tasks = [
            asyncio.ensure_future(reader.first(behind(number), "a")) for number in range(len(gates))
        ]
        await asyncio.sleep(0.01)
        assert began == list(range(RECEIVED_AT_ONCE_OF_ONE))
        assert await reader.first(messages(b"b"), "another connection") == b"b"
        tasks[-2].cancel()
        gates[3].set()
        assert await tasks[3] == b"3"
        await asyncio.sleep(0.01)
        assert began[-1] == len(gates) - 1
        for gate in gates:
            gate.set()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(one, bytes) for one in done) == len(gates) - 1

    run(main)
