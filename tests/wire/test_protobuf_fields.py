"""The fields of a protobuf message are found where they lie, as protobuf itself finds them."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.oip_messages import ModelInferRequest
from penstock.wire.protobuf_fields import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    NotProtobufError,
    TooManyFieldsError,
    apart,
    bytes_field,
    bytes_head,
    fields_of,
)

RAW = 7  #: raw_input_contents


def test_each_field_has_its_number_its_kind_and_its_place() -> None:
    message = (
        b"\x0a\x02ab"  # 1, two bytes
        b"\x10\x96\x01"  # 2, the number 150
        b"\x19" + bytes(8) + b"\x25" + bytes(4) + b"\xa2\x06\x00"  # 3 and 4, fixed; 100, empty
    )
    assert list(fields_of(message)) == [
        (1, BYTES, 0, 2, 4),
        (2, VARINT, 4, 5, 7),
        (3, FIXED64, 7, 8, 16),
        (4, FIXED32, 16, 17, 21),
        (100, BYTES, 21, 24, 24),
    ]


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a",  # no length
        b"\x0a\x03ab",  # two of three bytes
        b"\x0a\x80",  # a length that does not end
        b"\x10",  # no number
        b"\x19\0\0\0",  # four of eight bytes
        b"\x25\0",
        b"\x02\x00",  # the number 0
        b"\x0b",  # a group, which this protocol has not
        b"\xff" * 11,
    ],
)
def test_what_is_no_message_is_refused(message: bytes) -> None:
    with pytest.raises(NotProtobufError):
        list(fields_of(message))


def test_a_message_of_very_many_fields_is_not_walked_to_its_end() -> None:
    assert len(list(fields_of(b"\x10\x01" * 4_096))) == 4_096
    with pytest.raises(TooManyFieldsError, match="more than 4096 fields"):
        list(fields_of(b"\x10\x01" * 4_097))


@given(
    st.lists(st.binary(max_size=300), max_size=4),
    st.lists(st.text(max_size=20), max_size=4),
    st.randoms(use_true_random=False),
)
def test_contents_are_taken_out_of_a_message_wherever_they_stand(
    contents: list[bytes], names: list[str], random: object
) -> None:
    """Fields may come in any order; those of one number keep theirs."""
    parts = [bytes_field(RAW, each) for each in contents]
    others = [ModelInferRequest(inputs=[{"name": name}]).SerializeToString() for name in names]
    at = 0
    for other in others:
        at = random.randint(at, len(parts))  # type: ignore[attr-defined]
        parts.insert(at, other)
        at += 1
    message = b"".join(parts)
    rest, found = apart(message, RAW)
    whole = ModelInferRequest.FromString(message)
    assert list(map(bytes, found)) == list(whole.raw_input_contents) == contents
    assert [each.name for each in ModelInferRequest.FromString(rest).inputs] == names
    assert not ModelInferRequest.FromString(rest).raw_input_contents


@given(st.binary(max_size=60))
def test_what_is_walked_is_what_protobuf_takes(data: bytes) -> None:
    """But for groups, and for values that a field of the protocol can't have."""
    try:
        ModelInferRequest.FromString(data)
    except DecodeError:
        return
    try:
        list(fields_of(data))
    except NotProtobufError:
        assert any(byte & 7 in (3, 4) for byte in data)


def test_a_field_is_written_as_protobuf_writes_it() -> None:
    for size in (0, 1, 127, 128, 70_000):
        contents = bytes(size)
        made = ModelInferRequest(raw_input_contents=[contents]).SerializeToString()
        assert bytes_head(RAW, size) + contents == bytes_field(RAW, contents) == made
