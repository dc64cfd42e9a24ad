"""Hosts, pages and framing on the wire: what a browser could be made to send, in these bytes."""

from __future__ import annotations

import pytest
from tests.gateway.http_site import POST, Gatekeeper, site
from tests.kit.gateway import run
from tests.kit.http_clients import post

from penstock.core.request.host_gate import HostGate

pytestmark = pytest.mark.loop(by=run)

LENGTH = b"Content-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"POST /hot/x HTTP/1.1\r\nHost: evil.example:8080\r\n", 421, b"host-unknown"),
        (b"GET /hot/x HTTP/1.1\r\nHost: evil.example\r\n", 421, b"host-unknown"),
        (b"POST /hot/x HTTP/1.1\r\n", 400, b"host-missing"),
        (b"POST /hot/x HTTP/1.1\r\nHost:\r\n", 400, b"host-malformed"),
        (b"POST /hot/x HTTP/1.1\r\nHost: x\r\nHost: x\r\n", 400, b"host-repeated"),
        (b"POST /hot/x HTTP/1.1\r\nHost: x\r\nHost: evil.example\r\n", 400, b"host-repeated"),
        (b"POST /hot/x HTTP/1.1\r\nHost: evil.example\r\nhOST: x\r\n", 400, b"host-repeated"),
        (b"POST http://evil.example/hot/x HTTP/1.1\r\nHost: x\r\n", 400, b"host-repeated"),
        (b"POST http://x/hot/x HTTP/1.1\r\nHost: evil.example\r\n", 421, b"host-unknown"),
        (b"POST http://evil.example/hot/x HTTP/1.0\r\n", 421, b"host-unknown"),
        (POST + b"Origin: https://evil.example\r\n", 403, b"page-foreign"),
        (POST + b"Origin: null\r\n", 403, b"page-foreign"),
        (POST + b"Origin: http://x\r\nOrigin: http://x\r\n", 403, b"page-foreign"),
        (POST + b"Sec-Fetch-Site: cross-site\r\n", 403, b"page-foreign"),
        (POST + b"Sec-Fetch-Site: same-site\r\n", 403, b"page-foreign"),
        (POST + b"Origin: http://x\r\nSec-Fetch-Site: same-origin\r\n", 200, b""),
        (b"POST http://x/hot/x HTTP/1.1\r\nHost: x\r\n", 200, b""),
        (b"POST /hot/x HTTP/1.0\r\n", 200, b""),
    ],
)
async def test_a_request_names_this_server_once_and_comes_from_no_foreign_page(
    head: bytes, status: int, code: bytes
) -> None:
    """The second request asks with the name already known: it is judged in the same way."""
    async with site() as served:
        for _ in range(2):
            client = await served.client()
            got, headers, body = await client.ask(head + LENGTH)
            assert (got, body) == (status, code)
            assert status == 200 or headers["connection"] == "close"
            other = await served.client()
            assert (await other.ask(POST + LENGTH))[0] == 200
        assert len(served.door.refused) == (0 if status == 200 else 2)


async def test_on_one_connection_each_request_is_judged_by_itself() -> None:
    async with site() as served:
        client = await served.client()
        client.write(
            POST + LENGTH + POST + LENGTH + b"POST /hot/x HTTP/1.1\r\n" + LENGTH + POST + LENGTH
        )
        assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 400]
        assert await client.closed() == b""


async def test_a_name_that_settings_list_passes_and_so_does_a_page() -> None:
    gate = HostGate(hosts=("api.example",), origins=("https://page.example",))
    async with site(gate=gate) as served:
        client = await served.client()
        head = b"POST /hot/x HTTP/1.1\r\nHost: API.example:443\r\n"
        assert (await client.ask(head + b"Origin: https://page.example\r\n" + LENGTH))[0] == 200
        assert (await client.ask(POST + LENGTH))[::2] == (421, b"host-unknown")


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "chunked, chunked", "x"])
async def test_no_coding_but_chunked_reaches_a_door(coding: str) -> None:
    """Passed on, its bytes would stand for another body than the client's."""
    async with site() as served:
        client = await served.client()
        client.write(POST + f"Transfer-Encoding: {coding}\r\n\r\n".encode())
        assert (await client.ask(b"3\r\nabc\r\n0\r\n\r\n"))[0] == 400
        assert await client.closed() == b""
        assert len(served.door.refused) == 1
        assert served.door.handled == []


async def test_an_upgrade_that_is_refused_is_answered_once() -> None:
    """Its head comes by twice, since llhttp takes what follows for the other protocol."""
    gate = Gatekeeper()
    async with site(authenticator=gate, body_bytes_max=1000) as served:
        upgrade = ("Connection: Upgrade", "Upgrade: h2c")
        for request, code in (
            (post("/hot/x", b"abc", *upgrade), "MissingAuthenticationTokenException"),
            (post("/hot/x", b"x" * 1001, "Authorization: a", *upgrade), "body-too-large"),
            (post("/hot/x", b"", "Origin: http://evil.example", *upgrade), "page-foreign"),
            (post("/hot/x", b"", "Expect: miracles", *upgrade, "Authorization: a"),
             "expectation-unknown"),
        ):  # fmt: skip
            served.door.refused.clear()
            gate.heads.clear()
            client = await served.client()
            _, _, body = await client.ask(request)
            assert (body.decode(), await client.closed()) == (code, b"")
            assert served.door.refused == [code]
            assert len(gate.heads) <= 1
        assert served.listener.ids.count == 4


async def test_an_upgrade_behind_a_refused_request_is_not_looked_at() -> None:
    async with site() as served:
        client = await served.client()
        upgrade = post("/hot/x", b"", "Connection: Upgrade", "Upgrade: h2c")
        assert (await client.ask(POST + b"Origin: null\r\n" + LENGTH + upgrade))[0] == 403
        assert await client.closed() == b""
        assert (served.door.refused, served.door.handled) == (["page-foreign"], [])
        assert served.listener.ids.count == 1


async def test_an_upgrade_is_asked_to_go_on_once() -> None:
    async with site() as served:
        client = await served.client()
        client.write(
            POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n"
            b"Content-Length: 2\r\n\r\n"
        )
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert (await client.ask(b"ok"))[2] == b"ok"
