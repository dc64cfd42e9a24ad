"""A port that outlives its listeners: who connects between two of them waits for the next."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.http_site import site
from tests.kit import certificates
from tests.kit.gateway import run
from tests.kit.http_clients import RawClient, post
from tests.kit.polling import until

from penstock.gateway.http.shared_port import SharedPort

pytestmark = pytest.mark.loop(by=run)


@pytest.fixture
def kept() -> Iterator[SharedPort]:
    port = SharedPort("127.0.0.1", 0)
    port.listen()
    yield port
    port.close()


async def test_who_connects_between_two_listeners_is_served_by_the_next(kept: SharedPort) -> None:
    for _ in range(2):
        waiting = await RawClient.to(kept.port)
        waiting.write(post("/hot/x", b"one"))
        async with site(kept=kept):
            assert (await waiting.answer())[2] == b"one"
        waiting.close()
    kept.close()
    with pytest.raises(ConnectionRefusedError):
        await RawClient.to(kept.port)


async def test_it_is_the_same_with_tls(kept: SharedPort, tmp_path: Path) -> None:
    context, _ = certificates.make(tmp_path)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    for _ in range(2):
        waiting = asyncio.create_task(RawClient.to(kept.port, ssl=trusting))
        await asyncio.sleep(0)
        async with site(kept=kept, tls=context):
            client = await waiting
            assert (await client.ask(post("/hot/x", b"one")))[2] == b"one"
        client.close()


async def test_the_first_request_of_a_connection_that_was_just_accepted_is_answered(
    kept: SharedPort,
) -> None:
    """It may be on its way when its listener stops; a connection that says nothing holds up
    nobody for long."""
    async with site(kept=kept) as served:
        asks, silent = await RawClient.to(kept.port), await RawClient.to(kept.port)
        await until(lambda: len(served.listener.connections) == 2)
        stopping = asyncio.create_task(served.listener.stop(30.0))
        await asyncio.sleep(0)
        assert (await asks.ask(post("/hot/x", b"one")))[2] == b"one"
        async with asyncio.timeout(10):
            await stopping
        assert await silent.reader.read() == b""
        asks.close()
        silent.close()
