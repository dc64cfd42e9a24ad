"""botocore's event stream cases: its frames read by us, and written by us byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from tests.wire import aws_vectors

from penstock.wire.aws import eventstream
from penstock.wire.aws.eventstream import EventStreamDecoder, EventStreamError

aws_vectors.require()


@pytest.mark.parametrize(("encoded", "decoded"), aws_vectors.eventstream_cases("POSITIVE_CASES"))
def test_a_frame_is_read_and_written_again_byte_for_byte(encoded: bytes, decoded: Any) -> None:
    (message,) = EventStreamDecoder().feed(encoded)
    values = {name: header.value for name, header in message.headers.items()}
    assert (values, message.payload) == (decoded.headers, decoded.payload)
    assert eventstream.encode(message.headers, message.payload) == encoded


@pytest.mark.parametrize(
    "encoded",
    # Some cases stand in the list as (bytes, exception), some as a tuple of just those.
    [case[0] for case in aws_vectors.eventstream_cases("NEGATIVE_CASES")],
)
def test_a_torn_frame_is_refused(encoded: bytes) -> None:
    with pytest.raises(EventStreamError):
        EventStreamDecoder().feed(encoded)


def test_all_frames_can_come_in_one_piece_or_byte_by_byte() -> None:
    cases = aws_vectors.eventstream_cases("POSITIVE_CASES")
    stream = b"".join(encoded for encoded, _ in cases)
    whole, bytewise = EventStreamDecoder(), EventStreamDecoder()
    at_once = whole.feed(stream)
    one_by_one = [message for byte in stream for message in bytewise.feed(bytes((byte,)))]
    assert at_once == one_by_one
    assert len(at_once) == len(cases)
    assert whole.at_boundary()
    assert bytewise.at_boundary()
