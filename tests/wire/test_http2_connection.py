"""One HTTP/2 connection on the server's side: requests, answers, windows, rules, endings."""

from __future__ import annotations

import pytest
from http2_bytes import GET, START, data, frames_of, get, headers, literal, post, received, started

from penstock.wire.http2 import frames
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.control_frames import DRAIN_PING
from penstock.wire.http2.events import (
    ConnectionFailed,
    DataReceived,
    Drained,
    GoAwayReceived,
    PingAnswered,
    RequestReceived,
    StreamReset,
    TrailersReceived,
    WindowOpened,
)
from penstock.wire.http2.frames import (
    CANCEL,
    COMPRESSION_ERROR,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    INTERNAL_ERROR,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    STREAM_CLOSED,
    frame,
)
from penstock.wire.http2.hpack import Field
from penstock.wire.http2.spec import Http2Spec

OK: tuple[Field, ...] = ((b":status", b"200"),)
REQUEST = RequestReceived(1, b"GET", b"/", b"a", b"http", (), True)
BODY = RequestReceived(1, b"POST", b"/", b"a", b"http", (), False)


def _u32(value: int) -> bytes:
    return value.to_bytes(4)


def _setting(number: int, value: int) -> bytes:
    return frames.settings({number: value})


# A connection's life


def test_our_settings_are_the_first_output() -> None:
    connection = Http2Connection(Http2Spec(connection_window_bytes=65_536), now=0.0)
    assert connection.take_output() == bytes.fromhex(
        "000018 04 00 00000000  0003 00000080  0004 00100000  0005 00004000  0006 00004000"
        "000004 08 00 00000000  00000001"
    )
    assert connection.take_output() == b""


def test_settings_are_acknowledged_and_pings_answered() -> None:
    connection = Http2Connection(now=0.0)
    connection.take_output()
    assert received(connection, START, frame(frames.PING, 0, 0, b"12345678")) == []
    assert frames_of(connection.take_output()) == [
        (frames.SETTINGS, frames.ACK, 0, b""),
        (frames.PING, frames.ACK, 0, b"12345678"),
    ]


def test_a_call_with_body_and_trailers_in_both_directions() -> None:
    connection = started()
    events = received(
        connection,
        post(),
        data(1, b"ab"),
        frame(frames.DATA, frames.PADDED, 1, b"\x03cd\0\0\0"),
        headers(1, [(b"checksum", b"1")]),
    )
    assert events == [
        BODY,
        DataReceived(1, b"ab", 2, False),
        DataReceived(1, b"cd", 6, False),
        TrailersReceived(1, ((b"checksum", b"1"),)),
    ]
    connection.send_headers(1, [*OK, (b"content-type", b"application/grpc")])
    assert connection.send_data(1, b"answer") == 6
    connection.send_trailers(1, [(b"grpc-status", b"0")])
    assert connection.streams == 0
    assert frames_of(connection.take_output()) == [
        (frames.HEADERS, frames.END_HEADERS, 1, b"\x88\x0f\x10\x10application/grpc"),
        (frames.DATA, 0, 1, b"answer"),
        (frames.HEADERS, 5, 1, b"\x00\x0bgrpc-status\x010"),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10, 30, 1_000])
def test_bytes_may_be_cut_anywhere(size: int) -> None:
    whole = START + post() + data(1, b"abc") + data(1, b"", end=True) + get(3)
    connection = Http2Connection(now=0.0)
    events = []
    for begin in range(0, len(whole), size):
        piece = memoryview(bytearray(whole[begin : begin + size]))
        events += connection.receive(piece, now=0.0)
    assert isinstance(events[1], DataReceived)
    assert type(events[1].data) is bytes  # a view would change with the driver's buffer
    assert events == [
        BODY,
        DataReceived(1, b"abc", 3, False),
        DataReceived(1, b"", 0, True),
        RequestReceived(3, b"GET", b"/", b"a", b"http", (), True),
    ]


def test_a_block_may_come_in_fragments_with_priority_and_padding() -> None:
    block = literal(GET)
    padded = b"\x02" + bytes(5) + block[:3] + b"\0\0"
    flags = frames.PADDED | frames.PRIORITIZED | frames.END_STREAM
    events = received(
        started(),
        frame(frames.HEADERS, flags, 1, padded),
        frame(frames.CONTINUATION, 0, 1, block[3:4]),
        frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[4:]),
    )
    assert events == [REQUEST]


def test_an_answer_that_ends_before_its_request_stops_the_upload() -> None:
    """RFC 9113, 8.1: RST_STREAM with NO_ERROR; what is still on the way is dropped."""
    connection = started()
    received(connection, post())
    connection.send_headers(1, ((b":status", b"413"),), end=True)
    assert frames_of(connection.take_output())[-1] == (frames.RST_STREAM, 0, 1, _u32(NO_ERROR))
    assert received(connection, data(1, b"more"), data(1, b"", end=True)) == []
    assert not connection.closed


