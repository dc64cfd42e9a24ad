"""HTTP/2 answers that are complete before their request, and fields that differ each time."""

from __future__ import annotations

import pytest
from http2_bytes import data, frames_of, get, headers, post, received, started

from penstock.wire.http2 import connection as http2_connection
from penstock.wire.http2 import frames
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import StreamReset
from penstock.wire.http2.frames import CANCEL
from penstock.wire.http2.hpack import Field, HpackDecoder
from penstock.wire.http2.spec import Http2Spec

OK: tuple[Field, ...] = ((b":status", b"200"),)


def lingering(until: float = 5.0) -> Http2Connection:
    """Stream 1 has sent a part of its body, and has its whole answer."""
    connection = started()
    received(connection, post(), data(1, b"x" * 1_000))
    connection.linger(1, until=until)
    connection.send_headers(1, OK)
    assert connection.send_data(1, b"no", end=True) == 2
    return connection


def test_an_answer_that_lingers_ends_without_a_reset_and_takes_no_more() -> None:
    connection = lingering()
    sent = frames_of(connection.take_output())
    assert [kind for kind, *_ in sent] == [frames.HEADERS, frames.DATA]
    assert sent[-1][1] & frames.END_STREAM
    connection.send_headers(1, OK)
    assert connection.send_data(1, b"more") == 4
    assert connection.take_output() == b""
    assert connection.streams == 1


@pytest.mark.parametrize("end", [data(1, b"rest", end=True), headers(1, [(b"late", b"1")])])
def test_the_rest_of_a_request_that_is_answered_is_no_event(end: bytes) -> None:
    connection = lingering()
    connection.take_output()
    assert received(connection, data(1, b"more")) == []
    assert connection.streams == 1
    assert received(connection, end) == []
    assert connection.streams == 0
    assert connection.take_output() == b""


def test_a_client_that_sends_all_before_it_reads_has_the_windows_for_it() -> None:
    connection = lingering()
    connection.take_output()
    opened = {0: 0, 1: 0}
    for _ in range(1_000):
        assert received(connection, data(1, bytes(16_384))) == []
        for kind, _, stream, payload in frames_of(connection.take_output()):
            assert kind == frames.WINDOW_UPDATE
            opened[stream] += int.from_bytes(payload)
    sent = 1_000 + 1_000 * 16_384
    assert opened[0] > sent - (2 << 20)
    assert opened[1] > sent - (1 << 20)


def test_what_is_thrown_away_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2_connection, "DISCARDED_BYTES_MAX", 20)
    connection = lingering()
    connection.take_output()
    assert received(connection, data(1, b"x" * 19), data(1, b"")) == []
    assert connection.streams == 1
    received(connection, data(1, b""))
    assert frames_of(connection.take_output()) == [(frames.RST_STREAM, 0, 1, bytes(4))]
    assert connection.streams == 0


def test_a_stream_lingers_for_its_time_and_is_then_reset() -> None:
    connection = lingering(until=5.0)
    connection.take_output()
    assert not connection.cut_lingering(4.9)
    assert connection.cut_lingering(5.0)
    assert frames_of(connection.take_output()) == [(frames.RST_STREAM, 0, 1, bytes(4))]
    assert not connection.cut_lingering(9.0)


def test_a_stream_that_may_linger_and_is_not_answered_is_not_reset() -> None:
    connection = started()
    received(connection, post())
    connection.linger(1, until=5.0)
    assert not connection.cut_lingering(5.0)
    connection.send_headers(1, OK, end=True)
    assert connection.cut_lingering(5.0)


def test_a_client_that_resets_what_lingers_is_no_flood() -> None:
    connection = started(Http2Spec(resets_burst=1, resets_per_s=0.001))
    for stream in range(1, 21, 2):
        assert len(received(connection, post(stream))) == 1
        connection.linger(stream, until=5.0)
        connection.send_headers(stream, OK, end=True)
        [event] = received(connection, frames.rst_stream(stream, CANCEL))
        assert isinstance(event, StreamReset)
    assert not connection.closed


def test_a_complete_request_does_not_linger() -> None:
    connection = started()
    received(connection, get())
    connection.linger(1, until=5.0)
    connection.send_headers(1, OK, end=True)
    assert connection.streams == 0


def test_varying_fields_come_behind_the_others_and_are_in_no_table() -> None:
    connection = started()
    decoder = HpackDecoder(16_384)
    for stream in range(1, 9, 2):
        received(connection, get(stream))
        own = (b"x-id", b"%d" % stream), (b"content-length", b"9" * 200), (b"x-long", b"z" * 127)
        connection.send_headers(stream, (*OK, (b"a", b"b")), own, end=True)
        [(_, _, _, block)] = frames_of(connection.take_output())
        assert decoder.decode(block) == [*OK, (b"a", b"b"), *own]
    assert decoder.changes == 0
