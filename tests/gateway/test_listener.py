"""What one listener does for all its connections: their clock, their memory, their names."""

from __future__ import annotations

import asyncio
import errno
import ssl
from typing import Any

import pytest
from tests.gateway.http_by_hand import ByHand, HttpWire
from tests.gateway.http_site import Gatekeeper
from tests.kit.gateway import PREFIX
from tests.kit.http_clients import post
from tests.kit.virtual_network import VirtualLoop, run_virtual

from penstock.config import LimitConfig
from penstock.core.request import body_budget
from penstock.core.request.body_budget import BodyBudget
from penstock.errors import CallerError, InternalError
from penstock.gateway.http import listener as listener_module
from penstock.gateway.http import listener_state
from penstock.gateway.http.asgi import AsgiDoor
from penstock.gateway.http.body_budget import HoldingPipeline
from penstock.gateway.http.call import Call, status_line
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.listener import HttpListener, listen_error
from penstock.gateway.http.listener_state import SPELLING_BYTES_MAX, SPELLINGS_MAX
from penstock.gateway.request_id import RequestIds

pytestmark = pytest.mark.loop(by=run_virtual)

OK = status_line(200)


def made(loop: VirtualLoop, **limits: Any) -> HttpListener:
    """A listener whose clock is the loop's."""
    return HttpListener(
        limits=LimitConfig(**limits),
        clock=loop,
        ids=RequestIds(PREFIX),
        doors=[],
        fallback=AsgiDoor(nothing),
    )


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    return


def connected(listener: HttpListener) -> tuple[HttpWire, HttpConnection]:
    wire, connection = HttpWire(), HttpConnection(listener)
    wire.connection = connection
    connection.connection_made(wire)
    wire.told.clear()
    return wire, connection


def test_what_a_door_hands_back_is_the_fallbacks_to_the_end() -> None:
    by_hand = ByHand()

    class Taking(type(by_hand.fallback)):  # type: ignore[misc]
        def handle(self, call: Call) -> bool:
            call.answer(OK, b"")
            return True

    by_hand.listener.fallback = Taking()
    by_hand.read(post("/hot/declined"))
    assert by_hand.listener.fallback.written_urls == [b"/hot/declined"]
    assert by_hand.door.written_urls == []


async def test_a_port_is_not_shared_unless_that_is_asked_for() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    first, second = made(loop), made(loop)
    port = await first.start("127.0.0.1", 0)
    with pytest.raises(CallerError) as caught:
        await second.start("127.0.0.1", port)
    assert caught.value.code == "port-in-use"
    await first.stop(0.0)


# Its clock


@pytest.mark.parametrize(
    ("limits", "tick_s"),
    [
        ({}, 1.0),
        ({"head_timeout_s": 2.0}, 0.5),
        ({"body_timeout_s": 2.0}, 0.5),
        ({"keep_alive_s": 2.0}, 0.5),
        ({"keep_alive_s": 4.0, "head_timeout_s": 4.0, "body_timeout_s": 4.0}, 1.0),
    ],
)
async def test_connections_are_looked_at_each_second_or_four_times_in_the_shortest_time(
    limits: dict[str, float], tick_s: float
) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = made(loop, **limits)
    await listener.start("127.0.0.1", 0)
    began = listener.now
    seen = [began]
    while len(seen) < 4:
        await asyncio.sleep(tick_s / 10)
        if listener.now != seen[-1]:
            seen.append(listener.now)
    assert [round(at - began, 1) for at in seen] == [0, tick_s, 2 * tick_s, 3 * tick_s]
    await listener.stop(0.0)
    last = listener.now
    await asyncio.sleep(5 * tick_s)
    assert listener.now == last, "it has stopped"


async def test_the_date_of_answers_is_the_one_of_the_tick() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = made(loop)
    tail = b"\r\nserver: penstock\r\nx-amzn-requestid: " + PREFIX.encode()
    assert listener.common_head == b"date: Tue, 14 Nov 2023 22:15:00 GMT" + tail
    await listener.start("127.0.0.1", 0)
    await asyncio.sleep(2.5)
    assert listener.common_head == b"date: Tue, 14 Nov 2023 22:15:02 GMT" + tail
    await listener.stop(0.0)


