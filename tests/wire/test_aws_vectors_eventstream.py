"""botocore's event stream cases: its frames with headers of text, written by us byte for byte."""

from __future__ import annotations

from typing import Any

import pytest
from tests.wire import aws_vectors

from penstock.wire.aws import eventstream

aws_vectors.require()


@pytest.mark.parametrize(
    ("encoded", "decoded"),
    [
        case
        for case in aws_vectors.eventstream_cases("POSITIVE_CASES")
        if all(isinstance(value, str) for value in case[1].headers.values())
    ],
)
def test_a_frame_is_written_byte_for_byte(encoded: bytes, decoded: Any) -> None:
    assert eventstream.encode(decoded.headers, decoded.payload) == encoded
