"""gRPC's messages within bodies, deadlines and status texts, byte for byte."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from urllib.parse import unquote

import pytest

from penstock.wire.grpc_messages import (
    INTERNAL,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    GrpcFault,
    GrpcMessage,
    GrpcMessageSplitter,
    PackedMessage,
    escaped_message,
    framed_message,
    timeout_s,
)

MESSAGES = [b"", b"abc", b"x" * 300, b"y"]
BODY = (
    bytes.fromhex("00 00000000  00 00000003 616263  00 0000012c")
    + b"x" * 300
    + bytes.fromhex("00 00000001 79")
)


def compressed(message: bytes, encoding: bytes = b"gzip") -> bytes:
    """A message of a body, by the library's own functions for each format."""
    packed = gzip.compress(message) if encoding == b"gzip" else zlib.compress(message)
    return b"\1" + len(packed).to_bytes(4) + packed


def inflated(message: GrpcMessage) -> bytes:
    assert isinstance(message, PackedMessage)
    while not message.whole:
        message.inflate(64)
    return message.message()


def test_a_message_has_its_golden_bytes() -> None:
    assert b"".join(framed_message(message) for message in MESSAGES) == BODY


@pytest.mark.parametrize("size", [1, 2, 4, 5, 6, 100, 1_000])
def test_messages_may_be_cut_anywhere(size: int) -> None:
    splitter = GrpcMessageSplitter(300)
    found = []
    for begin in range(0, len(BODY), size):
        found += splitter.feed(BODY[begin : begin + size])
    splitter.finish()
    assert found == MESSAGES


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_messages_are_compressed_where_their_flag_says_so(encoding: bytes) -> None:
    splitter = GrpcMessageSplitter(300, encoding)
    body = compressed(b"x" * 300, encoding) + framed_message(b"plain") + compressed(b"", encoding)
    first, plain, empty = splitter.feed(body)
    assert (inflated(first), plain, inflated(empty)) == (b"x" * 300, b"plain", b"")


def test_a_compressed_message_is_inflated_in_pieces_and_says_what_it_takes() -> None:
    """The last piece has nothing to read and 44 bytes to give; its length is known only then."""
    body = compressed(b"x" * 300)
    [message] = GrpcMessageSplitter(300, b"gzip").feed(body)
    assert isinstance(message, PackedMessage)
    takes = [message.held_bytes]
    while not message.whole:
        message.inflate(128)
        takes.append(message.held_bytes)
    packed_bytes = len(body) - 5
    assert takes == [packed_bytes + size for size in (0, 128, 256, 300)]
    assert message.message() == b"x" * 300


def test_a_piece_reads_a_bounded_part_of_the_message() -> None:
    """A million empty blocks inflate to nothing: they must not be read in one go."""
    blocks = zlib.compress(b"")[:2] + b"\0\0\0\xff\xff" * 1_000_000
    message = PackedMessage(blocks, b"deflate", 300)
    for _ in range(len(blocks) // (256 << 10) + 1):
        message.inflate(64)
        assert not message.whole
    with pytest.raises(GrpcFault, match="not one whole"):
        message.inflate(64)


PACKED = gzip.compress(b"x" * 300)
#: (name, encoding, body, status)
BROKEN = [
    ("larger than its bound", b"identity", bytes.fromhex("00 0000012d"), RESOURCE_EXHAUSTED),
    ("compressed without an encoding", b"identity", bytes.fromhex("01 00000001 61"), INTERNAL),
    ("a flag that is none", b"gzip", b"\2" + len(PACKED).to_bytes(4) + PACKED, INTERNAL),
    ("not gzip", b"gzip", bytes.fromhex("01 00000001 61"), INTERNAL),
    ("gzip that is cut off", b"gzip", b"\1" + (9).to_bytes(4) + PACKED[:9], INTERNAL),
    ("more behind it", b"gzip", b"\1" + (len(PACKED) + 1).to_bytes(4) + PACKED + b"x", INTERNAL),
    ("ends in a piece", b"gzip", b"\1" + (len(PACKED) - 8).to_bytes(4) + PACKED[:-8], INTERNAL),
    ("empty", b"gzip", b"\1" + bytes(4), INTERNAL),
    ("larger when inflated", b"gzip", compressed(b"x" * 301), RESOURCE_EXHAUSTED),
]


@pytest.mark.parametrize(
    ("name", "encoding", "body", "status"), BROKEN, ids=[name for name, *_ in BROKEN]
)
def test_a_message_that_is_broken(name: str, encoding: bytes, body: bytes, status: int) -> None:
    with pytest.raises(GrpcFault) as caught:
        inflated(GrpcMessageSplitter(300, encoding).feed(body)[0])
    assert caught.value.status == status
    assert caught.value.words


def test_a_bomb_is_not_inflated() -> None:
    [bomb] = GrpcMessageSplitter(1 << 20, b"gzip").feed(compressed(bytes(64 << 20)))
    assert isinstance(bomb, PackedMessage)
    tracemalloc.start()
    try:
        bomb.inflate(1 << 20)
        with pytest.raises(GrpcFault):
            bomb.inflate(1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_body_that_ends_within_a_message() -> None:
    splitter = GrpcMessageSplitter(300)
    splitter.finish()
    splitter.feed(BODY[:4])
    with pytest.raises(GrpcFault, match="ends within"):
        splitter.finish()


def test_an_unknown_encoding_is_unimplemented() -> None:
    with pytest.raises(GrpcFault) as caught:
        GrpcMessageSplitter(300, b"snappy")
    assert caught.value.status == UNIMPLEMENTED


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"2H", 7_200),
        (b"3M", 180),
        (b"99999999S", 99_999_999),
        (b"250m", 0.25),
        (b"5u", 5e-6),
        (b"7n", 7e-9),
        (b"0S", 0),
    ],
)
def test_a_timeout_has_a_unit(value: bytes, seconds: float) -> None:
    assert timeout_s(value) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize("value", [b"", b"5", b"S", b"123456789S", b"5s", b"-5S", b"5 S", b"5S\n"])
def test_a_timeout_that_is_none(value: bytes) -> None:
    with pytest.raises(GrpcFault, match="grpc-timeout"):
        timeout_s(value)


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("plain, text~", b"plain, text~"),
        ("100 %", b"100 %25"),
        ("a\r\nb\x7f", b"a%0D%0Ab%7F"),
        ("größe", b"gr%C3%B6%C3%9Fe"),
        (" ends ", b"%20ends%20"),
        ("", b""),
    ],
)
def test_a_status_message_is_percent_encoded(words: str, value: bytes) -> None:
    assert escaped_message(words) == value
    assert unquote(value.decode()) == words
