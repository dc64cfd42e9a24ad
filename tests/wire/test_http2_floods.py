"""What a peer may send without use to anybody ends: by a bound, and with ENHANCE_YOUR_CALM."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from http2_bytes import GET, GRPC, data, frames_of, get, headers, literal, post, received, started

from penstock.wire.http2 import frames
from penstock.wire.http2.allowance import FloodAllowance
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import ConnectionFailed, DataReceived, WindowOpened
from penstock.wire.http2.frames import CANCEL, ENHANCE_YOUR_CALM, frame
from penstock.wire.http2.hpack import Field
from penstock.wire.http2.spec import Http2Spec

BURST = 20
SMALL = Http2Spec(control_frames_burst=BURST, control_frames_per_s=5.0, unread_bytes_max=1 << 20)
FEW_RESETS = Http2Spec(resets_burst=BURST, resets_per_s=5.0)
OK: tuple[Field, ...] = ((b":status", b"200"),)


def _failed(connection: Http2Connection, sent: bytes) -> bool:
    """Whether the last event is the end by this module's code. No other end is expected."""
    events = received(connection, sent)
    if not events or not isinstance(events[-1], ConnectionFailed):
        return False
    assert events[-1].code == ENHANCE_YOUR_CALM
    assert frames_of(connection.take_output())[-1][0] == frames.GOAWAY
    return True


def _until_failed(connection: Http2Connection, sent: Callable[[int], bytes], most: int) -> int:
    """How often it could be sent."""
    for count in range(most):
        if _failed(connection, sent(count)):
            return count
        connection.take_output()
    return most


#: Frames that may be right, one by one, on a connection whose stream 1 is open and 3 was reset
FLOODS = [
    ("PING", frame(6, 0, 0, bytes(8))),
    ("PING, answered", frame(6, 1, 0, bytes(8))),
    ("SETTINGS", frame(4, 0, 0)),
    ("SETTINGS, acknowledged", frame(4, 1, 0)),
    ("SETTINGS of the window", frames.settings({frames.INITIAL_WINDOW_SIZE: 1_000})),
    ("PRIORITY", frame(2, 0, 1, bytes(5))),
    ("PRIORITY of an idle stream", frame(2, 0, 99, bytes(5))),
    ("empty DATA", data(1, b"")),
    ("DATA of nothing but padding", frame(0, 8, 1, b"\x04\0\0\0\0")),
    ("WINDOW_UPDATE of the connection", frames.window_update(0, 1)),
    ("WINDOW_UPDATE of a stream", frames.window_update(1, 1)),
    ("GOAWAY", frames.go_away(0, 0)),
    ("an unknown frame", frame(99, 0, 0)),
    ("RST_STREAM of a stream that is gone", frames.rst_stream(3, CANCEL)),
    ("WINDOW_UPDATE of a stream that is gone", frames.window_update(3, 1)),
    ("DATA of a stream that is gone", data(3, b"abc")),
    ("HEADERS of a stream that is gone", headers(3, GET)),
]


@pytest.mark.parametrize(("name", "sent"), FLOODS, ids=[name for name, _ in FLOODS])
def test_a_flood_ends_the_connection(name: str, sent: bytes) -> None:
    connection = started(SMALL)
    received(connection, post(1), post(3))
    connection.reset(3, CANCEL)
    assert _until_failed(connection, lambda _: sent, 1_000) == BURST
    assert received(connection, sent) == []


def test_new_streams_behind_our_go_away_are_a_flood_as_well() -> None:
    connection = started(SMALL)
    received(connection, get(1))
    connection.go_away()
    assert _until_failed(connection, lambda count: get(3 + 2 * count), 1_000) == BURST


def test_time_refills_what_pings_have_spent() -> None:
    """A client that keeps an idle connection alive for days is no flood."""
    connection = started(SMALL)
    ping = frame(6, 0, 0, bytes(8))
    for second in range(10_000):
        events = connection.receive(ping * 5, now=float(second))
        connection.take_output()
        assert events == []
    assert len(connection.receive(ping * (BURST + 6), now=10_000.0)) == 1


