"""gRPC's messages within bodies, deadlines and status texts, byte for byte."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest

from penstock.wire.grpc_messages import (
    INTERNAL,
    RESOURCE_EXHAUSTED,
    UNIMPLEMENTED,
    GrpcFault,
    GrpcMessageSplitter,
    accepted_encoding,
    escaped_message,
    framed_message,
    timeout_s,
    unescaped_message,
)

MESSAGES = [b"", b"abc", b"x" * 300, b"y"]
BODY = (
    bytes.fromhex("00 00000000  00 00000003 616263  00 0000012c")
    + b"x" * 300
    + bytes.fromhex("00 00000001 79")
)


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
    packed = framed_message(b"x" * 300, encoding)
    assert packed[0] == 1
    assert len(packed) < 50
    splitter = GrpcMessageSplitter(300, encoding)
    assert splitter.feed(packed + framed_message(b"plain")) == [b"x" * 300, b"plain"]


def test_the_encodings_are_those_of_their_formats() -> None:
    splitter = GrpcMessageSplitter(300, b"gzip")
    packed = gzip.compress(b"abc")
    assert splitter.feed(b"\1" + len(packed).to_bytes(4) + packed) == [b"abc"]
    assert zlib.decompress(framed_message(b"abc", b"deflate")[5:]) == b"abc"


PACKED = gzip.compress(b"x" * 300)
#: (name, encoding, body, status)
BROKEN = [
    ("larger than its bound", b"identity", bytes.fromhex("00 0000012d"), RESOURCE_EXHAUSTED),
    ("compressed without an encoding", b"identity", bytes.fromhex("01 00000001 61"), INTERNAL),
    ("a flag that is none", b"gzip", b"\2" + len(PACKED).to_bytes(4) + PACKED, INTERNAL),
    ("not gzip", b"gzip", bytes.fromhex("01 00000001 61"), INTERNAL),
    ("gzip that is cut off", b"gzip", b"\1" + (9).to_bytes(4) + PACKED[:9], INTERNAL),
    ("more behind it", b"gzip", b"\1" + (len(PACKED) + 1).to_bytes(4) + PACKED + b"x", INTERNAL),
    ("larger when inflated", b"gzip", framed_message(b"x" * 301, b"gzip"), RESOURCE_EXHAUSTED),
]


@pytest.mark.parametrize(
    ("name", "encoding", "body", "status"), BROKEN, ids=[name for name, *_ in BROKEN]
)
def test_a_message_that_is_broken(name: str, encoding: bytes, body: bytes, status: int) -> None:
    with pytest.raises(GrpcFault) as caught:
        GrpcMessageSplitter(300, encoding).feed(body)
    assert caught.value.status == status
    assert caught.value.words


def test_a_bomb_is_not_inflated() -> None:
    bomb = framed_message(bytes(64 << 20), b"gzip")
    splitter = GrpcMessageSplitter(1 << 20, b"gzip")
    tracemalloc.start()
    try:
        with pytest.raises(GrpcFault):
            splitter.feed(bomb)
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
    ("value", "encoding"),
    [
        (b"identity, deflate, gzip", b"gzip"),
        (b"deflate,br", b"deflate"),
        (b"", b"identity"),
        (b"br", b"identity"),
    ],
)
def test_answers_are_compressed_as_the_client_can_read(value: bytes, encoding: bytes) -> None:
    assert accepted_encoding(value) == encoding


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
    assert unescaped_message(value) == words


def test_what_is_no_escape_stays() -> None:
    assert unescaped_message(b"100% %zz %C3") == "100% %zz �"
