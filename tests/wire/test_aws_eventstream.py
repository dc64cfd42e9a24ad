"""Frames of streamed answers, as botocore and line readers in the wild take them apart."""

from __future__ import annotations

import pytest
from botocore.eventstream import EventStreamBuffer

from penstock.wire.aws import eventstream
from penstock.wire.aws.eventstream import Decoder, EventStreamError, Header


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
        decoder = Decoder()
        messages = decoder.feed(stream[:cut]) + decoder.feed(stream[cut:])
        assert [message.payload[:1] for message in messages] == [b"a", b"{"]


def test_a_stream_that_ends_inside_a_frame_is_not_at_a_boundary() -> None:
    decoder = Decoder()
    assert decoder.at_boundary()
    assert decoder.feed(eventstream.payload_part(b"a")[:-1]) == []
    assert not decoder.at_boundary()


@pytest.mark.parametrize("at", [0, 5, 9, 13, 40, -5, -1])
def test_a_changed_byte_is_noticed(at: int) -> None:
    frame = bytearray(eventstream.payload_part(b"0123456789"))
    frame[at] ^= 1
    with pytest.raises(EventStreamError):
        Decoder().feed(bytes(frame))


def test_a_header_of_an_unknown_kind_is_refused() -> None:
    frame = eventstream.encode({"a": Header(eventstream.TRUE, True)})
    assert Decoder().feed(frame)[0].headers == {"a": Header(eventstream.TRUE, True)}
    with pytest.raises(EventStreamError):
        Decoder().feed(eventstream.encode({"a": Header(17, b"")}))
