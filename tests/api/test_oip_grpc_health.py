"""gRPC's health checking protocol, in the very bytes that probes send and read."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from tests.kit.doors import DoorSite, door_site
from tests.kit.gateway import routes, run

from penstock.api.oip import grpc_health
from penstock.core.request.grants import Grant
from penstock.gateway.http.listener_state import Denied
from penstock.wire.oip_messages import SERVICE

pytestmark = pytest.mark.loop(by=run)

#: HealthCheckResponse with each status.
SERVING, NOT_SERVING, SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"
WITH_KEY = (("authorization", "Bearer k"),)


def asked(service: str) -> bytes:
    return b"\x0a" + bytes([len(service)]) + service.encode() if service else b""


async def check(served: DoorSite, service: str, metadata: Any = ()) -> bytes:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
        method = channel.unary_unary("/grpc.health.v1.Health/Check")
        return bytes(await method(asked(service), metadata=metadata, timeout=60))


async def refused(awaitable: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    code: grpc.StatusCode = caught.value.code()
    return code


def grant_of(token: str) -> Grant:
    if token != "k":
        raise Denied("UnrecognizedClientException", "no such key")
    return Grant("invoke", frozenset({"echo"}))


async def test_check_tells_of_the_server_and_of_each_model() -> None:
    async with door_site() as served:
        served.dispatcher.publish(routes(2, endpoint="loading"))
        assert await check(served, "") == SERVING
        assert await check(served, SERVICE) == SERVING
        assert await check(served, "echo") == SERVING
        assert await check(served, "loading") == NOT_SERVING
        assert await refused(check(served, "nobody")) == grpc.StatusCode.NOT_FOUND


async def test_strangers_learn_whether_the_server_serves_and_no_more() -> None:
    async with door_site(grant_of=grant_of) as served:
        for service in ("", "echo", "nobody"):
            assert await check(served, service) == SERVING
        assert await check(served, "echo", WITH_KEY) == SERVING
        code = grpc.StatusCode
        assert await refused(check(served, "nobody", WITH_KEY)) == code.PERMISSION_DENIED
        wrong = (("authorization", "Bearer other"),)
        assert await refused(check(served, "", wrong)) == code.UNAUTHENTICATED


async def test_watch_tells_each_change() -> None:
    async with (
        door_site() as served,
        grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel,
    ):
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        stream = watch(asked("later"), timeout=20)
        assert await stream.read() == SERVICE_UNKNOWN
        served.dispatcher.publish(routes(2, endpoint="later"))
        assert await stream.read() == NOT_SERVING
        server = watch(b"", timeout=20)
        assert await server.read() == SERVING
        await served.dispatcher.drain(0.0)
        assert await server.read() == NOT_SERVING
        assert await server.read() == grpc.aio.EOF


async def test_watches_are_bounded_and_their_places_come_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_health, "WATCHES_MAX", 1)
    async with (
        door_site() as served,
        grpc.aio.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel,
    ):
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")
        first = watch(b"", timeout=20)
        assert await first.read() == SERVING
        assert await refused(watch(b"").read()) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await check(served, "") == SERVING  # a probe is not kept out
        first.cancel()
        async with asyncio.timeout(10):
            while True:
                try:
                    assert await watch(b"").read() == SERVING
                    break
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.01)
