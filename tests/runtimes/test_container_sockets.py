"""Sockets that another process makes and this one connects: no engine is needed for these rules."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator

import orjson
import pytest
from tests.kit.polling import until
from tools.free_port import free_port

from penstock.runtimes.container import engine
from penstock.runtimes.container.namespace import NamespaceSockets

BATCH = 2


def make(theirs: socket.socket, address: str) -> None:
    """As the attendant's child does, until the other end is closed."""
    asked = b"+"
    while asked:
        made = [socket.socket() for _ in range(BATCH)]
        told = orjson.dumps({"address": address})
        asked = b""
        with contextlib.suppress(OSError):  # the other end is closed
            socket.send_fds(theirs, [told], [each.fileno() for each in made])
            asked = theirs.recv(1)
        for each in made:
            each.close()


@contextlib.asynccontextmanager
async def listening(address: str) -> AsyncIterator[int]:
    """A port of this address alone, which greets."""

    async def greet(_: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        to.write(b"hello")
        to.close()

    port = free_port()
    async with await asyncio.start_server(greet, address, port):
        yield port


@contextlib.asynccontextmanager
async def sockets(
    port: int, *, address: str = "", published: int = 0, entered: bool = True
) -> AsyncIterator[NamespaceSockets]:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    made = NamespaceSockets(ours, port_inside=port, published=published, runs=lambda _: None)
    maker = threading.Thread(target=make, args=(theirs, address))
    if entered:
        maker.start()
    else:
        theirs.close()
    try:
        yield made
    finally:
        made.close()
        if entered:
            await asyncio.to_thread(maker.join)
        theirs.close()


async def greeting(by: NamespaceSockets) -> bytes:
    with await by.connected() as connection:
        return await asyncio.get_running_loop().sock_recv(connection, 100)


async def test_more_connections_at_once_than_sockets_came() -> None:
    async with listening("127.0.0.1") as port, sockets(port) as made:
        found = await asyncio.gather(*(greeting(made) for _ in range(5 * BATCH)))
    assert found == [b"hello"] * 5 * BATCH


async def test_a_server_that_is_not_on_the_loopback_is_found_at_the_own_address() -> None:
    async with listening("127.0.0.2") as port:
        async with sockets(port, address="127.0.0.2") as made:
            assert await greeting(made) == b"hello"
        async with sockets(port) as made:
            with pytest.raises(ConnectionRefusedError):
                await made.connected()


async def test_what_can_not_be_entered_has_a_published_port_or_none() -> None:
    async with listening("127.0.0.1") as port:
        async with sockets(0, published=port, entered=False) as made:
            assert await greeting(made) == b"hello"
        async with sockets(port, entered=False) as made:
            with pytest.raises(ConnectionRefusedError):
                await made.connected()


async def test_the_end_of_the_container_ends_all_waiting() -> None:
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    pids: list[int] = []
    made = NamespaceSockets(ours, port_inside=9, published=0, runs=pids.append)
    waiting = asyncio.create_task(made.connected())
    theirs.send(orjson.dumps({"pid": 123}))
    await until(lambda: pids == [123], "the first process is known")
    assert not waiting.done(), "the way to it is not known yet"
    theirs.close()
    with pytest.raises(ConnectionRefusedError):
        await waiting


def test_a_daemons_containers_are_not_known_to_be_enterable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not engine.is_ours("/usr/bin/docker")
    monkeypatch.setenv("CONTAINER_HOST", "ssh://elsewhere/run/podman.sock")
    assert not engine.is_ours("/usr/bin/podman")
