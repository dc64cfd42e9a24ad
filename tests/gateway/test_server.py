"""A gateway's HTTP side put together: its port, its certificate, and how it stops."""

from __future__ import annotations

import asyncio
import random
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.kit.gateway import PREFIX, FakeInstance, echo, routes, run, silent
from tests.kit.http_clients import RawClient, post
from tests.kit.polling import until

from penstock.clock import SystemClock
from penstock.config import LimitConfig, ListenConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.errors import CallerError, PenstockError
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.http.call import Call, status_line
from penstock.gateway.http_server.server import GatewayServer, tls_context
from penstock.gateway.request_id import RequestIds
from penstock.gateway.timers import LoopTimers
from penstock.wire.frames import Reply

pytestmark = pytest.mark.loop(by=run)


class Forwarding:
    """A door that sends each body to the endpoint `echo` and tells how it ended."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher

    def handle(self, call: Call) -> bool:
        call.endpoint, call.meta, call.responder = "echo", b"[]", self
        self.dispatcher.invoke(call)
        return True

    def refuse(self, call: Call, error: PenstockError) -> None:
        call.answer_error(error)

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        assert isinstance(invocation, Call)
        invocation.answer(status_line(200), reply.body)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        assert isinstance(invocation, Call)
        invocation.answer(status_line(error.status), error.code.encode())

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        raise AssertionError("no stream is asked for")

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        raise AssertionError("no stream is asked for")

    def written(self, call: Call) -> None:
        self.dispatcher.written(call)

    def abandoned(self, call: Call) -> None:
        self.dispatcher.cancel(call)


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 418, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serving(
    folder: Path, *, drain_s_max: float = 5.0, **options: Any
) -> AsyncIterator[tuple[GatewayServer, FakeInstance]]:
    clock = SystemClock()
    limits = LimitConfig(drain_s_max=drain_s_max)
    dispatcher = Dispatcher(
        clock=clock,
        timers=LoopTimers(asyncio.get_running_loop(), clock),
        rng=random.Random(1),
        limits=limits,
        ids=RequestIds(PREFIX),
    )
    instance = FakeInstance(str(folder / "i1"))
    await instance.start()
    await dispatcher.connect("i1", instance.address)
    dispatcher.publish(routes(1))
    door = Forwarding(dispatcher)
    server = GatewayServer(
        ListenConfig(port=0), limits, dispatcher, [(b"/hot/", door)], application, **options
    )
    assert server.port == 0
    try:
        yield server, instance
    finally:
        await server.stop()
        await instance.stop()


async def test_it_serves_its_doors_and_its_application_on_one_port(tmp_path: Path) -> None:
    bodies = BodyBudget(1000)
    async with serving(tmp_path, bodies=bodies, interest=(b"x-own",)) as (server, _):
        assert await server.start() == server.port != 0
        assert server.listener.bodies is bodies
        client = await RawClient.to(server.port)
        assert (await client.ask(post("/hot/x", b"there and back") + post("/other")))[::2] == (
            200,
            b"there and back",
        )
        assert (await client.answer())[0] == 418
        client.close()


async def test_a_request_in_flight_is_answered_before_the_server_stops(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, instance):
        await server.start()
        held: list[Any] = []
        instance.on_invoke = lambda *args: held.append(args)
        client = await RawClient.to(server.port)
        client.write(post("/hot/x", b"last"))
        await until(lambda: held)
        stopping = asyncio.ensure_future(server.stop())
        other = asyncio.ensure_future(client.answer())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        connection, ident, invoke = held[0]
        echo(connection, ident, invoke)
        assert (await other)[::2] == (200, b"last")
        assert await stopping is True
        await until(lambda: not instance.connections)
        client.close()


async def test_what_does_not_end_in_time_is_told_so_and_the_stop_tells_of_it(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, drain_s_max=0.05) as (server, instance):
        await server.start()
        instance.on_invoke = silent
        client = await RawClient.to(server.port)
        client.write(post("/hot/x", b"never"))
        await until(lambda: instance.invokes)
        assert await server.stop() is False
        assert (await client.answer())[::2] == (503, b"stopping")
        assert await client.closed() == b""
        client.close()


async def test_two_servers_share_a_port_only_if_they_say_so(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    async with serving(folders[0], reuse_port=True) as (first, _):
        await first.start()
        async with serving(folders[1], reuse_port=True) as (second, _):
            second._config = ListenConfig(port=first.port)
            assert await second.start() == first.port
        async with serving(folders[2]) as (third, _):
            third._config = ListenConfig(port=first.port)
            with pytest.raises(CallerError) as caught:
                await third.start()
            assert caught.value.code == "port-in-use"


async def test_whom_it_is_called_by_follows_from_where_it_listens(tmp_path: Path) -> None:
    """On a loopback address nobody need show credentials, so only loopback's names may call."""
    async with serving(tmp_path) as (server, _):
        await server.start()
        client = await RawClient.to(server.port)
        assert (await client.ask(b"GET /other HTTP/1.1\r\nHost: evil.example\r\n\r\n"))[0] == 421
        client.close()


# Certificates


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A certificate, its key, and the same key under a password."""
    folder: Path = tmp_path_factory.mktemp("pair")
    cert, key, locked = folder / "cert.pem", folder / "key.pem", folder / "locked.pem"
    for command in (
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)],
        ["ec", "-in", str(key), "-aes256", "-passout", "pass:secret", "-out", str(locked)],
    ):  # fmt: skip
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return cert, key, locked


def test_without_files_there_is_no_tls(pair: tuple[Path, Path, Path]) -> None:
    assert tls_context(ListenConfig()) is None


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["h2", "http/1.1"], "h2"),
        (["http/1.1", "h2"], "h2"),
        (["http/1.1"], "http/1.1"),
        (["h2"], "h2"),
        (["http/1.0"], None),
    ],
)
def test_a_certificate_and_its_key_make_a_server_of_both_versions(
    pair: tuple[Path, Path, Path], offered: list[str], chosen: str | None
) -> None:
    context = tls_context(ListenConfig(tls_cert=pair[0], tls_key=pair[1]))
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.protocol == ssl.PROTOCOL_TLS_SERVER
    server_in, server_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(server_in, server_out, server_side=True)
    asking = ssl.create_default_context(cafile=str(pair[0]))
    asking.set_alpn_protocols(offered)
    client_in, client_out = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(client_in, client_out, server_hostname="localhost")
    for _ in range(4):
        for end, incoming, outgoing in (
            (client, server_in, client_out),
            (server, client_in, server_out),
        ):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
            incoming.write(outgoing.read())
    assert client.selected_alpn_protocol() == chosen


@pytest.mark.parametrize("given", ["cert", "key", "locked", "missing", "strangers"])
def test_files_that_make_no_tls_are_an_error_and_never_a_question(
    pair: tuple[Path, Path, Path], tmp_path: Path, given: str
) -> None:
    """OpenSSL would ask the terminal for a password."""
    cert, key, locked = pair
    config = {
        "cert": ListenConfig(tls_cert=cert),
        "key": ListenConfig(tls_key=key),
        "locked": ListenConfig(tls_cert=cert, tls_key=locked),
        "missing": ListenConfig(tls_cert=cert, tls_key=tmp_path / "none.pem"),
        "strangers": ListenConfig(tls_cert=key, tls_key=cert),
    }[given]
    with pytest.raises(CallerError) as caught:
        tls_context(config)
    assert caught.value.code == "tls-unusable"
