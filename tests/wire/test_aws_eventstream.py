"""Frames of streamed answers, as botocore and line readers in the wild take them apart."""

from __future__ import annotations

import struct
import zlib

import pytest
from botocore.eventstream import EventStreamBuffer

from penstock.errors import InternalError
from penstock.wire.aws import eventstream
from penstock.wire.aws.eventstream import EventStreamDecoder, EventStreamError, Header


def read_by_botocore(stream: bytes) -> list[tuple[dict[str, object], bytes]]:
    buffer = EventStreamBuffer()
    buffer.add_data(stream)
    return [(message.headers, message.payload) for message in buffer]


def test_a_piece_of_an_answer_is_one_frame_of_raw_bytes() -> None:
    assert read_by_botocore(eventstream.payload_part(b"\x00token")) == [
        (
            {
                ":event-type": "PayloadPart",
                ":content-type": "application/octet-stream",
                ":message-type": "event",
            },
            b"\x00token",
        )
    ]


def test_a_piece_above_the_readers_limit_becomes_several_frames() -> None:
    chunk = bytes(25 << 20)
    frames = read_by_botocore(eventstream.payload_part(chunk))
    assert [len(payload) for _, payload in frames] == [24 << 20, 1 << 20]


def test_a_failure_after_the_first_byte_is_an_exception_frame() -> None:
    assert read_by_botocore(eventstream.model_stream_error("gone")) == [
        (
            {
                ":exception-type": "ModelStreamError",
                ":content-type": "application/json",
                ":message-type": "exception",
            },
            b'{"Message":"gone","ErrorCode":"StreamBroken"}',
        )
    ]
    ((headers, payload),) = read_by_botocore(eventstream.internal_stream_failure("sorry"))
    assert headers[":exception-type"] == "InternalStreamFailure"
    assert payload == b'{"Message":"sorry"}'


def test_a_stream_cut_anywhere_gives_the_same_messages() -> None:
    stream = eventstream.payload_part(b"a") + eventstream.model_stream_error("gone")
    for cut in range(len(stream) + 1):
        decoder = EventStreamDecoder()
        messages = decoder.feed(stream[:cut]) + decoder.feed(stream[cut:])
        assert [message.payload[:1] for message in messages] == [b"a", b"{"]


def test_a_stream_that_ends_inside_a_frame_is_not_at_a_boundary() -> None:
    decoder = EventStreamDecoder()
    assert decoder.at_boundary()
    assert decoder.feed(eventstream.payload_part(b"a")[:-1]) == []
    assert not decoder.at_boundary()


@pytest.mark.parametrize("at", [0, 5, 9, 13, 40, -5, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    frame = bytearray(eventstream.payload_part(b"0123456789"))
    frame[at] ^= 1
    with pytest.raises(EventStreamError):
        EventStreamDecoder().feed(bytes(frame))


def test_a_header_of_an_unknown_kind_is_refused() -> None:
    frame = eventstream.encode({"a": Header(eventstream.TRUE, True)})
    assert EventStreamDecoder().feed(frame)[0].headers == {"a": Header(eventstream.TRUE, True)}
    with pytest.raises(EventStreamError):
        EventStreamDecoder().feed(eventstream.encode({"a": Header(17, b"")}))


# Edges


def head(total: int, headers_bytes: int) -> bytes:
    start = struct.pack(">II", total, headers_bytes)
    return start + struct.pack(">I", zlib.crc32(start))


@pytest.mark.parametrize(
    ("total", "headers_bytes", "fits"),
    [
        (16, 0, True),
        (15, 0, False),
        (17, 1, True),
        (16, 1, False),
        (0, 0, False),
        (16 + (128 << 10), 128 << 10, True),
        (17 + (128 << 10), (128 << 10) + 1, False),
        (16 + (24 << 20), 0, True),
        (17 + (24 << 20), 0, False),
        (17 + (24 << 20), 1, True),
    ],
)
def test_a_head_that_can_not_be_true_is_refused_when_it_comes(
    total: int, headers_bytes: int, fits: bool
) -> None:
    decoder = EventStreamDecoder()
    assert decoder.feed(head(total, headers_bytes)[:11]) == []
    if fits:
        assert decoder.feed(head(total, headers_bytes)[11:]) == []
        assert not decoder.at_boundary() or total == 16
    else:
        with pytest.raises(EventStreamError):
            decoder.feed(head(total, headers_bytes)[11:])


def test_a_piece_of_exactly_the_limit_is_one_frame() -> None:
    stream = eventstream.payload_part(bytes(24 << 20))
    [message] = EventStreamDecoder().feed(stream)
    assert len(message.payload) == 24 << 20
    assert len(stream) == struct.unpack(">I", stream[:4])[0]


KINDS = {
    "true": Header(eventstream.TRUE, True),
    "false": Header(eventstream.FALSE, False),
    "byte": Header(eventstream.BYTE, -1),
    "short": Header(eventstream.SHORT, -2),
    "integer": Header(eventstream.INTEGER, -3),
    "long": Header(eventstream.LONG, -4),
    "bytes": Header(eventstream.BYTES, b"\xff"),
    "string": Header(eventstream.STRING, "é"),
    "timestamp": Header(eventstream.TIMESTAMP, 5),
    "uuid": Header(eventstream.UUID, bytes(range(16))),
}


def test_each_kind_of_header_is_read_as_it_was_written() -> None:
    [message] = EventStreamDecoder().feed(eventstream.encode(KINDS, b"payload"))
    assert (message.headers, message.payload) == (KINDS, b"payload")


@pytest.mark.parametrize("name", list(KINDS))
def test_a_header_that_is_cut_is_malformed(name: str) -> None:
    """Its frame is whole: only the header's own lengths are wrong."""
    whole = eventstream._header(name, KINDS[name])
    for cut in range(1, len(whole)):
        with pytest.raises(EventStreamError):
            EventStreamDecoder().feed(eventstream._framed(whole[:cut], b""))
    assert len(EventStreamDecoder().feed(eventstream._framed(whole, b""))) == 1
    with pytest.raises(EventStreamError, match="comes twice"):
        EventStreamDecoder().feed(eventstream._framed(whole * 2, b""))


def test_a_header_of_no_text_is_malformed() -> None:
    with pytest.raises(EventStreamError):
        EventStreamDecoder().feed(eventstream._framed(b"\x01\xff\x00", b""))


@pytest.mark.parametrize(("size", "fits"), [(0xFFFF, True), (0x10000, False)])
def test_a_header_has_so_many_bytes_at_most(size: int, fits: bool) -> None:
    if fits:
        [message] = EventStreamDecoder().feed(eventstream.encode({"a": "x" * size}))
        assert message.headers["a"].value == "x" * size
    else:
        with pytest.raises(InternalError):
            eventstream.encode({"a": "x" * size})


def test_frames_behind_each_other_are_taken_one_by_one() -> None:
    frames = [eventstream.encode({"a": str(n)}, bytes(n)) for n in range(3)]
    decoder = EventStreamDecoder()
    seen = decoder.feed(b"".join(frames) + frames[0][:5])
    assert [(m.headers["a"].value, m.payload) for m in seen] == [
        ("0", b""), ("1", bytes(1)), ("2", bytes(2)),
    ]  # fmt: skip
    assert not decoder.at_boundary()
    assert len(decoder.feed(frames[0][5:])) == 1
    assert decoder.at_boundary()
