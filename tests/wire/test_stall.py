"""How long a frame that has begun may take to come, counted in looks."""

from __future__ import annotations

import pytest

from penstock.wire import frames
from penstock.wire.frames import BYTES_PER_LOOK, LOOKS_MAX, FrameDecoder, StallWatch

WHOLE = frames.encode(frames.RETURNED, 1, b"draining")


def begun(size: int = 1) -> tuple[FrameDecoder, StallWatch]:
    """A decoder with the head of a frame that lacks `size` bytes, and its watch."""
    decoder = FrameDecoder()
    feed(decoder, frames.HEAD.pack(size, frames.REPLY, 0, 0, 1))
    return decoder, StallWatch(decoder)


def feed(decoder: FrameDecoder, data: bytes) -> int:
    """The number of frames that are whole now."""
    return len(list(decoder.feed(data)))


def looks(watch: StallWatch) -> int:
    """How often it may be looked until the connection is to be dropped."""
    for count in range(1, 100):
        if watch.look():
            return count
    raise AssertionError("it never ends")


def test_the_figures_of_the_rule() -> None:
    assert (LOOKS_MAX, BYTES_PER_LOOK) == (10, 16_777_216)


@pytest.mark.parametrize(
    ("size", "count"),
    [(1, 11), ((16 << 20) - 1, 11), (16 << 20, 12), ((32 << 20) - 1, 12), (1 << 30, 75)],
)
def test_a_frame_has_ten_looks_and_one_for_each_sixteen_mebibytes(size: int, count: int) -> None:
    _, watch = begun(size)
    assert looks(watch) == count


def test_bytes_that_still_come_prove_nothing() -> None:
    decoder, watch = begun(100)
    for _ in range(10):
        assert feed(decoder, b"x") == 0
        assert not watch.look()
    assert watch.look()


def test_each_frame_has_its_own_time() -> None:
    decoder, watch = begun(8)
    for _ in range(10):
        assert not watch.look()
    assert feed(decoder, b"draining" + WHOLE[:20]) == 1
    assert looks(watch) == 11


def test_a_head_that_is_not_whole_is_waited_for_as_well() -> None:
    decoder = FrameDecoder()
    watch = StallWatch(decoder)
    feed(decoder, WHOLE[:3])
    assert looks(watch) == 11


def test_between_frames_nobody_is_waited_for() -> None:
    decoder = FrameDecoder()
    watch = StallWatch(decoder)
    assert [watch.look() for _ in range(50)] == [False] * 50
    feed(decoder, WHOLE[:20])
    for _ in range(10):
        assert not watch.look()
    assert feed(decoder, WHOLE[20:]) == 1
    assert [watch.look() for _ in range(50)] == [False] * 50
    feed(decoder, WHOLE[:20])
    assert looks(watch) == 11
