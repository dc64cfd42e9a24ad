"""HTTP requests over HTTP/2 at an HTTP port: the same doors, bounds and refusals."""

from __future__ import annotations

import pytest
from tests.gateway.http_site import site
from tests.kit.gateway import PREFIX, run
from tests.kit.http2_clients import Http2Client

pytestmark = pytest.mark.loop(by=run)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 10, 23, 24, 25])
async def test_a_preface_makes_a_connection_http2_however_it_is_cut(cut: int) -> None:
    async with site() as served:
        client = await Http2Client.to(served.port, preface_cut=cut)
        got = await client.ask("GET", "/hot/x?q=1")
        assert (got.status, got.headers["x-query"], got.body) == (200, "q=1", b"")
        assert got.headers["x-amzn-requestid"].startswith(PREFIX)
        got = await client.ask("POST", "/hot/x", b"hello")
        assert (got.status, got.body, got.headers["content-length"]) == (200, b"hello", "5")
        assert served.door.written_urls == [b"/hot/x?q=1", b"/hot/x"]
        client.close()
