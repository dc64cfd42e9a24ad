"""Frames of streamed answers, as botocore and line readers in the wild take them apart."""

from __future__ import annotations

import struct

from botocore.eventstream import EventStreamBuffer

from penstock.wire.aws import eventstream


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


def test_a_piece_of_exactly_the_limit_is_one_frame() -> None:
    stream = eventstream.payload_part(bytes(24 << 20))
    [(_, payload)] = read_by_botocore(stream)
    assert len(payload) == 24 << 20
    assert len(stream) == struct.unpack(">I", stream[:4])[0]


def test_headers_are_utf_8_and_frames_stand_behind_each_other() -> None:
    frames = [eventstream.encode({"a": "é" * n}, bytes(n)) for n in range(3)]
    assert read_by_botocore(b"".join(frames)) == [({"a": "é" * n}, bytes(n)) for n in range(3)]