def test_large_answers_are_cut_into_frames_and_blocks_into_fragments() -> None:
    connection = started()
    received(connection, get())
    value = b"v" * 40_000
    connection.send_headers(1, [*OK, (b"x", value)])
    assert connection.send_data(1, bytes(20_000), end=True) == 20_000
    shapes = [(kind, flags, len(p)) for kind, flags, _, p in frames_of(connection.take_output())]
    assert shapes == [
        (frames.HEADERS, 0, 16_384),
        (frames.CONTINUATION, 0, 16_384),
        (frames.CONTINUATION, frames.END_HEADERS, 40_008 - 2 * 16_384),
        (frames.DATA, 0, 16_384),
        (frames.DATA, frames.END_STREAM, 20_000 - 16_384),
    ]


def test_a_block_as_large_as_a_frame_is_one() -> None:
    connection = started()
    received(connection, get())
    connection.send_headers(1, [*OK, (b"x", b"v" * 16_377)])
    ((kind, flags, _, block),) = frames_of(connection.take_output())
    assert (kind, flags, len(block)) == (frames.HEADERS, frames.END_HEADERS, 16_384)


def test_an_answer_is_made_for_the_settings_of_its_reader() -> None:
    connection = started()
    sizes = frames.settings({frames.MAX_FRAME_SIZE: 20_000, frames.HEADER_TABLE_SIZE: 0})
    received(connection, sizes, get())
    connection.take_output()
    connection.send_headers(1, OK)
    connection.send_data(1, bytes(20_001))
    assert [(kind, p[:2], len(p)) for kind, _, _, p in frames_of(connection.take_output())] == [
        (frames.HEADERS, b"\x20\x88", 2),
        (frames.DATA, b"\0\0", 20_000),
        (frames.DATA, b"\0", 1),
    ]


@pytest.mark.parametrize(
    "field",
    [(b"x", b"a\r\nb"), (b"x", b"\0"), (b"X", b"a"), (b"x", b" a"), (b"connection", b"close")],
)
def test_a_field_that_would_break_the_answer_is_not_sent(field: Field) -> None:
    connection = started()
    received(connection, get())
    with pytest.raises(ValueError, match=r"field|value"):
        connection.send_headers(1, [*OK, field])
    assert connection.take_output() == b""


def test_what_is_sent_on_a_stream_that_is_gone_is_dropped() -> None:
    connection = started()
    reset = StreamReset(1, CANCEL, "")
    assert received(connection, get(), frames.rst_stream(1, CANCEL)) == [REQUEST, reset]
    connection.send_headers(1, OK)
    assert connection.send_data(1, b"abc", end=True) == 3
    connection.send_trailers(1, ())
    connection.reset(1, CANCEL)
    connection.acknowledge(1, 5)
    assert connection.take_output() == b""


def test_a_ping_of_ours_comes_back() -> None:
    connection = started()
    connection.ping(b"12345678")
    assert connection.take_output() == frame(frames.PING, 0, 0, b"12345678")
    pong = frame(frames.PING, frames.ACK, 0, b"12345678")
    assert received(connection, pong) == [PingAnswered(b"12345678")]


def test_a_client_that_goes_away_keeps_its_streams() -> None:
    connection = started()
    events = received(connection, get(), frames.go_away(0, NO_ERROR, b"bye"))
    assert events == [REQUEST, GoAwayReceived(0, NO_ERROR, b"bye")]
    assert connection.streams == 1


# The end of a connection (6.8)


def test_draining_accepts_what_is_on_the_way_and_then_names_the_last_stream() -> None:
    connection = started()
    received(connection, get(1))
    connection.drain()
    connection.drain()
    assert frames_of(connection.take_output()) == [
        (frames.GOAWAY, 0, 0, _u32(2**31 - 1) + _u32(NO_ERROR)),
        (frames.PING, 0, 0, DRAIN_PING),
    ]
    assert len(received(connection, get(3))) == 1
    assert received(connection, frame(frames.PING, frames.ACK, 0, DRAIN_PING)) == [Drained(3)]
    assert connection.take_output() == frames.go_away(3, NO_ERROR)
    assert received(connection, get(5)) == []  # not read, so it can be sent again elsewhere
    for stream in (1, 3):
        assert not connection.closed
        connection.send_headers(stream, OK, end=True)
    assert connection.closed


def test_a_stream_behind_a_go_away_leaves_the_tables_equal() -> None:
    connection = started()
    received(connection, get(1))
    connection.go_away()
    indexed = b"".join(b"\x40" + literal([field])[1:] for field in GET)
    flags = frames.END_HEADERS | frames.END_STREAM
    assert received(connection, frame(frames.HEADERS, flags, 3, indexed)) == []
    connection.take_output()
    assert received(connection, frame(frames.HEADERS, flags, 5, b"\xbe\xbf\xc0\xc1")) == []
    assert not connection.closed
    connection.go_away(INTERNAL_ERROR, "again")
    assert connection.take_output() == frames.go_away(1, INTERNAL_ERROR, b"again")


