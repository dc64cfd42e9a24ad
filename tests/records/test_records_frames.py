"""RecordIO, TFRecord and Gzip: what is read, and what is refused, also from a hostile hand."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
import zlib
from pathlib import Path

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from record_files import SETTINGS, blocks_of, error_of, one_object, records_of

from penstock.core.jobs.spec import cut
from penstock.records.formats import record_io, tf_record
from penstock.records.formats.forward import Forward
from penstock.records.reader import RecordReader

MAGIC = b"\x0a\x23\xd7\xce"
FRAMED = {"RecordIO": record_io.framed, "TFRecord": tf_record.framed}


def test_record_io_is_what_mxnet_writes() -> None:
    assert record_io.framed(b"abcde") == MAGIC + b"\x05\0\0\0" + b"abcde" + bytes(3)
    # A magic number at a multiple of 4 is left out, and the record cut there.
    assert record_io.framed(b"abcd" + MAGIC + b"e") == (
        MAGIC + b"\x04\0\0\x20" + b"abcd" + MAGIC + b"\x01\0\0\x60" + b"e" + bytes(3)
    )
    assert record_io.framed(MAGIC + b"ab") == (
        MAGIC + b"\0\0\0\x20" + MAGIC + b"\x02\0\0\x60" + b"ab" + bytes(2)
    )
    assert record_io.framed(b"a" + MAGIC) == MAGIC + b"\x05\0\0\0" + b"a" + MAGIC + bytes(3)


@pytest.mark.parametrize("kind", ["RecordIO", "TFRecord"])
def test_a_record_may_have_what_the_limit_says(tmp_path: Path, kind: str) -> None:
    one, data = one_object(tmp_path, FRAMED[kind](b"x" * 20), split=kind)
    assert records_of(one, data, record_bytes_max=20) == [b"x" * 20]
    error = error_of(lambda: records_of(one, data, record_bytes_max=19))
    assert (error.code, "byte 0" in error.message) == ("record-too-large", True)


def test_tf_record_is_what_tensorflow_writes() -> None:
    """The frame of an empty record, and of b"abc", as TensorFlow's TFRecordWriter wrote them."""
    assert tf_record.framed(b"") == bytes.fromhex(
        "0000000000000000290398 07d8ea82a2".replace(" ", "")
    )


@settings(max_examples=100, deadline=None)
@given(
    records=st.lists(
        st.lists(st.sampled_from([b"", b"a", b"xyzu", MAGIC, MAGIC[:3]]), max_size=6).map(b"".join),
        max_size=8,
    ),
    chunk=st.integers(1, 30),
    kind=st.sampled_from(["RecordIO", "TFRecord"]),
)
def test_what_was_framed_is_read_again(records: list[bytes], chunk: int, kind: str) -> None:
    data = b"".join(map(FRAMED[kind], records))
    stream = Forward(data[at : at + chunk] for at in range(0, len(data), chunk))
    read = record_io.next_record if kind == "RecordIO" else tf_record.next_record
    found = [read(stream, record_bytes_max=100, what="it") for _ in records]
    assert found == records
    assert read(stream, record_bytes_max=100, what="it") is None


@pytest.mark.parametrize("kind", ["RecordIO", "TFRecord"])
def test_records_know_where_their_frames_begin(tmp_path: Path, kind: str) -> None:
    frames = [FRAMED[kind](bytes([65 + n]) * n) for n in range(5)]
    one, data = one_object(tmp_path, b"".join(frames), split=kind)
    [span] = cut([one], data, 3)
    [block] = blocks_of(one, span, data)
    assert block.records == [bytes([65 + n]) * n for n in range(5)]
    starts = [sum(map(len, frames[:n])) for n in range(5)]
    assert [block.offset_of(n) for n in range(5)] == starts


@pytest.mark.parametrize("kind", ["RecordIO", "TFRecord"])
def test_many_records_come_in_several_blocks(tmp_path: Path, kind: str) -> None:
    one, data = one_object(tmp_path, FRAMED[kind](b"x" * 1000) * 1000, split=kind)
    [span] = cut([one], data, 3)
    blocks = blocks_of(one, span, data)
    assert [block.first for block in blocks][:2] == [0, len(blocks[0].records)]
    assert sum(len(block.records) for block in blocks) == 1000
    assert len(blocks) > 2


def test_every_torn_or_changed_frame_is_refused(tmp_path: Path) -> None:
    """At each byte: cut off there, an object is read only where a frame ends; of TFRecord no bit
    can change unseen."""
    for kind, framed in FRAMED.items():
        frame = framed(b"abcdef")
        for stop in range(1, len(frame)):
            one, data = one_object(tmp_path, frame + frame[:stop], split=kind)
            error = error_of(lambda o=one, d=data: records_of(o, d))
            assert (error.code, f"byte {len(frame)}" in error.message) == (
                "record-unreadable",
                True,
            )
    frame = tf_record.framed(b"abcdef")
    for at in range(len(frame)):
        broken = frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]
        one, data = one_object(tmp_path, broken, split="TFRecord")
        assert error_of(lambda o=one, d=data: records_of(o, d)).code == "record-unreadable"


