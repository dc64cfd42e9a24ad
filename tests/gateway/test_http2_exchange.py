"""One request over HTTP/2, without sockets: what the client's windows or its socket don't take now
waits in order, and what waits is known to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from tests.wire.http2_bytes import data, frames_of, get, post, received, started

from penstock.clock import ManualClock
from penstock.core.request.body_budget import BodyBudget
from penstock.gateway.http2.exchange import STALL_S_MAX, Http2Exchange
from penstock.gateway.http2.listener_state import Http2ListenerState
from penstock.wire.http2 import frames
from penstock.wire.http2.events import DataReceived
from penstock.wire.http2.spec import Http2Spec

HEAD = ((b":status", b"200"),)
TRAILERS = ((b"done", b"yes"),)
WINDOW_BYTES = 10
#: The client takes so much of each answer until it opens the stream's window.
SMALL_WINDOWS = frames.frame(frames.SETTINGS, 0, 0, b"\0\4" + WINDOW_BYTES.to_bytes(4))


class Wire:
    """Stands for the connection of one exchange: a client that the test plays."""

    account = "1.2.3.4"

    def __init__(self, *request: bytes) -> None:
        self.clock = ManualClock()
        self.listener = Http2ListenerState(
            self.clock, BodyBudget(1), spec=Http2Spec(), connections_max=1, head_timeout_s=1.0
        )
        self.machine = started()
        received(self.machine, SMALL_WINDOWS, *(request or (get(),)))
        self.machine.take_output()
        self.received = 0.0
        self.paused = False
        self.waiting: dict[int, Http2Exchange] = {}
        self.flushes = 0
        self.told: list[str] = []
        self.exchange = NotedExchange(self)

    def about(self, name: str) -> Any:
        return None

    def flush_soon(self) -> None:
        self.flushes += 1

    def over(self, exchange: Http2Exchange) -> None:
        exchange.connection = None
        self.told.append("over")

    def lost(self, exchange: Http2Exchange) -> None:
        exchange.connection = None
        self.told.append("lost")

    def open(self, size: int) -> None:
        """The client takes `size` bytes more of the answer."""
        received(self.machine, frames.window_update(1, size))
        self.exchange.push()

    def sent(self) -> list[tuple[str, bytes]]:
        """What has left since the last call; heads without their fields."""
        names = {
            frames.DATA: "data", frames.HEADERS: "head", frames.RST_STREAM: "reset",
            frames.WINDOW_UPDATE: "window",
        }  # fmt: skip
        return [
            (
                "end" if kind == frames.HEADERS and flags & frames.END_STREAM else names[kind],
                payload if kind in (frames.DATA, frames.RST_STREAM) else b"",
            )
            for kind, flags, _, payload in frames_of(self.machine.take_output())
        ]


class NotedExchange(Http2Exchange):
    def __init__(self, wire: Wire) -> None:
        super().__init__(wire, 1)
        self.rooms = 0

    def on_room(self) -> None:
        self.rooms += 1


def test_an_answer_that_fits_leaves_at_once() -> None:
    wire = Wire()
    wire.exchange.send_head(HEAD)
    wire.exchange.send(b"0123456789")
    assert wire.flushes == 2
    assert (wire.exchange.waits, wire.waiting) == (False, {})
    wire.exchange.end(TRAILERS)
    assert wire.sent() == [("head", b""), ("data", b"0123456789"), ("end", b"")]
    assert wire.told == ["over"]


def test_what_the_window_does_not_take_waits_in_order() -> None:
    wire = Wire()
    exchange = wire.exchange
    exchange.send_head(HEAD)
    exchange.send(b"0123456789abcde")
    exchange.send(b"FGH")
    exchange.end(TRAILERS)
    assert wire.sent() == [("head", b""), ("data", b"0123456789")]
    assert exchange.waiting_bytes == 8
    assert wire.waiting == {1: exchange}
    before = wire.flushes
    wire.open(2)
    assert wire.flushes == before + 1
    assert exchange.waiting_bytes == 6
    wire.open(4)
    assert exchange.waiting_bytes == 2
    assert wire.sent() == [("data", b"ab"), ("data", b"cde"), ("data", b"F")]
    assert wire.told == []
    wire.open(2)
    assert wire.sent() == [("data", b"GH"), ("end", b"")]
    assert (exchange.waiting_bytes, exchange.rooms, wire.told) == (0, 0, ["over"])


def test_a_door_that_makes_more_is_told_when_all_has_been_taken() -> None:
    wire = Wire()
    exchange = wire.exchange
    exchange.send_head(HEAD)
    exchange.send(b"0123456789abc")
    wire.open(2)
    assert (exchange.rooms, exchange.waits) == (0, True)
    wire.open(20)
    assert (exchange.rooms, exchange.waits) == (1, False)
    exchange.send(b"d")
    exchange.push()
    assert exchange.rooms == 1
    assert wire.sent()[1:] == [("data", b) for b in (b"0123456789", b"ab", b"c", b"d")]


def test_while_the_socket_takes_nothing_all_waits() -> None:
    wire = Wire()
    exchange = wire.exchange
    exchange.send_head(HEAD)
    wire.sent()
    wire.paused = True
    exchange.send(b"abc")
    assert (exchange.waiting_bytes, wire.sent()) == (3, [])
    exchange.push()
    assert (exchange.waiting_bytes, wire.sent()) == (3, [])
    wire.paused = False
    exchange.push()
    assert (exchange.waiting_bytes, wire.sent()) == (0, [("data", b"abc")])


def test_an_answer_without_a_body_waits_for_the_socket_too() -> None:
    wire = Wire()
    exchange = wire.exchange
    wire.paused = True
    exchange.finish(HEAD)
    assert (exchange.waits, wire.waiting, wire.told) == (True, {1: exchange}, [])
    wire.clock.advance(STALL_S_MAX)
    assert exchange.stalled(wire.clock.monotonic())
    wire.paused = False
    exchange.push()
    assert (wire.sent(), wire.told) == ([("end", b"")], ["over"])


def test_a_client_must_take_something_of_what_waits_for_it() -> None:
    wire = Wire()
    exchange = wire.exchange
    wire.clock.advance(1_000.0)
    exchange.send_head(HEAD)
    assert not exchange.stalled(wire.clock.monotonic())
    exchange.send(b"0123456789abc")
    wire.clock.advance(STALL_S_MAX - 1)
    assert not exchange.stalled(wire.clock.monotonic())
    wire.open(1)
    wire.clock.advance(STALL_S_MAX - 1)
    assert not exchange.stalled(wire.clock.monotonic())
    wire.clock.advance(1.0)
    assert exchange.stalled(wire.clock.monotonic())


@pytest.mark.parametrize(("opened", "left", "leaves"), [(0, 0, []), (2, 3, [b"cde"]), (5, 0, [])])
def test_pieces_of_which_nothing_has_left_are_dropped(
    opened: int, left: int, leaves: list[bytes]
) -> None:
    """A piece that has begun to leave is a part of a message: its rest has to follow."""
    wire = Wire()
    exchange = wire.exchange
    exchange.send_head(HEAD)
    exchange.send(b"0123456789")
    for piece in (b"abcde", b"FGH", b"IJ"):
        exchange.send(piece)
    if opened:
        wire.open(opened)
    wire.sent()
    assert exchange.drop_unsent() is bool(left)
    assert (exchange.waiting_bytes, exchange.waits) == (left, bool(left))
    exchange.end(TRAILERS)
    wire.open(100)
    assert [payload for kind, payload in wire.sent() if kind == "data"] == leaves
    assert wire.told == ["over"]


def test_where_nothing_waits_nothing_is_dropped() -> None:
    wire = Wire()
    wire.exchange.send_head(HEAD)
    assert wire.exchange.drop_unsent() is False
    wire.exchange.end(TRAILERS)
    assert wire.told == ["over"]


@pytest.mark.parametrize("end", ["reset", "on_drain_over", "refuse_for_room"])
def test_a_request_without_an_answer_is_reset(end: str) -> None:
    wire = Wire()
    getattr(wire.exchange, end)()
    code = frames.INTERNAL_ERROR if end == "reset" else frames.CANCEL
    assert wire.sent() == [("reset", code.to_bytes(4))]
    assert wire.told == ["lost"]


def test_what_is_consumed_is_given_back_to_the_windows() -> None:
    wire = Wire(post())
    half = Http2Spec().stream_window_bytes // 2
    size = 0
    while size < half:
        [event] = received(wire.machine, data(1, b"x" * 16_384))
        assert isinstance(event, DataReceived)
        size += event.flow_bytes
    assert wire.sent() == []
    wire.exchange.acknowledge(size)
    assert ("window", b"") in wire.sent()
    assert wire.flushes == 1


def test_an_exchange_that_is_over_does_nothing_more() -> None:
    wire = Wire()
    exchange = wire.exchange
    assert exchange.peer == "1.2.3.4"
    exchange.finish(HEAD)
    assert wire.told == ["over"]
    wire.sent()
    exchange.send_head(HEAD)
    exchange.send(b"x")
    exchange.end(TRAILERS)
    exchange.finish(HEAD)
    exchange.reset()
    exchange.acknowledge(1)
    exchange.push()
    assert (exchange.peer, exchange.waits, wire.sent(), wire.told) == ("", False, [], ["over"])