def test_an_allowance_is_no_larger_than_its_burst() -> None:
    allowance = FloodAllowance(2, 1.0, now=0.0)
    allowance.earn(100)
    assert [allowance.spend(now=0.0) for _ in range(3)] == [True, True, False]
    assert not allowance.spend(now=0.5)
    assert [allowance.spend(now=1.5) for _ in range(2)] == [True, False]
    assert [allowance.spend(now=99.0) for _ in range(3)] == [True, True, False]


def test_calls_pay_for_the_windows_that_grpc_opens_with_each() -> None:
    """grpcio sends two WINDOW_UPDATEs with a small call, and PINGs to measure the path."""
    connection = started(SMALL)
    for stream in range(1, 4_001, 2):
        events = received(
            connection,
            headers(stream, GRPC, end=False),
            frames.window_update(stream, 5),
            data(stream, b"message", end=True),
            frames.window_update(0, 5),
            frame(6, 0, 0, bytes(8)),
        )
        assert len(events) == 2
        connection.send_headers(stream, OK, end=True)
        connection.take_output()


def test_a_stream_of_answers_pays_for_the_windows_that_its_reader_opens() -> None:
    connection = started(SMALL)
    received(connection, get())
    for _ in range(1_000):
        assert connection.send_data(1, b"token") == 5
        assert not _failed(connection, frames.window_update(1, 5) + frames.window_update(0, 5))
        connection.take_output()


def test_an_answer_drawn_byte_by_byte_ends() -> None:
    """CVE-2019-9511: a window that opens by one byte makes a frame of ten for each."""
    connection = started(SMALL)
    received(connection, frames.settings({frames.INITIAL_WINDOW_SIZE: 0}), get())

    def byte(_: int) -> bytes:
        connection.send_data(1, b"a long answer")
        return frames.window_update(1, 1)

    assert _until_failed(connection, byte, 1_000) == BURST


@pytest.mark.parametrize(("opened", "goes_on"), [(4_096, True), (4_095, False)])
def test_a_large_answer_pays_for_the_windows_that_it_takes(opened: int, *, goes_on: bool) -> None:
    """Clients open the windows of a stream and of the connection by half of 65,535 and more."""
    connection = started(SMALL)
    received(connection, get())
    assert connection.send_data(1, bytes(1 << 20)) == 65_535

    def window(_: int) -> bytes:
        connection.send_data(1, bytes(1 << 20))
        connection.take_output()
        return frames.window_update(0, opened) + frames.window_update(1, opened)

    failed = _until_failed(connection, window, 2 * BURST)
    assert failed == 2 * BURST if goes_on else failed < BURST


def test_an_empty_piece_of_an_answer_pays_for_nothing() -> None:
    """Else an application that passes pieces on would pay for the empty ones of its peer."""
    connection = started(SMALL)
    received(connection, post())

    def empty(_: int) -> bytes:
        assert connection.send_data(1, b"") == 0
        return data(1, b"")

    assert _until_failed(connection, empty, 1_000) == BURST


def test_a_connection_window_that_opens_byte_by_byte_wakes_nobody() -> None:
    connection = started(Http2Spec(control_frames_burst=10_000))
    for stream in range(1, 201, 2):
        received(connection, get(stream))
        connection.send_data(stream, bytes(65_535))
    woken = []
    for _ in range(8_192):
        woken += received(connection, frames.window_update(0, 1))
        connection.take_output()
    assert woken == [WindowOpened(stream) for stream in range(3, 201, 2)]


# Streams that end without an answer


def test_streams_that_are_reset_at_once_end_the_connection() -> None:
    """CVE-2023-44487: a request and its reset, again and again."""
    connection = started(FEW_RESETS)
    count = _until_failed(
        connection, lambda n: get(2 * n + 1) + frames.rst_stream(2 * n + 1, CANCEL), 1_000
    )
    assert count == BURST


#: CVE-2025-8671: what makes a server end a stream, by the peer's own fault
MADE = [
    ("a window by 0", lambda s: get(s) + frames.window_update(s, 0)),
    ("a window that overflows", lambda s: get(s) + frames.window_update(s, 2**31 - 1)),
    ("PRIORITY of 4 bytes", lambda s: get(s) + frame(2, 0, s, bytes(4))),
    ("DATA behind the end", lambda s: get(s) + data(s, b"a")),
    ("a malformed request", lambda s: headers(s, GET[1:])),
    ("a list beyond its bound", lambda s: headers(s, GET + [(b"x", b"v" * 99)] * 130)),
]