def test_a_failed_connection_says_why_and_does_nothing_any_more() -> None:
    connection = started()
    received(connection, get())
    words = "a ping of a stream"
    assert received(connection, frame(frames.PING, 0, 1, bytes(8)), get(3)) == [
        ConnectionFailed(PROTOCOL_ERROR, words)
    ]
    assert connection.take_output() == frames.go_away(1, PROTOCOL_ERROR, words.encode())
    connection.send_headers(1, OK)
    connection.drain()
    connection.go_away()
    assert received(connection, get(5)) == []
    assert connection.take_output() == b""
    assert connection.closed


# Windows (5.2, 6.9)


def test_what_the_windows_do_not_take_waits_for_them() -> None:
    connection = started()
    received(connection, _setting(frames.INITIAL_WINDOW_SIZE, 3), get())
    connection.take_output()
    assert connection.send_data(1, b"abcde", end=True) == 3
    assert connection.take_output() == data(1, b"abc")
    assert received(connection, frames.window_update(0, 10)) == []
    assert received(connection, frames.window_update(1, 1)) == [WindowOpened(1)]
    assert connection.send_data(1, b"de", end=True) == 1
    assert received(connection, _setting(frames.INITIAL_WINDOW_SIZE, 4)) == [WindowOpened(1)]
    connection.take_output()
    assert connection.send_data(1, b"e", end=True) == 1
    assert connection.take_output() == data(1, b"e", end=True)


def test_a_window_may_sink_below_zero_and_an_end_needs_none() -> None:
    """6.9.2: a smaller initial window counts what was already sent."""
    connection = started()
    received(connection, _setting(frames.INITIAL_WINDOW_SIZE, 5), get())
    connection.send_data(1, b"abcde")
    received(connection, _setting(frames.INITIAL_WINDOW_SIZE, 2))
    connection.take_output()
    assert connection.send_data(1, b"f") == 0
    assert received(connection, frames.window_update(1, 3)) == []
    assert connection.send_data(1, b"", end=True) == 0
    assert connection.take_output() == data(1, b"", end=True)


def test_streams_that_wait_for_the_connection_are_woken_together() -> None:
    connection = started()
    received(connection, get(1), get(3), get(5))
    assert connection.send_data(1, bytes(65_535)) == 65_535
    assert connection.send_data(3, b"abc") == 0
    assert connection.send_data(5, b"abc") == 0
    connection.reset(5, CANCEL)
    received(connection, frames.window_update(1, 10))
    assert connection.send_data(1, b"d") == 0
    assert received(connection, frames.window_update(0, 4_095)) == []
    events = received(connection, frames.window_update(0, 1))
    assert events == [WindowOpened(3), WindowOpened(1)]
    assert received(connection, frames.window_update(0, 4_096)) == []


def test_windows_are_given_back_by_halves_once_consumed() -> None:
    spec = Http2Spec(stream_window_bytes=65_536, connection_window_bytes=131_072)
    connection = started(spec)
    piece = data(1, bytes(16_384))
    received(connection, post(), *[piece] * 4)
    assert connection.take_output() == b""
    connection.acknowledge(1, 16_384)
    assert connection.take_output() == b""
    connection.acknowledge(1, 16_384)
    assert connection.take_output() == frames.window_update(1, 32_768)
    connection.acknowledge(1, 16_384)
    assert connection.take_output() == b""
    connection.acknowledge(1, 16_384)
    assert frames_of(connection.take_output()) == [
        (frames.WINDOW_UPDATE, 0, 0, _u32(65_536)),
        (frames.WINDOW_UPDATE, 0, 1, _u32(32_768)),
    ]
    (taken,) = received(connection, *[piece] * 4)
    assert taken == DataReceived(1, bytes(65_536), 65_536, False)


def test_what_a_stream_did_not_consume_is_given_back_when_it_ends() -> None:
    spec = Http2Spec(stream_window_bytes=65_536, connection_window_bytes=65_536)
    for how in (lambda c: c.reset(1, CANCEL), lambda c: received(c, frames.rst_stream(1, CANCEL))):
        connection = started(spec)
        received(connection, post(), *[data(1, bytes(16_384))] * 2)
        how(connection)
        assert frames.window_update(0, 32_768) in connection.take_output()
        connection.acknowledge(1, 32_768)  # late, and not counted twice
        assert connection.take_output() == b""


def test_a_body_beyond_its_window_ends_its_stream_and_beyond_the_connection_all() -> None:
    spec = Http2Spec(stream_window_bytes=65_536, connection_window_bytes=81_920)
    connection = started(spec)
    received(connection, post(1), *[data(1, bytes(16_384))] * 4, post(3))
    events = received(connection, data(1, b"a"))
    assert events == [StreamReset(1, FLOW_CONTROL_ERROR, "more data than its window")]
    connection = started(spec)
    received(connection, post(1), *[data(1, bytes(16_384))] * 4, post(3), data(3, bytes(16_384)))
    (failed,) = received(connection, data(3, b"a"))
    assert isinstance(failed, ConnectionFailed)
    assert failed.code == FLOW_CONTROL_ERROR


