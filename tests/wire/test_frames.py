"""The frames on the wire, byte for byte, and how a stream of them is cut however it comes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.wire import frames
from penstock.wire.frames import (
    EITHER_WAY,
    FROM_INSTANCE,
    TO_INSTANCE,
    Frame,
    FrameDecoder,
    FrameError,
    Invoke,
    Reply,
    ReplyMeta,
    RequestMeta,
)

IDENT = 0x0102030405060708
ENDIAN = "0807060504030201"  #: IDENT as it is on the wire

#: kind -> what is encoded, the bytes (head: payload bytes, kind, flags, meta bytes, id), the frame
GOLDEN: dict[str, tuple[bytes, str, Frame]] = {
    "INVOKE": (
        frames.encode_invoke(IDENT, 3, 60_000, 2, b'["a"]', b"body"),
        f"12000000 01 00 0500 {ENDIAN}  03000000 60ea0000 02  5b2261225d 626f6479",
        Frame(1, 0, 5, IDENT, b'\3\0\0\0\x60\xea\0\0\2["a"]body'),
    ),
    "INVOKE, alone": (
        frames.encode_invoke(7, 0xFFFFFFFF, 0, 255, b"", b"", flags=frames.ALONE),
        "09000000 01 01 0000 0700000000000000  ffffffff 00000000 ff",
        Frame(1, 1, 0, 7, b"\xff\xff\xff\xff\0\0\0\0\xff"),
    ),
    "CANCEL": (
        frames.encode(frames.CANCEL, IDENT),
        f"00000000 02 00 0000 {ENDIAN}",
        Frame(2, 0, 0, IDENT, b""),
    ),
    "CONTROL": (
        frames.encode(frames.CONTROL, 1, b'{"op":"x"}'),
        "0a000000 03 00 0000 0100000000000000  7b226f70223a2278227d",
        Frame(3, 0, 0, 1, b'{"op":"x"}'),
    ),
    "PACE": (
        frames.encode(frames.PACE, IDENT, flags=frames.WAIT),
        f"00000000 04 01 0000 {ENDIAN}",
        Frame(4, 1, 0, IDENT, b""),
    ),
    "REPLY": (
        frames.encode_reply(
            IDENT,
            status=201,
            batch_rows=258,
            lane=3,
            reason=4,
            queue_us=5,
            run_us=6,
            lane_us=7,
            meta=b"[]",
            body=b"yes",
        ),
        f"17000000 20 00 0200 {ENDIAN}  c900 0201 03 04 05000000 06000000 07000000  5b5d 796573",
        Frame(32, 0, 2, IDENT, b"\xc9\0\2\1\3\4\5\0\0\0\6\0\0\0\7\0\0\0[]yes"),
    ),
    "REPLY, of nothing but defaults": (
        frames.encode_reply(1),
        "12000000 20 00 0000 0100000000000000  c800 0000 00 00 00000000 00000000 00000000",
        Frame(32, 0, 0, 1, b"\xc8" + bytes(17)),
    ),
    "CHUNK, the first": (
        frames.encode(frames.CHUNK, 1, b"[]one", flags=frames.FIRST, meta_bytes=2),
        "05000000 21 01 0200 0100000000000000  5b5d 6f6e65",
        Frame(33, 1, 2, 1, b"[]one"),
    ),
    "CHUNK": (
        frames.encode(frames.CHUNK, 1, b"two"),
        "03000000 21 00 0000 0100000000000000  74776f",
        Frame(33, 0, 0, 1, b"two"),
    ),
    "END": (
        frames.encode_reply(1, kind=frames.END, run_us=0x01020304),
        "12000000 22 00 0000 0100000000000000  c800 0000 00 00 00000000 04030201 00000000",
        Frame(34, 0, 0, 1, b"\xc8" + bytes(9) + b"\4\3\2\1" + bytes(4)),
    ),
    "ERROR": (
        frames.encode_reply(1, kind=frames.ERROR, status=503, body=b"{}"),
        "14000000 23 00 0000 0100000000000000  f701 0000 00 00 00000000 00000000 00000000  7b7d",
        Frame(35, 0, 0, 1, b"\xf7\1" + bytes(16) + b"{}"),
    ),
    "RETURNED": (
        frames.encode(frames.RETURNED, 1, b"draining"),
        "08000000 24 00 0000 0100000000000000  647261696e696e67",
        Frame(36, 0, 0, 1, b"draining"),
    ),
    "CONTROL_REPLY": (
        frames.encode(frames.CONTROL_REPLY, 1, b'{"ok":true}'),
        "0b000000 25 00 0000 0100000000000000  7b226f6b223a747275657d",
        Frame(37, 0, 0, 1, b'{"ok":true}'),
    ),
    "EVENT": (
        frames.encode(frames.EVENT, 0, b"{}"),
        "02000000 26 00 0000 0000000000000000  7b7d",
        Frame(38, 0, 0, 0, b"{}"),
    ),
    "COUNTS": (
        frames.encode_counts([(3, 258), (0xFFFFFFFF, 0)]),
        "10000000 27 00 0000 0000000000000000  03000000 02010000 ffffffff 00000000",
        Frame(39, 0, 0, 0, b"\3\0\0\0\2\1\0\0\xff\xff\xff\xff\0\0\0\0"),
    ),
}
STREAM = b"".join(encoded for encoded, _, _ in GOLDEN.values())
FRAMES = [frame for _, _, frame in GOLDEN.values()]

each = pytest.mark.parametrize("name", GOLDEN)


@each
def test_a_frame_is_these_bytes_and_they_are_that_frame(name: str) -> None:
    encoded, wire, frame = GOLDEN[name]
    assert encoded.hex() == wire.replace(" ", "")
    assert list(FrameDecoder().feed(encoded)) == [frame]


def test_every_kind_has_its_golden_bytes() -> None:
    known = {kind for kind in range(256) if EITHER_WAY[kind] >= 0}
    assert {frame.kind for frame in FRAMES} == known


def test_the_payload_of_a_request_is_taken_apart_at_its_meta() -> None:
    frame = GOLDEN["INVOKE"][2]
    decoded = frames.decode_invoke(frame.payload, frame.meta_bytes)
    assert decoded == Invoke(copy=3, deadline_ms=60_000, priority=2, meta=b'["a"]', body=b"body")
    assert frames.decode_invoke(frame.payload, 0).body == b'["a"]body'


def test_counts_are_pairs_and_half_a_pair_is_torn() -> None:
    frame = GOLDEN["COUNTS"][2]
    assert frames.decode_counts(frame.payload) == [(3, 258), (0xFFFFFFFF, 0)]
    assert frames.decode_counts(b"") == []
    with pytest.raises(FrameError):
        frames.decode_counts(frame.payload[:-4])


def test_the_payload_of_an_answer_is_taken_apart_at_its_meta() -> None:
    frame = GOLDEN["REPLY"][2]
    decoded = frames.decode_reply(frame.payload, frame.meta_bytes)
    assert decoded == Reply(
        status=201, batch_rows=258, lane=3, reason=4, queue_us=5, run_us=6, lane_us=7, meta=b"[]",
        body=b"yes",
    )  # fmt: skip
    assert frames.decode_reply(frame.payload, 0).body == b"[]yes"


# A stream, in pieces


def test_a_stream_cut_in_two_anywhere_gives_all_its_frames_once() -> None:
    for cut in range(len(STREAM) + 1):
        decoder = FrameDecoder()
        got = [*decoder.feed(STREAM[:cut]), *decoder.feed(STREAM[cut:])]
        assert (got, decoder.between_frames) == (FRAMES, True), f"cut at {cut}"


def test_a_stream_that_comes_byte_by_byte_gives_each_frame_with_its_last_byte() -> None:
    decoder = FrameDecoder()
    ends = []
    for at in range(len(STREAM)):
        ends += [(frame, at + 1) for frame in decoder.feed(STREAM[at : at + 1])]
        assert decoder.between_frames == bool(ends and ends[-1][1] == at + 1)
    sizes = [len(encoded) for encoded, _, _ in GOLDEN.values()]
    assert ends == [(frame, sum(sizes[: n + 1])) for n, frame in enumerate(FRAMES)]


@each
def test_no_beginning_of_a_frame_is_a_frame(name: str) -> None:
    encoded = GOLDEN[name][0]
    for size in range(len(encoded)):
        assert list(FrameDecoder().feed(encoded[:size])) == []


def test_a_decoder_says_what_it_waits_for() -> None:
    decoder = FrameDecoder()
    told = []
    frame = frames.encode(frames.CHUNK, 1, b"four")
    for piece in (b"", frame[:15], frame[15:16], frame[16:19], frame[19:] + frame[:17], frame[17:]):
        list(decoder.feed(piece))
        told.append((decoder.between_frames, decoder.awaited_bytes, decoder.begun))
    assert told == [
        (True, 0, 0),
        (False, 0, 1),  # how much it is to be is not known before the whole head
        (False, 4, 2),
        (False, 1, 2),
        (False, 3, 3),
        (True, 0, 3),
    ]


def test_what_stands_behind_whole_frames_is_kept_without_them() -> None:
    """Else a large frame behind small ones would carry their bytes along."""
    decoder = FrameDecoder()
    assert len(list(decoder.feed(STREAM + STREAM[:30]))) == len(FRAMES)
    assert decoder.awaited_bytes == len(GOLDEN["INVOKE"][0]) - 30
    assert list(decoder.feed(STREAM[30:])) == FRAMES


# What is no frame

DIRECTIONS = {
    "to": (TO_INSTANCE, {1: 1 << 30, 2: 0, 3: 64 << 20, 4: 0}),
    "from": (
        FROM_INSTANCE,
        {32: 1 << 30, 33: 1 << 30, 34: 1 << 30, 35: 1 << 30,
         36: 1 << 20, 37: 64 << 20, 38: 64 << 20, 39: 1 << 20},
    ),
}  # fmt: skip
DIRECTIONS["either"] = (EITHER_WAY, DIRECTIONS["to"][1] | DIRECTIONS["from"][1])


def head(size: int, kind: int, flags: int = 0, meta_bytes: int = 0, ident: int = 1) -> bytes:
    return frames.HEAD.pack(size, kind, flags, meta_bytes, ident)


def refused(bounds: tuple[int, ...], data: bytes) -> bool:
    try:
        list(FrameDecoder(bounds).feed(data))
    except FrameError:
        return True
    return False


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_each_kind_has_its_largest_payload_and_other_kinds_are_none(direction: str) -> None:
    bounds, bytes_max_by_kind = DIRECTIONS[direction]
    for kind in range(256):
        bytes_max = bytes_max_by_kind.get(kind)
        if bytes_max is None:
            assert refused(bounds, head(0, kind)), kind
        else:
            assert not refused(bounds, head(bytes_max, kind)), kind
            assert refused(bounds, head(bytes_max + 1, kind)), kind


def test_a_head_is_believed_up_to_its_bounds_and_not_beyond() -> None:
    assert not refused(EITHER_WAY, head(5, frames.CHUNK, meta_bytes=5))
    assert refused(EITHER_WAY, head(5, frames.CHUNK, meta_bytes=6))
    assert not refused(EITHER_WAY, head(0, frames.CHUNK, flags=1))
    assert refused(EITHER_WAY, head(0, frames.CHUNK, flags=2))
    assert not refused(EITHER_WAY, head(0, frames.CHUNK, ident=(1 << 64) - 1))


def test_a_torn_head_says_what_it_claimed() -> None:
    with pytest.raises(FrameError) as caught:
        list(FrameDecoder().feed(head(7, 99, flags=1, meta_bytes=3, ident=5)))
    assert (caught.value.code, caught.value.status) == ("frame-torn", 500)
    assert caught.value.message == (
        "a frame of kind 99 claims id 5, flags 1, 7 payload bytes and 3 meta bytes"
    )
    assert caught.value.hint == "Both ends must run the same version."


def test_frames_before_a_torn_one_are_given() -> None:
    coming = FrameDecoder().feed(STREAM + head(0, 0))
    assert [next(coming) for _ in FRAMES] == FRAMES
    with pytest.raises(FrameError):
        next(coming)


# Metas: arrays of JSON, in the order of their fields, without nulls at the end


def test_the_meta_of_a_request_is_an_array_in_this_order() -> None:
    meta = RequestMeta("a", "b", "c", "d", "e", "f", 7, "oip", "{}")
    assert meta == RequestMeta(
        content_type="a", accept="b", custom_attributes="c", inference_id="d", target_model="e",
        session_id="f", json_header_bytes=7, door="oip", parameters="{}",
    )  # fmt: skip
    data = b'["a","b","c","d","e","f",7,"oip","{}"]'
    assert frames.encode_request_meta(meta) == data
    assert frames.decode_request_meta(data) == meta


def test_the_meta_of_an_answer_is_an_array_in_this_order() -> None:
    meta = ReplyMeta("a", "b", 3, "{}")
    assert meta == ReplyMeta(
        content_type="a", custom_attributes="b", json_header_bytes=3, generation="{}"
    )
    data = b'["a","b",3,"{}"]'
    assert frames.encode_reply_meta(meta) == data
    assert frames.decode_reply_meta(data) == meta


def test_what_nobody_said_is_left_out_at_the_end_and_null_before() -> None:
    assert frames.encode_request_meta(RequestMeta("a")) == (
        b'["a",null,null,null,null,null,null,"runtime"]'
    )
    assert frames.encode_reply_meta(ReplyMeta()) == b"[]"
    assert frames.encode_reply_meta(ReplyMeta(json_header_bytes=0)) == b"[null,null,0]"
    assert frames.decode_reply_meta(b"[null,null,0]") == ReplyMeta(json_header_bytes=0)
    assert frames.decode_request_meta(b'["a"]') == RequestMeta("a")
    assert frames.decode_request_meta(b"") == RequestMeta()
    assert frames.decode_reply_meta(b"") == ReplyMeta()


def test_a_meta_of_the_largest_size_passes_and_no_larger_one() -> None:
    largest = "x" * (65_535 - len('[""]'))
    assert len(frames.encode_reply_meta(ReplyMeta(largest))) == 65_535
    with pytest.raises(FrameError) as caught:
        frames.encode_reply_meta(ReplyMeta(largest + "x"))
    assert caught.value.message == "the head of a request takes 65536 bytes, 65535 at most"


@pytest.mark.parametrize(
    "data",
    [
        b"[",
        b"7",
        b"null",
        b'{"content_type":1}',
        b'"ab"',  # a text of characters is no array of fields
        b"[1]",
        b"[null,1]",
        b'[null,null,"1"]',
        b"[null,null,null,1]",
        b"[null,null,null,null,1]",
        b"[null,null,null,null,null,null]",
    ],
)
def test_an_answer_whose_meta_is_of_another_form_is_torn(data: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        frames.decode_reply_meta(data)
    assert repr(data) in caught.value.message
    with pytest.raises(FrameError):  # and it is not remembered as a good one
        frames.decode_reply_meta(data)


@pytest.mark.parametrize(
    ("decode", "kept"),
    [
        (frames.decode_request_meta, frames._request_meta_by_bytes),
        (frames.decode_reply_meta, frames._reply_meta_by_bytes),
    ],
)
def test_metas_are_parsed_once_but_not_kept_without_end(
    decode: Callable[[bytes], object], kept: dict[bytes, object]
) -> None:
    kept.clear()
    first = decode(b'["0"]')
    for number in range(1024):
        decode(b'["%d"]' % number)
    assert (decode(b'["0"]') is first, len(kept)) == (True, 1024)
    decode(b'["1024"]')
    assert list(kept) == [b'["1024"]']
    assert decode(b'["0"]') == first


def test_what_an_engine_says_of_one_answer_is_not_kept() -> None:
    data = b'["a",null,null,"{}"]'
    assert frames.decode_reply_meta(data) is not frames.decode_reply_meta(data)


def test_reasons_of_batches_have_these_numbers() -> None:
    """Instance and gateway may be of two versions during an update: numbers keep their meaning."""
    assert frames.BATCH_REASON_CODES == {
        "none": 0,
        "batch-full": 1,
        "waited-enough": 2,
        "preferred-size": 3,
        "lane-free": 4,
        "deadline-near": 5,
        "single": 6,
        "draining": 7,
        "service-level": 8,
        "cache-hit": 9,
        "half-of-callers": 10,
    }


def test_metas_of_traced_requests_are_the_last_fields_and_are_not_kept() -> None:
    """Each is its own: kept, they would drive out those that come again."""
    asked = RequestMeta("a", traceparent="00-1-2-01", tracestate="b=1")
    data = b'["a",null,null,null,null,null,null,"runtime",null,"00-1-2-01","b=1"]'
    assert frames.encode_request_meta(asked) == data
    assert frames.decode_request_meta(data) == asked
    assert frames.decode_request_meta(data) is not frames.decode_request_meta(data)
    told = ReplyMeta("a", spans="[]")
    data = b'["a",null,null,null,"[]"]'
    assert frames.encode_reply_meta(told) == data
    assert frames.decode_reply_meta(data) == told
    assert frames.decode_reply_meta(data) is not frames.decode_reply_meta(data)