async def test_each_tick_ends_what_takes_too_long() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = made(loop, head_timeout_s=2.0)
    await listener.start("127.0.0.1", 0)
    first, second = connected(listener), connected(listener)
    await asyncio.sleep(1.9)
    assert first[0].told == second[0].told == []
    await asyncio.sleep(0.2)
    assert first[0].told == second[0].told == ["close"]
    await listener.stop(0.0)


# Stopping


async def test_a_stop_waits_for_connections_until_its_time_is_up_and_then_cuts_them() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = made(loop)
    await listener.start("127.0.0.1", 0)
    wire, connection = connected(listener)
    connection.data_received(b"POST /half")
    stopping = asyncio.ensure_future(listener.stop(3.0))
    await asyncio.sleep(2.9)
    assert (wire.told, stopping.done(), listener.draining) == ([], False, True)
    await asyncio.sleep(0.2)
    assert (wire.told, stopping.done()) == (["abort"], True)


async def test_a_stop_closes_the_sockets_on_which_tls_is_accepted() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = made(loop)
    await listener.start("127.0.0.1", 0, tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    assert listener.tls is not None
    [listening] = listener.tls._sockets
    await listener.stop(0.0)
    assert listening.fileno() == -1


async def test_a_stop_takes_no_longer_than_the_last_connection() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = made(loop)
    await listener.start("127.0.0.1", 0)
    wire, connection = connected(listener)
    connection.data_received(b"POST /half")
    stopping = asyncio.ensure_future(listener.stop(3.0))
    await asyncio.sleep(0.5)
    connection.connection_lost(None)
    await asyncio.sleep(0.03)
    assert (wire.told, stopping.done()) == ([], True)


async def test_a_stop_without_time_waits_for_nothing() -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    listener = made(loop)
    await listener.start("127.0.0.1", 0)
    wire, connection = connected(listener)
    connection.data_received(b"POST /half")
    before = loop.time()
    await listener.stop(0.0)
    assert (wire.told, loop.time()) == (["abort"], before)


# What all connections hold


def unread(by_hand: ByHand, *sizes: int) -> list[HttpWire]:
    """A connection for each, whose client leaves so many bytes."""
    wires = []
    for size in sizes:
        wire, connection = by_hand.another()
        wire.told.clear()
        wire.taking = False
        wire.write(b"x" * size)
        assert connection.unread_bytes == size
        wires.append(wire)
    return wires


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ((400, 600), []),
        ((400, 601), [601]),
        ((100, 700, 300, 500), [700]),
        ((100, 600, 700, 500), [600, 700]),
        ((101, 600, 700, 400, 500), [600, 700, 500]),
    ],
)
def test_those_who_leave_most_unread_are_cut_until_the_rest_fits(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], cut: list[int]
) -> None:
    monkeypatch.setattr(listener_module, "UNREAD_BYTES_MAX", 1000)
    by_hand = ByHand()
    wires = unread(by_hand, *sizes)
    by_hand.listener._bound_unread()
    assert [wire.unread_bytes for wire in wires if wire.told == ["abort"]] == cut


def test_an_announced_body_is_waited_for_if_others_would_make_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_budget, "SLOW_S", 0.0)
    by_hand = ByHand(bodies=BodyBudget(20_000))
    start = b"POST /hot/x HTTP/1.1\r\nHost: x\r\n"
    by_hand.read(start + b"Content-Length: 15000\r\n\r\n", b"x" * 14_000)
    wire, connection = by_hand.another()
    connection.data_received(start + b"Content-Length: 10000\r\n\r\n")
    assert wire.writes == [], "nothing of it has come yet, so nobody is cut"
    assert by_hand.wire.writes == []
    connection.data_received(b"y" * 10_000)
    assert by_hand.statuses == [503]
    assert wire.sent.startswith(b"HTTP/1.1 200 ")
    assert by_hand.listener.bodies.bytes_taken == 0
    assert len(by_hand.listener.unfinished) == 0