@pytest.mark.parametrize(
    ("kind", "content", "code"),
    [
        ("RecordIO", MAGIC + struct.pack("<I", 2**29 - 1), "record-too-large"),
        ("RecordIO", MAGIC + struct.pack("<I", 2 << 29), "record-unreadable"),
        ("RecordIO", MAGIC + struct.pack("<I", 3 << 29), "record-unreadable"),
        ("RecordIO", MAGIC + struct.pack("<I", 1 << 29), "record-unreadable"),
        ("RecordIO", (MAGIC + struct.pack("<I", 1 << 29)) * 2, "record-unreadable"),
        ("RecordIO", b"id,name\n1,cup\n", "record-unreadable"),
        ("TFRecord", b"id,name\n1,cup\n", "record-unreadable"),
    ],
)
def test_frames_that_lie_are_refused(tmp_path: Path, kind: str, content: bytes, code: str) -> None:
    one, data = one_object(tmp_path, content, split=kind)
    assert error_of(lambda: records_of(one, data)).code == code


def test_a_length_of_2_to_the_60_takes_no_memory(tmp_path: Path) -> None:
    """With the right checksum: whoever wrote it meant it."""
    length = struct.pack("<Q", 2**60)
    crc = google_crc32c.value(length)
    head = length + struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
    one, data = one_object(tmp_path, head + b"x", split="TFRecord")
    assert error_of(lambda: records_of(one, data)).code == "record-too-large"


def test_endless_pieces_of_one_record_end_at_the_limit(tmp_path: Path) -> None:
    pieces = MAGIC + struct.pack("<I", 1 << 29) + (MAGIC + struct.pack("<I", 2 << 29)) * 100_000
    one, data = one_object(tmp_path, pieces, split="RecordIO")
    error = error_of(lambda: records_of(one, data, record_bytes_max=1000))
    assert error.code == "record-too-large"


@pytest.mark.parametrize("split", ["Line", "None", "RecordIO", "TFRecord"])
def test_gzip_is_unpacked_whatever_parts_the_records(tmp_path: Path, split: str) -> None:
    plain = {
        "Line": b"a\nb\n", "None": b"a\nb\n",
        "RecordIO": record_io.framed(b"a") + record_io.framed(b"b"),
        "TFRecord": tf_record.framed(b"a") + tf_record.framed(b"b"),
    }[split]  # fmt: skip
    expected = [b"a\nb\n"] if split == "None" else [b"a", b"b"]
    # Two members, the cut inside a record, and zeros behind them as tapes have them.
    packed = gzip.compress(plain[:3]) + gzip.compress(plain[3:]) + bytes(512)
    one, data = one_object(tmp_path, packed, split=split, compression="Gzip")
    assert records_of(one, data, span_bytes=1) == expected
    empty, data = one_object(tmp_path, b"", name="empty", split=split, compression="Gzip")
    assert records_of(empty, data) == []
    empty, data = one_object(
        tmp_path, gzip.compress(b""), name="nothing", split=split, compression="Gzip"
    )
    assert records_of(empty, data) == []


def test_broken_gzip_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"a\nb\n" * 1000)
    damaged = [
        whole[:-1], whole[:-9], whole[:5], b"a\nb\n", bytes(100),
        whole[:-6] + bytes([whole[-6] ^ 1]) + whole[-5:], whole + b"rest",
    ]  # fmt: skip
    for content in damaged:
        one, data = one_object(tmp_path, content, split="Line", compression="Gzip")
        assert error_of(lambda o=one, d=data: records_of(o, d)).code == "input-not-gzip"


def bomb(unit: bytes, count: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(unit) for _ in range(count)), packer.flush()])


def test_a_gzip_bomb_takes_no_memory(tmp_path: Path) -> None:
    """40 MB of lines in 40 KB; and 40 MB that are one line or one record."""
    lines = bomb((b"x" * 999 + b"\n") * 1000, 40)
    endless = bomb(b"x" * 1_000_000, 40)
    tracemalloc.start()
    try:
        one, data = one_object(tmp_path, lines, split="Line", compression="Gzip")
        [span] = cut([one], data)
        blocks = RecordReader(one, span, data, SETTINGS).blocks()
        assert sum(len(block.records) for block in blocks) == 40_000
        for split in ("Line", "None"):
            one, data = one_object(tmp_path, endless, split=split, compression="Gzip")
            error = error_of(lambda o=one, d=data: records_of(o, d, record_bytes_max=1_000_000))
            assert error.code == "record-too-large"
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