def test_bytes_that_nobody_reads_count_for_the_connection_and_come_back() -> None:
    spec = Http2Spec(connection_window_bytes=65_536, stream_window_bytes=65_536)
    connection = started(spec)
    received(connection, post())
    connection.reset(1, CANCEL)
    assert connection.take_output() == frames.rst_stream(1, CANCEL)
    for _ in range(10):
        assert received(connection, *[data(1, bytes(16_384))] * 2) == []
        assert connection.take_output() == frames.window_update(0, 32_768)


# Requests (8)


def _head(*fields: Field) -> list[Field]:
    return [*GET, *fields]


def test_the_fields_of_a_request_are_read() -> None:
    fields: list[Field] = [
        (b":method", b"OPTIONS"),
        (b":path", b"*"),
        (b":scheme", b"https"),
        (b"cookie", b"a=b"),
        (b"host", b"A:80"),
        (b"te", b"Trailers"),
        (b"cookie", b"c=d"),
        (b"x", b""),
        (b"y", "é\t\x80".encode()),
    ]
    plain = ((b"host", b"A:80"), (b"te", b"Trailers"), (b"x", b""), fields[-1])
    assert received(started(), headers(1, fields)) == [
        RequestReceived(
            1, b"OPTIONS", b"*", b"A:80", b"https", (*plain, (b"cookie", b"a=b; c=d")), True
        )
    ]


def test_connect_has_an_authority_alone() -> None:
    fields = [(b":method", b"CONNECT"), (b":authority", b"a:1")]
    assert received(started(), headers(1, fields, end=False)) == [
        RequestReceived(1, b"CONNECT", b"", b"a:1", b"", (), False)
    ]


def test_a_block_that_changes_the_table_changes_it_each_time() -> None:
    """Sent three times, it leaves six entries: the last request refers to the first of them."""
    connection = started()
    block = b"\x82\x86\x84\x41\x01a" + b"\x40\x01x\x01y"
    ends = frames.END_HEADERS | frames.END_STREAM
    for stream in (1, 3, 5):
        assert len(received(connection, frame(frames.HEADERS, ends, stream, block))) == 1
    oldest = b"\x82\x86\x84\xc3"  # 67: of six entries the first, which is :authority
    [event] = received(connection, frame(frames.HEADERS, ends, 7, oldest))
    assert isinstance(event, RequestReceived)
    assert event.authority == b"a"


def test_a_block_that_repeats_is_read_anew_once_the_table_has_changed() -> None:
    connection = started()
    flags = frames.END_HEADERS | frames.END_STREAM
    first = b"\x82\x86\x84\x41\x01a"  # puts `:authority: a` into the table
    streams = iter(range(1, 99, 2))

    def authority(block: bytes) -> bytes:
        (event,) = received(connection, frame(frames.HEADERS, flags, next(streams), block))
        assert isinstance(event, RequestReceived)
        return event.authority

    repeated = b"\x82\x86\x84\xbe"
    assert [authority(first), authority(repeated), authority(repeated)] == [b"a"] * 3
    assert authority(b"\x82\x86\x84\x41\x01b") == b"b"
    assert authority(repeated) == b"b"
    same = [frame(frames.HEADERS, flags, next(streams), repeated + b"\0\1x\1y") for _ in range(2)]
    first_head, second_head = received(connection, *same)
    assert isinstance(first_head, RequestReceived)
    assert isinstance(second_head, RequestReceived)
    assert first_head.fields is second_head.fields  # it was not read again
    # A list that is too large changes the table as well
    indexed = b"\x41\x01c"
    large = b"".join([b"\x82\x86\x84", indexed, b"\x00\x01x\x7f\x80\x7d" + b"v" * 16_127] * 2)
    pieces = [large[at : at + 16_000] for at in range(0, len(large), 16_000)]
    stream = next(streams)
    received(connection, frame(frames.HEADERS, frames.END_STREAM, stream, pieces[0]))
    for piece in pieces[1:-1]:
        received(connection, frame(frames.CONTINUATION, 0, stream, piece))
    last = frame(frames.CONTINUATION, frames.END_HEADERS, stream, pieces[-1])
    assert received(connection, last) == []
    assert authority(repeated) == b"c"


def test_a_list_beyond_its_bound_is_answered_431() -> None:
    connection = started(Http2Spec(header_list_bytes_max=200))
    head = _head((b"x", b"v" * 100))
    assert received(connection, headers(1, head)) == []
    answer = (frames.HEADERS, 5, 1, b"\x08\x03431")
    assert frames_of(connection.take_output()) == [answer]
    assert received(connection, headers(3, head, end=False), data(3, b"a")) == []
    assert frames_of(connection.take_output())[1] == (frames.RST_STREAM, 0, 3, _u32(NO_ERROR))
    (failed,) = received(connection, headers(5, head * 4))
    assert isinstance(failed, ConnectionFailed)
    assert failed.code == ENHANCE_YOUR_CALM


