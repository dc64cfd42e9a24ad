"""The sockets on which TLS is accepted, and what happens when accepting fails."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.kit.virtual_network import run_virtual

from penstock.gateway.http import tls
from penstock.gateway.http.tls import EXHAUSTED_S, TlsAcceptor

pytestmark = pytest.mark.loop(by=run_virtual)


def acceptor(room: Callable[[], int] = lambda: 1000) -> TlsAcceptor:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    return TlsAcceptor(context, asyncio.Protocol, room=room)


def option(listening: socket.socket, level: int, name: int) -> bool:
    return bool(listening.getsockopt(level, name))


@pytest.mark.parametrize("reuse_port", [False, True])
async def test_a_socket_listens_where_it_is_told_to(reuse_port: bool) -> None:
    made = acceptor()
    port = made.listen("127.0.0.1", 0, backlog=16, reuse_port=reuse_port)
    [listening] = made._sockets
    assert listening.getsockname() == ("127.0.0.1", port)
    assert port > 0
    assert listening.getblocking() is False
    assert option(listening, socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    assert option(listening, socket.SOL_SOCKET, socket.SO_REUSEADDR)
    assert option(listening, socket.SOL_SOCKET, socket.SO_REUSEPORT) is reuse_port
    made.close()
    made.close()
    assert (listening.fileno(), made._sockets) == (-1, [])


async def test_a_socket_of_ipv6_leaves_ipv4_to_its_own() -> None:
    made = acceptor()
    try:
        made.listen("::1", 0, backlog=16, reuse_port=False)
    except OSError as cause:
        pytest.skip(f"this machine has no IPv6: {cause}")
    [listening] = made._sockets
    assert option(listening, socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    made.close()


async def test_no_host_means_every_address() -> None:
    made = acceptor()
    made.listen("", 0, backlog=16, reuse_port=False)
    names = {listening.getsockname()[0] for listening in made._sockets}
    assert names <= {"0.0.0.0", "::"}
    assert names
    made.close()


class Recorded(socket.socket):
    """Which options were set, whatever is the system's own default of them."""

    asked: list[tuple[int, int, Any]]

    def setsockopt(self, level: int, name: int, value: Any) -> None:  # type: ignore[override]
        Recorded.asked.append((level, name, value))
        super().setsockopt(level, name, value)


@pytest.mark.parametrize(("host", "asked"), [("::1", True), ("127.0.0.1", False)])
async def test_what_ipv6_takes_is_said_and_not_left_to_the_system(
    monkeypatch: pytest.MonkeyPatch, host: str, asked: bool
) -> None:
    Recorded.asked = []
    monkeypatch.setattr(tls.socket, "socket", Recorded)
    made = acceptor()
    try:
        made.listen(host, 0, backlog=16, reuse_port=False)
    except OSError as cause:
        pytest.skip(f"this machine has no such address: {cause}")
    finally:
        made.close()
    only = (socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    assert (only in Recorded.asked) is asked


class ListeningAcceptor:
    """A listening socket whose `accept` raises."""

    def __init__(self, *errors: OSError) -> None:
        self.errors = list(errors)
        self.asked = 0

    def accept(self) -> Any:
        self.asked += 1
        raise self.errors.pop(0) if self.errors else BlockingIOError()

    def fileno(self) -> int:
        return 12345


class WatchedProtocol(TlsAcceptor):
    """Writes down which sockets are looked at, in place of the event loop."""

    def __init__(self) -> None:
        super().__init__(
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asyncio.Protocol, room=lambda: 1000
        )
        self.told: list[str] = []
        self._loop = cast(Any, self)
        self._real = asyncio.get_running_loop()

    def remove_reader(self, listening: object) -> None:
        self.told.append("look away")

    def add_reader(self, listening: object, *args: object) -> None:
        self.told.append("look")

    def call_later(self, delay_s: float, callback: Any, *args: Any) -> None:
        self.told.append(f"in {delay_s} s")
        self._real.call_later(delay_s, callback, *args)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
async def test_where_nothing_can_be_accepted_it_looks_away_for_a_while(number: int) -> None:
    made, listening = WatchedProtocol(), ListeningAcceptor(OSError(number, "none left"))
    made._accept(cast(Any, listening))
    assert (made.told, listening.asked) == (["look away", f"in {EXHAUSTED_S} s"], 1)
    await asyncio.sleep(EXHAUSTED_S)
    assert made.told[2:] == ["look"]


@pytest.mark.parametrize(
    "error", [BlockingIOError(), ConnectionAbortedError(), OSError(errno.EPROTO, "odd")]
)
async def test_one_client_that_can_not_be_accepted_stops_nobody(error: OSError) -> None:
    made, listening = WatchedProtocol(), ListeningAcceptor(error)
    made._accept(cast(Any, listening))
    assert (made.told, listening.asked) == ([], 1)


async def test_a_socket_that_was_closed_meanwhile_is_looked_at_no_more() -> None:
    made = WatchedProtocol()
    closed = socket.socket()
    closed.close()
    made._watch(closed)
    assert made.told == []


async def silent_clients(made: TlsAcceptor, port: int, count: int) -> list[socket.socket]:
    clients = []
    for _ in range(count):
        clients.append(socket.create_connection(("127.0.0.1", port)))
        for _ in range(5):
            await asyncio.sleep(0)
    return clients


@pytest.mark.parametrize(("room", "left"), [(0, 3), (-1, 0)])
async def test_handshakes_take_the_room_of_connections(
    monkeypatch: pytest.MonkeyPatch, room: int, left: int
) -> None:
    """Below 0 some are turned away without a word; at 0 the last one has just come in."""
    monkeypatch.setattr(tls, "HANDSHAKES_MAX", 3)
    made = acceptor(lambda: room)
    port = made.listen("127.0.0.1", 0, backlog=16, reuse_port=False)
    clients = await silent_clients(made, port, 5)
    assert len(made) == left
    made.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(made) == 0
    for client in clients:
        client.close()


async def test_of_a_burst_that_comes_in_one_turn_the_oldest_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tls, "HANDSHAKES_MAX", 3)
    made = acceptor()
    port = made.listen("127.0.0.1", 0, backlog=16, reuse_port=False)
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(made) == 3
    made.close()
    for client in clients:
        client.close()
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_accepted_socket_never_blocks_and_does_not_wait_to_send() -> None:
    accepted: list[tuple[bool, bool]] = []

    class Looking(TlsAcceptor):
        async def _shake_hands(self, accepted_socket: socket.socket) -> None:
            nodelay = option(accepted_socket, socket.IPPROTO_TCP, socket.TCP_NODELAY)
            accepted.append((accepted_socket.getblocking(), nodelay))
            accepted_socket.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made = Looking(context, asyncio.Protocol, room=lambda: 1000)
    port = made.listen("127.0.0.1", 0, backlog=16, reuse_port=False)
    [client] = await silent_clients(made, port, 1)
    assert accepted == [(False, True)]
    made.close()
    client.close()