def test_bodies_are_counted_by_the_network_that_they_come_from() -> None:
    by_hand = ByHand()
    assert by_hand.connection.peer == "192.0.2.1"
    wire, connection = HttpWire(), HttpConnection(by_hand.listener)
    wire.peername = None
    connection.connection_made(wire)
    assert connection.peer == ""


def test_a_pipeline_alone_refuses_nothing() -> None:
    with pytest.raises(NotImplementedError):
        HoldingPipeline(ByHand().listener).refuse_for_room()


# Names of headers


def test_spellings_are_remembered_up_to_a_number_and_a_length() -> None:
    listener = ByHand(interest=(b"x-own",)).listener
    listener.fields.clear()
    assert listener.learn_field(b"X-Own") == b"x-own"
    assert listener.learn_field(b"CONTENT-TYPE") == b"content-type"
    assert listener.learn_field(b"x-other") is None
    assert listener.fields == {
        b"X-Own": b"x-own",
        b"CONTENT-TYPE": b"content-type",
        b"x-other": None,
    }
    listener.learn_field(b"y" * SPELLING_BYTES_MAX)
    assert len(listener.fields) == 4
    listener.learn_field(b"y" * (SPELLING_BYTES_MAX + 1))
    assert len(listener.fields) == 4
    for number in range(SPELLINGS_MAX - 4):
        listener.learn_field(b"x%d" % number)
    assert len(listener.fields) == SPELLINGS_MAX
    listener.learn_field(b"one-more")
    assert listener.fields == {b"one-more": None}


# Who answers, and who may come in


class NoDoor:
    def handle(self, call: Call) -> bool:
        return False

    def written(self, call: Call) -> None:
        return


def test_what_nobody_serves_is_not_found() -> None:
    by_hand = ByHand(fallback=NoDoor())
    by_hand.read(post("/nowhere"))
    assert by_hand.statuses == [404]
    assert b'"code":"not-found"' in by_hand.wire.sent


class FailingDoor(Gatekeeper):
    def check_head(self, *_: object) -> None:
        return

    def check(self, *_: object) -> None:
        raise KeyError("a bug")


def test_credentials_that_could_not_be_looked_at_let_nobody_in() -> None:
    by_hand = ByHand(authenticator=FailingDoor())
    by_hand.read(post("/hot/x"))
    assert (by_hand.statuses, by_hand.door.refused, by_hand.door.handled) == (
        [500],
        ["internal"],
        [],
    )


def test_where_nobody_is_asked_for_credentials_all_pass() -> None:
    by_hand = ByHand()
    assert by_hand.listener.head_error(b"GET", b"/", []) is None
    call = by_hand.ask(post("/hot/later"))
    assert by_hand.listener.authentication_error(call) is None
    assert by_hand.listener.known_heads is not None


def test_what_aws_names_is_told_with_its_name_and_status() -> None:
    by_hand = ByHand(authenticator=Gatekeeper())
    error = by_hand.listener.head_error(b"GET", b"/hot/x?q", [])
    assert error is not None
    assert (error.code, error.status) == ("MissingAuthenticationTokenException", 403)
    assert not isinstance(error, InternalError)
    assert by_hand.listener.known_heads is None, "each head has credentials of its own"


# Addresses


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EADDRINUSE, "port-in-use"),
        (errno.EACCES, "port-forbidden"),
        (errno.EPERM, "port-forbidden"),
        (errno.EADDRNOTAVAIL, "address-unknown"),
    ],
)
def test_an_address_that_can_not_be_listened_on_is_told_with_what_to_do(
    number: int, code: str
) -> None:
    error = listen_error(OSError(number, "why"), "192.0.2.1", 80)
    assert (type(error), error.code, bool(error.hint)) == (CallerError, code, True)
    assert "192.0.2.1:80" in error.message or code == "port-forbidden"


def test_fewer_descriptors_allow_fewer_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_state, "limit_now", lambda: 196)
    assert ByHand(connections_max=101).listener.connections_max == 100
    assert "at most 100 HTTP connections" in caplog.text
    caplog.clear()
    assert ByHand(connections_max=100).listener.connections_max == 100
    assert caplog.text == ""