def test_trailers_beyond_their_bound_end_their_stream() -> None:
    connection = started(Http2Spec(header_list_bytes_max=200))
    trailers = headers(1, [(b"x", b"v" * 100)] * 2)
    assert received(connection, post(), trailers)[1:] == [
        StreamReset(1, ENHANCE_YOUR_CALM, "trailers beyond their bound")
    ]
    assert connection.take_output() == frames.rst_stream(1, ENHANCE_YOUR_CALM)


#: (section, name, fields): each ends its stream with PROTOCOL_ERROR (8.1.1)
MALFORMED: list[tuple[str, str, list[Field]]] = [
    ("8.1.1", "a content-length without a body", _head((b"content-length", b"1"))),
    ("8.2.1", "a name in upper case", _head((b"X", b"a"))),
    ("8.2.1", "a name with a space", _head((b"x y", b"a"))),
    ("8.2.1", "a name with a colon inside", _head((b"x:y", b"a"))),
    ("8.2.1", "a name of no bytes", _head((b"", b"a"))),
    ("8.2.1", "a name beyond ASCII", _head((b"\xc3\xa9", b"a"))),
    ("8.2.1", "a value with a line feed", _head((b"x", b"a\nb"))),
    ("8.2.1", "a value with a carriage return", _head((b"x", b"a\rb"))),
    ("8.2.1", "a value with a zero byte", _head((b"x", b"a\0"))),
    ("8.2.1", "a value that ends with a space", _head((b"x", b"a "))),
    ("8.2.1", "a value that begins with a tab", _head((b"x", b"\ta"))),
    ("8.2.2", "connection", _head((b"connection", b"close"))),
    ("8.2.2", "keep-alive", _head((b"keep-alive", b"1"))),
    ("8.2.2", "proxy-connection", _head((b"proxy-connection", b"close"))),
    ("8.2.2", "transfer-encoding", _head((b"transfer-encoding", b"chunked"))),
    ("8.2.2", "upgrade", _head((b"upgrade", b"websocket"))),
    ("8.2.2", "te beside trailers", _head((b"te", b"trailers, gzip"))),
    ("8.3", "an unknown pseudo field", _head((b":unknown", b"a"))),
    ("8.3", "a pseudo field of answers", _head((b":status", b"200"))),
    ("8.3", "a pseudo field behind a field", [*GET[:3], (b"x", b"a"), GET[3]]),
    ("8.3", "a pseudo field behind a cookie", [*GET[:3], (b"cookie", b"a"), GET[3]]),
    ("8.3", "a pseudo field twice", [*GET, GET[3]]),
    ("8.3.1", "no method", GET[1:]),
    ("8.3.1", "a method that is no token", [(b":method", b"G T"), *GET[1:]]),
    ("8.3.1", "no scheme", [GET[0], *GET[2:]]),
    ("8.3.1", "a scheme that is none", [GET[0], (b":scheme", b"1"), *GET[2:]]),
    ("8.3.1", "no path", [*GET[:2], GET[3]]),
    ("8.3.1", "an empty path", [*GET[:2], (b":path", b""), GET[3]]),
    ("8.3.1", "a path without a slash", [*GET[:2], (b":path", b"a"), GET[3]]),
    ("8.3.1", "a path with a space", [*GET[:2], (b":path", b"/a b"), GET[3]]),
    ("8.3.1", "a path with a fragment", [*GET[:2], (b":path", b"/a#b"), GET[3]]),
    ("8.3.1", "a star that is not OPTIONS'", [*GET[:2], (b":path", b"*"), GET[3]]),
    ("8.3.1", "neither authority nor host", GET[:3]),
    ("8.3.1", "user information", [*GET[:3], (b":authority", b"user@a")]),
    ("8.3.1", "an authority with a path", [*GET[:3], (b":authority", b"a/b")]),
    ("8.3.1", "user information in host", [*GET[:3], (b"host", b"user@a")]),
    ("8.3.1", "host beside another authority", _head((b"host", b"b"))),
    ("8.5", "CONNECT with a path", [(b":method", b"CONNECT"), GET[2], GET[3]]),
    ("8.5", "CONNECT with a scheme", [(b":method", b"CONNECT"), GET[1], GET[3]]),
    ("8.5", "CONNECT without an authority", [(b":method", b"CONNECT")]),
    ("RFC 9110, 7.2", "two hosts", _head((b"host", b"a"), (b"host", b"a"))),
    ("RFC 9110, 8.6", "a length that is none", _head((b"content-length", b"+1"))),
    (
        "RFC 9110, 8.6",
        "two lengths",
        _head((b"content-length", b"0"), (b"content-length", b"00"), (b"content-length", b"1")),
    ),
]


