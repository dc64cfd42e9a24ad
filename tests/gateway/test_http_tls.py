"""TLS: the same service, and handshakes that are bounded in number and in time."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.http_site import HttpSite, site
from tests.kit.gateway import run
from tests.kit.http2_clients import Http2Client
from tests.kit.http_clients import post
from tests.kit.polling import until

from penstock.gateway.http import tls as tls_module
from penstock.gateway.http2.http_connection import HttpOverHttp2

pytestmark = pytest.mark.loop(by=run)

Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    """The server's, and a client's that trusts it."""
    return make_contexts(tmp_path_factory.mktemp("tls"))


def make_contexts(folder: Path) -> Contexts:
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context, ssl.create_default_context(cafile=str(cert))


async def silent(served: HttpSite) -> asyncio.StreamReader:
    """A client that connects and says nothing."""
    client = await served.client()
    return client.reader


def handshakes(served: HttpSite) -> int:
    assert served.listener.tls is not None
    return len(served.listener.tls)


async def test_tls_serves_the_same(contexts: Contexts) -> None:
    async with site(tls=contexts[0]) as served:
        client = await served.client(ssl=contexts[1], server_hostname="localhost")
        assert (await client.ask(post("/hot/x", b"secret") + post("/hot/big")))[2] == b"secret"
        assert len((await client.answer())[2]) == 20_000_000
        await until(lambda: served.door.written_urls == [b"/hot/x", b"/hot/big"])
        assert handshakes(served) == 0


def offering(contexts: Contexts, *protocols: str) -> Contexts:
    """The server offers both versions of HTTP, and the client these."""
    contexts[0].set_alpn_protocols(["h2", "http/1.1"])
    contexts[1].set_alpn_protocols(protocols)
    return contexts


@pytest.fixture
def fresh_contexts(tmp_path: Path) -> Contexts:
    """Two that a test may change."""
    return make_contexts(tmp_path)


async def test_a_client_that_chooses_http2_gets_it(fresh_contexts: Contexts) -> None:
    server, client_side = offering(fresh_contexts, "h2")
    async with site(tls=server) as served:
        client = await Http2Client.to(served.port, ssl=client_side, server_hostname="localhost")
        assert (await client.ask("POST", "/hot/x", b"secret")).body == b"secret"
        body = bytes(3_000_000)
        assert (await client.ask("POST", "/hot/x", body)).body == body
        assert len((await client.ask("GET", "/hot/big")).body) == 20_000_000
        assert (await client.ask("GET", "/app")).status == 200
        [connection] = served.listener.connections
        assert type(connection) is HttpOverHttp2
        client.close()
        await until(lambda: not served.listener.connections)


async def test_a_client_that_chooses_http_1_1_gets_it(fresh_contexts: Contexts) -> None:
    server, client_side = offering(fresh_contexts, "http/1.1")
    async with site(tls=server) as served:
        client = await served.client(ssl=client_side, server_hostname="localhost")
        assert (await client.ask(post("/hot/x", b"secret")))[::2] == (200, b"secret")


async def test_http2_over_tls_says_that_there_are_too_many_connections(
    fresh_contexts: Contexts,
) -> None:
    server, client_side = offering(fresh_contexts, "h2")
    options: dict[str, Any] = {"ssl": client_side, "server_hostname": "localhost"}
    async with site(tls=server, connections_max=1) as served:
        first = await Http2Client.to(served.port, **options)
        assert (await first.ask("GET", "/hot/x")).status == 200
        second = await Http2Client.to(served.port, **options)
        await second.wait_closed()
        assert second.last_accepted == 0
        assert (await first.ask("GET", "/hot/x")).status == 200
        first.close()


async def test_a_client_that_chose_http2_and_says_nothing_has_the_time_of_a_head(
    fresh_contexts: Contexts,
) -> None:
    server, client_side = offering(fresh_contexts, "h2")
    async with site(tls=server, head_timeout_s=0.2) as served:
        client = await served.client(ssl=client_side, server_hostname="localhost")
        await until(lambda: served.listener.connections)
        await client.closed()
        await until(lambda: not served.listener.connections)


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_served(
    contexts: Contexts,
) -> None:
    def ask(port: int) -> bytes:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = contexts[1].wrap_bio(incoming, outgoing, server_hostname="localhost")
        answer = b""
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if sent := outgoing.read():
                        connection.sendall(sent)
                    incoming.write(connection.recv(65_536))
            client.write(post("/hot/x", b"early"))
            connection.sendall(outgoing.read())
            while b"early" not in answer:
                try:
                    answer += client.read()
                except ssl.SSLWantReadError:
                    incoming.write(connection.recv(65_536))
        return answer

    async with site(tls=contexts[0]) as served:
        answer = await asyncio.to_thread(ask, served.port)
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_handshake_takes_so_long_and_no_longer(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKE_S_MAX", 0.2)
    async with site(tls=contexts[0]) as served:
        client = await served.client()
        await until(lambda: handshakes(served) == 1)
        assert await client.closed() == b""
        await until(lambda: handshakes(served) == 0)
        assert not served.listener.connections


async def test_what_is_no_handshake_leaves_no_trace(contexts: Contexts) -> None:
    async with site(tls=contexts[0]) as served:
        for _ in range(3):
            client = await served.client()
            client.write(post("/hot/x", b"plain"))
            assert b"HTTP/1.1" not in await client.closed()
        await until(lambda: handshakes(served) == 0)
        assert not served.listener.connections


async def test_the_oldest_handshake_ends_for_the_newest(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connect and say nothing, a real client comes in."""
    monkeypatch.setattr(tls_module, "HANDSHAKES_MAX", 4)
    async with site(tls=contexts[0]) as served:
        readers = [await silent(served) for _ in range(20)]
        await until(lambda: handshakes(served) == 4)
        client = await served.client(ssl=contexts[1], server_hostname="localhost")
        assert (await client.ask(post("/hot/x", b"in")))[2] == b"in"
        assert handshakes(served) <= 4
        await until(lambda: sum(reader.at_eof() or bool(reader.exception())
                                for reader in readers) >= 16)  # fmt: skip


async def test_handshakes_count_as_connections(
    contexts: Contexts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.gateway.http.listener_state.TURNED_AWAY_MAX", 2)
    async with site(tls=contexts[0], connections_max=3) as served:
        for _ in range(10):
            await silent(served)
        await until(lambda: handshakes(served) == 5)


@pytest.fixture
def few_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("over_tls", [False, True])
async def test_no_free_descriptor_at_accept_is_survived(
    contexts: Contexts, few_descriptors: None, caplog: pytest.LogCaptureFixture, over_tls: bool
) -> None:
    """It goes on once there are some again, and does not turn in circles meanwhile."""
    async with site(tls=contexts[0] if over_tls else None) as served:
        options: dict[str, Any] = {}
        if over_tls:
            options = {"ssl": contexts[1], "server_hostname": "localhost"}
        waiting = [socket.socket() for _ in range(5)]
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limit = max(each.fileno() for each in waiting) + 1
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        taken: list[int] = []
        while len(taken) < limit:
            try:
                taken.append(os.dup(0))
            except OSError:
                break
        assert len(taken) < limit
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", served.port))
        used_s = time.process_time()
        await asyncio.sleep(0.4)
        assert time.process_time() - used_s < 0.2
        assert caplog.text.count("no connection can be accepted") <= 5
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        for each in waiting:
            each.close()
        client = await served.client(**options)
        assert (await client.ask(post("/hot/x", b"again")))[2] == b"again"
