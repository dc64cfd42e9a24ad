"""HTTP/2 frames byte for byte."""

from __future__ import annotations

import pytest

from penstock.wire.http2 import frames

#: name -> what is encoded, the bytes: payload bytes (3), type, flags, stream (4), payload
GOLDEN = {
    "DATA": (
        frames.frame(frames.DATA, frames.END_STREAM, 5, b"abc"),
        "000003 00 01 00000005 616263",
    ),
    "HEADERS": (
        frames.frame(frames.HEADERS, frames.END_HEADERS, 2**31 - 1, b"\x88"),
        "000001 01 04 7fffffff 88",
    ),
    "RST_STREAM": (frames.rst_stream(3, frames.CANCEL), "000004 03 00 00000003 00000008"),
    "SETTINGS": (
        frames.settings({frames.MAX_CONCURRENT_STREAMS: 128, frames.INITIAL_WINDOW_SIZE: 65_536}),
        "00000c 04 00 00000000 0003 00000080 0004 00010000",
    ),
    "SETTINGS, acknowledged": (
        frames.frame(frames.SETTINGS, frames.ACK, 0),
        "000000 04 01 00000000",
    ),
    "GOAWAY": (
        frames.go_away(7, frames.ENHANCE_YOUR_CALM, b"why"),
        "00000b 07 00 00000000 00000007 0000000b 776879",
    ),
    "WINDOW_UPDATE": (frames.window_update(0, 65_535), "000004 08 00 00000000 0000ffff"),
    "a large frame": (frames.frame(frames.DATA, 0, 1, bytes(70_000))[:9], "011170 00 00 00000001"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_frame_has_its_golden_bytes(name: str) -> None:
    encoded, golden = GOLDEN[name]
    assert encoded == bytes.fromhex(golden)


def test_settings_are_read_in_their_order() -> None:
    payload = bytes.fromhex("0004 00000001 0004 00000002 ffff 00000003")
    assert frames.read_settings(payload) == [(4, 1), (4, 2), (0xFFFF, 3)]


def test_the_reserved_bit_of_a_go_away_means_nothing() -> None:
    payload = bytes.fromhex("80000005 00000002") + b"words"
    assert frames.read_go_away(payload) == (5, frames.INTERNAL_ERROR, b"words")