@pytest.mark.parametrize(
    ("section", "name", "fields"), MALFORMED, ids=[f"{s} {name}" for s, name, _ in MALFORMED]
)
def test_a_malformed_request_ends_its_stream_alone(
    section: str, name: str, fields: list[Field]
) -> None:
    connection = started()
    for stream in (1, 3):  # what is known about a field must not let it pass later
        assert received(connection, headers(stream, fields)) == []
        reset = (frames.RST_STREAM, 0, stream, _u32(PROTOCOL_ERROR))
        assert frames_of(connection.take_output()) == [reset]
    assert len(received(connection, get(5))) == 1


BODY_OF_3 = [(b":method", b"POST"), *GET[1:], (b"content-length", b"3")]
#: (name, frames behind the head of a request with a body of three bytes)
LENGTHS = [
    ("more", data(1, b"abcd")),
    ("more, later", data(1, b"ab") + data(1, b"cd")),
    ("more, after all of it", data(1, b"abc") + data(1, b"d")),
    ("less", data(1, b"ab", end=True)),
    ("less, before trailers", data(1, b"ab") + headers(1, [(b"x", b"y")])),
    ("trailers that do not end", data(1, b"abc") + headers(1, [(b"x", b"y")], end=False)),
    ("a pseudo field in trailers", data(1, b"abc") + headers(1, [GET[0]])),
    ("upper case in trailers", data(1, b"abc") + headers(1, [(b"X", b"y")])),
]


@pytest.mark.parametrize(("name", "sent"), LENGTHS, ids=[name for name, _ in LENGTHS])
def test_a_body_that_is_malformed_ends_its_stream(name: str, sent: bytes) -> None:
    connection = started()
    *_, event = received(connection, headers(1, BODY_OF_3, end=False), sent)
    assert isinstance(event, StreamReset)
    assert event[:2] == (1, PROTOCOL_ERROR)


@pytest.mark.parametrize("rest", [data(1, b"c", end=True), data(1, b"c") + headers(1, [])])
def test_a_body_of_its_length_is_whole(rest: bytes) -> None:
    events = received(started(), headers(1, BODY_OF_3, end=False), data(1, b"ab"), rest)
    assert not any(isinstance(event, StreamReset) for event in events)


def test_streams_beyond_their_number_are_refused_and_may_come_again() -> None:
    connection = started(Http2Spec(streams_max=2))
    assert len(received(connection, get(1), get(3), get(5))) == 2
    assert connection.take_output() == frames.rst_stream(5, REFUSED_STREAM)
    connection.send_headers(3, OK, end=True)
    assert len(received(connection, get(7))) == 1


# What h2spec tests, as a table: (section, name, bytes behind the two prefaces, the error's code).

_HEADERS_OPEN = frame(frames.HEADERS, frames.END_STREAM, 1, literal(GET)[:5])

