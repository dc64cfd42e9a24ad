"""What gRPC calls may hold: before their credentials are looked at, and while messages come."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
import pytest
from tests.api.http2_frames import BareClient
from tests.kit.doors import DoorSite, door_site
from tests.kit.polling import until

from penstock.api.oip.grpc import STREAMS_OF_ONE_MAX
from penstock.core.request.grants import Grant
from penstock.wire.aws.errors import AwsError
from penstock.wire.http2.spec import Http2Spec
from penstock.wire.oip_messages import SERVICE, ModelInferRequest

#: What a client may send of all its calls before the server has seen any of it.
AHEAD_BYTES = Http2Spec().connection_window_bytes
MIB = 1 << 20
MESSAGE_BYTES = 6_000_000
CALLS = 60
CALLS_OF_STRANGERS = 16


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
            assert await pour(client, calls) <= AHEAD_BYTES
            await until(lambda: client.ended.issuperset(calls))
            assert served.bodies.bytes_taken == 0
            await client.close()

    run(main)


def test_unfinished_calls_hold_no_more_than_half_of_the_budget() -> None:
    """Sixty calls whose messages never end, from one connection that may call. Those that find no
    room are refused, and the others keep theirs until the client is gone."""

    async def main() -> None:
        async with door_site(
            grant_of=grant_of, bodies_bytes_max=96 * MIB, body_bytes_max=MIB
        ) as served:
            client = await BareClient.open(served.grpc_port)
            assert client.streams_max == STREAMS_OF_ONE_MAX
            metadata = ((b"authorization", b"Bearer right"),)
            calls = [client.call("ModelInfer", metadata) for _ in range(CALLS)]
            await pour(client, calls)
            kept = [call for call in calls if call not in client.ended]
            assert 0 < len(kept) < CALLS
            assert served.bodies.bytes_taken == sum(client.bytes_sent[call] for call in kept)
            assert served.bodies.bytes_taken <= 48 * MIB
            await client.close()
            await until(lambda: served.bodies.bytes_taken == 0)

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


def test_slow_connections_do_not_keep_others_out() -> None:
    async def main() -> None:
        async with door_site() as served:
            slow = [await BareClient.open(served.grpc_port) for _ in range(4)]
            for client in slow:
                for _ in range(CALLS_OF_STRANGERS):
                    client.send(client.call("ModelInfer"), MESSAGE_BYTES)
            await infer(served)
            for client in slow:
                await client.close()

    run(main)


@pytest.mark.parametrize("method", ["ServerLive", "ServerReady"])
def test_what_anybody_may_ask_keeps_nobody_with_a_key_out(method: str) -> None:
    """Strangers' messages that never end: what they ask does not wait for them."""

    async def main() -> None:
        async with door_site(grant_of=grant_of) as served:
            strangers = [await BareClient.open(served.grpc_port) for _ in range(3)]
            for client in strangers:
                calls = [client.call(method) for _ in range(CALLS_OF_STRANGERS)]
                assert await pour(client, calls) <= AHEAD_BYTES
                await until(lambda client=client, calls=calls: client.ended.issuperset(calls))
                assert served.bodies.bytes_taken == 0
            assert await infer(served, "right")
            for client in strangers:
                await client.close()

    run(main)


def test_open_streams_hold_nothing_but_what_has_come_of_their_messages() -> None:
    """Many idle streams, then some whose second message never ends: they hold what they have sent,
    up to gRPC's half of the budget. Those that want more are cut; others go on."""

    async def main() -> None:
        async with door_site(bodies_bytes_max=96 * MIB, body_bytes_max=MIB) as served:
            greedy = await BareClient.open(served.grpc_port)
            honest = grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}")
            path = f"/{SERVICE}/ModelStreamInfer"
            small = ModelInferRequest(model_name="echo").SerializeToString()
            streams = [honest.stream_stream(path)() for _ in range(100)]
            for stream in streams:
                await stream.write(small)
                assert await stream.read()
            budget = served.bodies
            assert budget.bytes_taken == 0

            calls = [greedy.call("ModelStreamInfer") for _ in range(10)]
            for call in calls:
                greedy.send_whole(call, small)
            most = 0
            while not greedy.ended.issuperset(calls):
                for call in calls * 20:
                    greedy.send(call, 6 * MIB)
                await asyncio.sleep(0.01)
                most = max(most, budget.bytes_taken)
                if sum(greedy.bytes_sent[call] for call in calls if call not in greedy.ended) > (
                    40 * MIB
                ):
                    break
            assert 30 * MIB < most <= 48 * MIB
            for stream in streams:
                await stream.write(small)
                assert await stream.read()
            await honest.close()
            await greedy.close()
            await until(lambda: budget.bytes_taken == 0)

    run(main)


@pytest.mark.parametrize(("method", "status"), [("ModelInfer", "3"), ("ModelStreamInfer", "0")])
def test_a_message_that_inflates_takes_its_room_before_and_no_turn_of_others(
    method: str, status: str
) -> None:
    """Messages of 60 KB that inflate to 60 MB (of zeros: they are refused then), and a small one
    that comes after them: it is answered first. The budget has no room for all of them."""

    async def main() -> None:
        async with door_site(bodies_bytes_max=256 * MIB) as served:
            client = await BareClient.open(served.grpc_port)
            small = ModelInferRequest(model_name="echo", id="7" * 1_000).SerializeToString()
            packed = gzip.compress(bytes(60 * MIB))
            gzipped = ((b"grpc-encoding", b"gzip"),)
            calls = [client.call(method, gzipped) for _ in range(4)]
            for call in calls:
                client.send_whole(call, packed, compressed=True)
                client.end(call)
            last = client.call(method, gzipped)
            client.send_whole(last, gzip.compress(small), compressed=True)
            client.end(last)
            await until(lambda: last in client.ended)
            most = 0
            while not client.ended:
                most = max(most, served.bodies.bytes_taken)
                await asyncio.sleep(0)
            assert client.ended == {last}
            while not client.ended.issuperset(calls):
                most = max(most, served.bodies.bytes_taken)
                await asyncio.sleep(0)
            assert 60 * MIB < most <= 128 * MIB
            assert {client.statuses[call] for call in calls} == {"14", status}
            await client.close()
            await until(lambda: served.bodies.bytes_taken == 0)

    run(main)


def test_an_inflating_call_whose_client_goes_gives_its_room_back() -> None:
    async def main() -> None:
        async with door_site() as served:
            client = await BareClient.open(served.grpc_port)
            call = client.call("ModelInfer", ((b"grpc-encoding", b"gzip"),))
            client.send_whole(call, gzip.compress(bytes(60 * MIB)), compressed=True)
            await until(lambda: served.bodies.bytes_taken > MIB)
            await client.close()
            await until(lambda: served.bodies.bytes_taken == 0)
            assert served.dispatcher.in_flight == 0

    run(main)


@pytest.mark.parametrize("begun", [b"", b"\0\0\0\0\5abc"])
def test_a_stream_that_ends_within_a_message_fails(begun: bytes) -> None:
    async def main() -> None:
        async with door_site() as served:
            client = await BareClient.open(served.grpc_port)
            call = client.call("ModelStreamInfer")
            client.end(call, begun)
            await until(lambda: call in client.ended)
            assert client.statuses[call] == ("13" if begun else "0")
            await client.close()

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