@pytest.mark.parametrize(("name", "sent"), MADE, ids=[name for name, _ in MADE])
def test_streams_that_the_peer_makes_us_end_count_as_well(
    name: str, sent: Callable[[int], bytes]
) -> None:
    connection = started(FEW_RESETS)
    assert _until_failed(connection, lambda n: sent(2 * n + 1), 1_000) == BURST


def test_streams_beyond_their_number_count_as_well() -> None:
    connection = started(Http2Spec(streams_max=1, resets_burst=BURST))
    assert _until_failed(connection, lambda n: get(2 * n + 1), 1_000) == BURST + 1


def test_a_client_that_cancels_half_of_its_calls_may_go_on() -> None:
    connection = started(FEW_RESETS)
    for stream in range(1, 4_001, 4):
        assert not _failed(connection, get(stream) + get(stream + 2))
        connection.send_headers(stream, OK, end=True)
        assert not _failed(connection, frames.rst_stream(stream + 2, CANCEL))
        connection.take_output()


def test_streams_that_were_answered_may_be_cancelled() -> None:
    """A reader of tokens that has read enough."""
    connection = started(FEW_RESETS)
    for stream in range(1, 1_001, 2):
        received(connection, get(stream))
        connection.send_headers(stream, OK)
        connection.send_data(stream, b"token")
        assert not _failed(connection, frames.rst_stream(stream, CANCEL))
        connection.take_output()


# What is kept


def test_replies_that_nobody_reads_are_bounded() -> None:
    """The driver leaves the output where it is while the socket takes no more."""
    connection = started(Http2Spec(unread_bytes_max=10 * 17))
    ping = frame(6, 0, 0, bytes(8))
    assert received(connection, ping * 10) == []
    assert _failed(connection, ping)
    connection = started(Http2Spec(unread_bytes_max=10 * 17))
    for _ in range(50):
        assert received(connection, ping * 10) == []
        connection.take_output()


@pytest.mark.parametrize(
    ("fragment", "count"), [(b"", 31), (b"\0\x01x\x7f\x81\x79" + bytes(15_606), 4)]
)
def test_a_block_that_does_not_end(fragment: bytes, count: int) -> None:
    """CVE-2024-27316. 65,536 bytes are four times the bound of a decoded list."""
    connection = started()
    received(connection, frame(frames.HEADERS, 0, 1, literal(GET)))
    more = frame(frames.CONTINUATION, 0, 1, fragment)
    assert _until_failed(connection, lambda _: more, 1_000) == count


def test_settings_of_one_frame_are_bounded() -> None:
    connection = started()
    setting = frames.settings({frames.INITIAL_WINDOW_SIZE: 5})[9:]
    assert not _failed(connection, frame(frames.SETTINGS, 0, 0, setting * 32))
    assert _failed(connection, frame(frames.SETTINGS, 0, 0, setting * 33))


def test_a_frame_that_never_comes_whole_is_not_kept_beyond_its_size() -> None:
    connection = started()
    received(connection, post())
    head = frame(frames.DATA, 0, 1, bytes(16_384))
    tracemalloc.start()
    try:
        for begin in range(len(head) - 1):
            assert received(connection, head[begin : begin + 1]) == []
        assert tracemalloc.get_traced_memory()[0] < 40_000
        assert received(connection, head[-1:]) == [DataReceived(1, bytes(16_384), 16_384, False)]
    finally:
        tracemalloc.stop()


def test_a_connection_does_not_grow_with_the_calls_that_it_has_had() -> None:
    """Each with fields of its own, some of them indexed, some of them refused."""
    connection = started()

    def call(number: int) -> None:
        stream = 2 * number + 1
        own = [(b"x-%d" % number, b"%d" % number)]
        received(
            connection, headers(stream, [*GRPC, *own], end=False), data(stream, b"a", end=True)
        )
        connection.send_headers(stream, (*OK, *own))
        connection.send_trailers(stream, tuple(own))
        connection.take_output()

    tracemalloc.start()
    try:
        for number in range(500):
            call(number)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(500, 1_500):
            call(number)
        assert tracemalloc.get_traced_memory()[0] < before + 100_000
        assert before < 400_000
    finally:
        tracemalloc.stop()