#: Errors of the connection (5.4.1)
CONNECTION_ERRORS = [
    ("4.2", "a frame beyond SETTINGS_MAX_FRAME_SIZE", data(1, bytes(16_385)), FRAME_SIZE_ERROR),
    ("4.3", "a block that can't be decoded", frame(1, 5, 1, b"\x80"), COMPRESSION_ERROR),
    (
        "4.3",
        "another frame within a block",
        _HEADERS_OPEN + frame(6, 0, 0, bytes(8)),
        PROTOCOL_ERROR,
    ),
    ("5.1", "idle: DATA", data(1, b"a"), PROTOCOL_ERROR),
    ("5.1", "idle: RST_STREAM", frames.rst_stream(1, CANCEL), PROTOCOL_ERROR),
    ("5.1", "idle: WINDOW_UPDATE", frames.window_update(1, 1), PROTOCOL_ERROR),
    ("5.1", "idle: CONTINUATION", frame(9, 4, 1, b"\x82"), PROTOCOL_ERROR),
    ("5.1.1", "a stream of even number", get(2), PROTOCOL_ERROR),
    ("5.1.1", "a stream below the last one", get(5) + get(3), PROTOCOL_ERROR),
    (
        "5.1.1",
        "idle: a stream of even number below",
        get(5) + frames.rst_stream(2, 8),
        PROTOCOL_ERROR,
    ),
    ("5.5", "an unknown frame within a block", _HEADERS_OPEN + frame(22, 0, 0), PROTOCOL_ERROR),
    ("6.1", "DATA of stream 0", data(0, b"a"), PROTOCOL_ERROR),
    ("6.1", "padding as long as its frame", post() + frame(0, 8, 1, b"\x02\0"), PROTOCOL_ERROR),
    ("6.1", "padding of nothing", post() + frame(0, 8, 1), FRAME_SIZE_ERROR),
    ("6.2", "HEADERS of stream 0", get(0), PROTOCOL_ERROR),
    ("6.2", "padding as long as its frame", frame(1, 0xD, 1, b"\x02\x82"), PROTOCOL_ERROR),
    ("6.2", "padding over the priority", frame(1, 0x2D, 1, b"\x01" + bytes(5)), PROTOCOL_ERROR),
    ("6.2", "no room for the priority", frame(1, 0x25, 1, bytes(4)), FRAME_SIZE_ERROR),
    ("6.2", "no room for it behind padding", frame(1, 0x2D, 1, bytes(5)), FRAME_SIZE_ERROR),
    ("6.3", "PRIORITY of stream 0", frame(2, 0, 0, bytes(5)), PROTOCOL_ERROR),
    ("6.3", "PRIORITY of 4 bytes, idle", frame(2, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    ("6.4", "RST_STREAM of stream 0", frames.rst_stream(0, CANCEL), PROTOCOL_ERROR),
    ("6.4", "RST_STREAM of 3 bytes", get() + frame(3, 0, 1, bytes(3)), FRAME_SIZE_ERROR),
    ("6.5", "SETTINGS of a stream", frame(4, 0, 1), PROTOCOL_ERROR),
    ("6.5", "SETTINGS of 3 bytes", frame(4, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    ("6.5", "an ACK with settings", frame(4, 1, 0, bytes(6)), FRAME_SIZE_ERROR),
    ("6.5.2", "ENABLE_PUSH beyond 1", _setting(2, 2), PROTOCOL_ERROR),
    ("6.5.2", "a window beyond 2^31 - 1", _setting(4, 2**31), FLOW_CONTROL_ERROR),
    ("6.5.2", "a frame size below 16,384", _setting(5, 16_383), PROTOCOL_ERROR),
    ("6.5.2", "a frame size beyond 2^24 - 1", _setting(5, 2**24), PROTOCOL_ERROR),
    ("6.7", "PING of a stream", frame(6, 0, 1, bytes(8)), PROTOCOL_ERROR),
    ("6.7", "PING of 6 bytes", frame(6, 0, 0, bytes(6)), FRAME_SIZE_ERROR),
    ("6.8", "GOAWAY of a stream", frame(7, 0, 1, bytes(8)), PROTOCOL_ERROR),
    ("6.8", "GOAWAY of 7 bytes", frame(7, 0, 0, bytes(7)), FRAME_SIZE_ERROR),
    ("6.9", "a window of the connection by 0", frames.window_update(0, 0), PROTOCOL_ERROR),
    ("6.9", "WINDOW_UPDATE of 3 bytes", frame(8, 0, 0, bytes(3)), FRAME_SIZE_ERROR),
    ("6.9.1", "the connection's window overflows", frames.window_update(0, 2**31 - 1), 3),
    (
        "6.9.2",
        "a setting makes a window overflow",
        get() + frames.window_update(1, 2**31 - 1 - 65_535) + _setting(4, 65_536),
        FLOW_CONTROL_ERROR,
    ),
    ("6.10", "CONTINUATION behind the end", get() + frame(9, 4, 1, b"\x82"), PROTOCOL_ERROR),
    ("6.10", "CONTINUATION of another stream", _HEADERS_OPEN + frame(9, 4, 3), PROTOCOL_ERROR),
    ("6.10", "CONTINUATION of stream 0", _HEADERS_OPEN + frame(9, 4, 0), PROTOCOL_ERROR),
    ("8.4", "PUSH_PROMISE", get() + frame(5, 4, 1, bytes(4)), PROTOCOL_ERROR),
]

#: Errors of stream 1 (5.4.2)
STREAM_ERRORS = [
    ("5.1", "DATA behind the end", get() + data(1, b"a"), STREAM_CLOSED),
    ("5.1", "HEADERS behind the end", get() + get(), STREAM_CLOSED),
    ("6.3", "PRIORITY of 4 bytes", get() + frame(2, 0, 1, bytes(4)), FRAME_SIZE_ERROR),
    ("6.9", "a window by 0", get() + frames.window_update(1, 0), PROTOCOL_ERROR),
    (
        "6.9.1",
        "its window overflows",
        get() + frames.window_update(1, 2**31 - 1),
        FLOW_CONTROL_ERROR,
    ),
]

#: Frames that change nothing
IGNORED = [
    ("3.4", "settings acknowledged", frame(4, 1, 0)),
    ("4.1", "flags and a bit without a meaning", frame(6, 0xFE, 2**31, b"12345678")),
    ("5.1", "PRIORITY of an idle stream", frame(2, 0, 7, bytes(5))),
    ("5.1", "RST_STREAM of a stream that was reset", get() + 2 * frames.rst_stream(1, 8)),
    ("5.5", "an unknown frame", frame(22, 0xFF, 99, b"abc")),
    ("6.5.2", "an unknown setting", _setting(0xFF, 1)),
    ("6.5.2", "ENABLE_PUSH", _setting(2, 1)),
    ("6.5.2", "the largest window", _setting(4, 2**31 - 1)),
    ("6.5.2", "the smallest frame size", _setting(5, 2**14)),
    ("6.5.2", "the largest frame size", _setting(5, 2**24 - 1)),
    ("6.9.1", "the largest window", frames.window_update(0, 2**31 - 1 - 65_535)),
    ("6.9", "the reserved bit of an increment", frame(8, 0, 0, _u32(2**31 + 1))),
]


def _ids(table: list[tuple[str, str, bytes, int]]) -> list[str]:
    return [f"{section} {name}" for section, name, *_ in table]


@pytest.mark.parametrize(
    ("section", "name", "sent", "code"), CONNECTION_ERRORS, ids=_ids(CONNECTION_ERRORS)
)
def test_a_rule_whose_break_ends_the_connection(
    section: str, name: str, sent: bytes, code: int
) -> None:
    connection = started()
    failed = received(connection, sent)[-1]
    assert isinstance(failed, ConnectionFailed)
    assert failed.code == code
    kind, _, _, payload = frames_of(connection.take_output())[-1]
    assert (kind, payload[4:8], payload[8:]) == (7, _u32(code), failed.words.encode())


@pytest.mark.parametrize(
    ("section", "name", "sent", "code"), STREAM_ERRORS, ids=_ids(STREAM_ERRORS)
)
def test_a_rule_whose_break_ends_the_stream(
    section: str, name: str, sent: bytes, code: int
) -> None:
    connection = started()
    event = received(connection, sent)[-1]
    assert isinstance(event, StreamReset)
    assert event[:2] == (1, code)
    assert event.words
    assert connection.streams == 0
    assert frames_of(connection.take_output()) == [(frames.RST_STREAM, 0, 1, _u32(code))]
    assert len(received(connection, get(3))) == 1


@pytest.mark.parametrize("sent", [bytes(9), b"GET / HTTP/1.1\r\n", PREFACE[:-1] + b"x"])
def test_a_preface_that_is_none(sent: bytes) -> None:
    events = received(Http2Connection(now=0.0), sent)
    assert events == [ConnectionFailed(PROTOCOL_ERROR, "not HTTP/2")]


@pytest.mark.parametrize(
    "first", [frame(4, 1, 0), frame(6, 0, 0, bytes(8)), get(), frame(22, 0, 0)]
)
def test_settings_come_first(first: bytes) -> None:
    (event,) = received(Http2Connection(now=0.0), PREFACE, first)
    assert isinstance(event, ConnectionFailed)
    assert event.code == PROTOCOL_ERROR


@pytest.mark.parametrize(("sent", "code"), [(data(1, b"a"), 5), (get(1), 5)])
def test_a_frame_on_a_stream_that_both_sides_have_ended(sent: bytes, code: int) -> None:
    connection = started()
    received(connection, get())
    connection.send_headers(1, OK, end=True)
    assert received(connection, frames.window_update(1, 1), frames.rst_stream(1, NO_ERROR)) == []
    (failed,) = received(connection, sent)
    assert isinstance(failed, ConnectionFailed)
    assert failed.code == code


@pytest.mark.parametrize("sent", [data(1, b"a"), headers(1, [(b"x", b"y")])])
def test_a_frame_on_a_stream_that_the_peer_has_reset(sent: bytes) -> None:
    connection = started()
    received(connection, post(), frames.rst_stream(1, CANCEL))
    assert received(connection, sent, sent) == []
    assert connection.take_output() == frames.rst_stream(1, STREAM_CLOSED)


@pytest.mark.parametrize("resets", [1, 127, 128, 255])
def test_frames_on_a_stream_that_we_have_reset_pass(resets: int) -> None:
    """They may have been on the way; as many streams are remembered."""
    connection = started()
    received(connection, post(1))
    connection.reset(1, CANCEL)
    for stream in range(3, 2 * resets + 1, 2):
        received(connection, get(stream))
        connection.send_headers(stream, OK, end=True)
    connection.take_output()
    trailers = headers(1, [(b"x", b"y")])
    assert received(connection, data(1, b"a"), trailers, frames.window_update(1, 5)) == []
    assert connection.take_output() == b""


def test_streams_that_ended_long_ago_are_forgotten() -> None:
    connection = started()
    received(connection, post(1))
    connection.reset(1, CANCEL)
    for stream in range(3, 2 * 256 + 3, 2):
        received(connection, get(stream))
        connection.send_headers(stream, OK, end=True)
    connection.take_output()
    assert received(connection, data(1, b"a")) == []
    assert connection.take_output() == frames.rst_stream(1, STREAM_CLOSED)


@pytest.mark.parametrize(
    ("section", "name", "sent"), IGNORED, ids=[f"{s} {name}" for s, name, _ in IGNORED]
)
def test_a_frame_that_changes_nothing(section: str, name: str, sent: bytes) -> None:
    connection = started()
    assert not any(isinstance(e, ConnectionFailed) for e in received(connection, sent))
    assert len(received(connection, get(5))) == 1
