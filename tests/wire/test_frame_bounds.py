"""A head that can't be true is refused when it comes, and not when what it claims has come."""

from __future__ import annotations

import pytest

from penstock.wire import frames
from penstock.wire.frames import (
    BYTES_PER_LOOK,
    EITHER_WAY,
    FROM_INSTANCE,
    LOOKS_MAX,
    TO_INSTANCE,
    FrameDecoder,
    FrameError,
    StallWatch,
)


def head(size: int, kind: int, *, flags: int = 0, meta_bytes: int = 0, ident: int = 1) -> bytes:
    return frames.HEAD.pack(size, kind, flags, meta_bytes, ident)


def test_whole_frames_pass_in_any_pieces() -> None:
    sent = [frames.encode(frames.CHUNK, number, bytes(number * 7)) for number in range(1, 40)]
    stream = b"".join(sent)
    for step in (1, 5, 16, 17, 1000):
        decoder = FrameDecoder(FROM_INSTANCE)
        got = [
            frame
            for at in range(0, len(stream), step)
            for frame in decoder.feed(stream[at : at + step])
        ]
        assert [len(frame.payload) for frame in got] == [number * 7 for number in range(1, 40)]
        assert decoder.between_frames


@pytest.mark.parametrize(
    ("bounds", "torn"),
    [
        pytest.param(EITHER_WAY, head(1, 0), id="no-such-kind"),
        pytest.param(EITHER_WAY, head(1, 255), id="no-such-kind-either"),
        pytest.param(TO_INSTANCE, head(14, frames.REPLY), id="not-in-this-direction"),
        pytest.param(FROM_INSTANCE, head(9, frames.INVOKE), id="nor-in-this"),
        pytest.param(TO_INSTANCE, head(1, frames.CANCEL), id="a-cancel-carries-nothing"),
        pytest.param(FROM_INSTANCE, head(2 << 20, frames.RETURNED), id="a-reason-is-short"),
        pytest.param(FROM_INSTANCE, head((1 << 30) + 1, frames.REPLY), id="above-any-body"),
        pytest.param(FROM_INSTANCE, head(100 << 20, frames.EVENT), id="above-any-news"),
        pytest.param(FROM_INSTANCE, head(20, frames.REPLY, meta_bytes=21), id="meta-above-payload"),
        pytest.param(FROM_INSTANCE, head(20, frames.CHUNK, flags=2), id="no-such-flag"),
    ],
)
def test_an_impossible_head_is_refused_at_once(bounds: tuple[int, ...], torn: bytes) -> None:
    with pytest.raises(FrameError) as caught:
        list(FrameDecoder(bounds).feed(torn))
    assert caught.value.code == "frame-torn"


def test_an_answer_to_what_was_never_asked_is_refused_before_its_body_comes() -> None:
    decoder = FrameDecoder(FROM_INSTANCE)
    decoder.ident_max = 7
    assert list(decoder.feed(head(1000, frames.REPLY, ident=7))) == []
    decoder = FrameDecoder(FROM_INSTANCE)
    decoder.ident_max = 7
    with pytest.raises(FrameError):
        list(decoder.feed(head(1000, frames.REPLY, ident=8)))


# Frames that do not come to their end


def looks_until_stalled(watch: StallWatch) -> int:
    for count in range(1, 1000):
        if watch.look():
            return count
    raise AssertionError("it waits for ever")


def test_a_frame_that_does_not_go_on_is_given_up() -> None:
    decoder = FrameDecoder()
    watch = StallWatch(decoder)
    list(decoder.feed(head(100, frames.REPLY)))
    assert looks_until_stalled(watch) == LOOKS_MAX + 1


def test_so_is_half_a_head() -> None:
    decoder = FrameDecoder()
    watch = StallWatch(decoder)
    list(decoder.feed(head(100, frames.REPLY)[:5]))
    assert looks_until_stalled(watch) == LOOKS_MAX + 1


def test_a_large_frame_has_more_time_but_bytes_that_trickle_in_give_it_none() -> None:
    decoder = FrameDecoder()
    watch = StallWatch(decoder)
    list(decoder.feed(head(4 * BYTES_PER_LOOK, frames.REPLY)))
    count = 1
    while not watch.look():
        list(decoder.feed(b"x" * 100))
        count += 1
    assert count == LOOKS_MAX + 4 + 1


def test_frames_that_come_to_their_end_have_their_time_anew() -> None:
    decoder = FrameDecoder()
    watch = StallWatch(decoder)
    frame = head(10, frames.REPLY) + bytes(10)
    list(decoder.feed(frame[:20]))
    for _ in range(5 * LOOKS_MAX):
        assert not watch.look()
        list(decoder.feed(frame[20:] + frame[:20]))


def test_between_frames_there_is_nothing_to_wait_for() -> None:
    watch = StallWatch(FrameDecoder())
    assert not any(watch.look() for _ in range(100))


@pytest.mark.parametrize(
    ("payload_bytes", "meta_bytes", "fits"),
    [(18, 0, True), (17, 0, False), (21, 3, True), (21, 4, False), (0, 0, False)],
)
def test_a_reply_has_room_for_its_head_and_its_meta(
    payload_bytes: int, meta_bytes: int, fits: bool
) -> None:
    if fits:
        reply = frames.decode_reply(bytes(payload_bytes), meta_bytes)
        assert (len(reply.meta), len(reply.body)) == (meta_bytes, 0)
    else:
        with pytest.raises(FrameError):
            frames.decode_reply(bytes(payload_bytes), meta_bytes)
