"""Messages between instance and worker, and tensors as bytes: golden, and back again."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ModelError
from penstock.runtimes.base import Payload, PayloadReply
from penstock.runtimes.python import batches
from penstock.runtimes.tensor_bytes import decode_raw, encode_raw, objects, pack, unpack
from penstock.runtimes.workers import wire

REPLIES = [
    (b"body", b"text/plain", b"", batches.PLAIN),
    (b"", b"a/b", b"attr", batches.WITH_ATTRIBUTES),
]


def test_a_batch_is_a_head_a_table_and_the_blobs() -> None:
    message = batches.pack_batch([Payload(b"m", b"abc"), Payload(b"", b"")])
    assert (
        message
        == bytes.fromhex(
            "14000000 04 00 0200"  # 20 bytes, BATCH, 2 items
            "01000000 03000000 00000000 00000000"
        )
        + b"mabc"
    )
    assert batches.unpack_batch(message[8:], 2) == [(b"m", b"abc"), (b"", b"")]


def test_replies_come_back_with_their_errors() -> None:
    error = batches.pack_replies([(b'{"family":"model","code":"c"}', b"", b"", 2)])
    (reply,) = batches.unpack_replies(error[8:], 1)
    assert isinstance(reply.error, ModelError)
    message = batches.pack_replies(REPLIES)
    assert batches.unpack_replies(message[8:], 2) == [
        PayloadReply(b"body", "text/plain"),
        PayloadReply(b"", "a/b", "attr"),
    ]


@given(st.lists(st.integers(1, 40), max_size=30))
def test_any_cut_of_the_stream_gives_the_same_messages(cuts: list[int]) -> None:
    messages = [batches.pack_replies(REPLIES), wire.message(wire.READY, b"{}")]
    stream = b"".join(messages * 3)
    decoder = wire.MessageDecoder()
    got, at = [], 0
    for cut in [*cuts, len(stream)]:
        got += decoder.feed(stream[at : at + cut])
        at += cut
    assert [kind for kind, _, _ in got] == [batches.REPLIES, wire.READY] * 3
    assert got[-1] == (wire.READY, 0, b"{}")


@pytest.mark.parametrize(
    ("array", "dtype", "raw"),
    [
        (np.array([1, -2], dtype=np.int16), "INT16", "0100feff"),
        (np.array([True, False]), "BOOL", "0100"),
        (np.array([1.0], dtype=np.float32), "BF16", "803f"),
        (np.array([3.1415927], dtype=np.float32), "BF16", "4940"),
        (objects([b"ab", b""]), "BYTES", "02000000616200000000"),
    ],
)
def test_raw_tensors_are_little_endian(array: np.ndarray, dtype: str, raw: str) -> None:
    assert encode_raw(array, dtype).hex() == raw


def test_bf16_keeps_nan_and_rounds_to_even() -> None:
    values = np.array([np.nan, np.inf, 1.00390625, 1.01171875], dtype=np.float32)
    back = decode_raw(encode_raw(values, "BF16"), "BF16", [4])
    assert np.isnan(back[0])
    assert back[1:].tolist() == [np.inf, 1.0, 1.015625]


@pytest.mark.parametrize(
    ("data", "dtype", "shape", "words"),
    [
        (b"\x00" * 7, "FP32", [2], "takes 8 bytes, 7 came"),
        (b"", "FP64", [2**40, 2**40], "bytes, 0 came"),
        (b"\x05\x00\x00\x00ab", "BYTES", [1], "claims 5 bytes, 2 are left"),
        (b"\x01\x00\x00\x00a\x00", "BYTES", [1], "cut short"),
        (b"\x00" * 8, "BYTES", [1], "2 came"),
        (b"\x00" * 8, "BYTES", [10**9], "at least"),
    ],
)
def test_raw_tensors_that_do_not_fit_are_refused(
    data: bytes, dtype: str, shape: list[int], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        decode_raw(data, dtype, shape)


def test_a_pack_keeps_names_dtypes_and_shapes() -> None:
    tensors = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "s": objects([b"x"])}
    back = unpack(pack(tensors))
    assert list(back) == ["a", "s"]
    assert back["a"].dtype == np.uint8
    assert back["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert back["s"].tolist() == [b"x"]
