"""What has come of messages that are not complete, as literal timelines of two counts."""

from __future__ import annotations

from penstock.core.request.arriving import (
    MESSAGE_OVERHEAD_BYTES,
    OVERHEAD_PART,
    ArrivingMessages,
)


def test_what_came_since_the_last_message_is_unfinished() -> None:
    arriving = ArrivingMessages[str]()
    assert arriving.unfinished(received=10_000) == 0  # nothing is awaited
    arriving.awaits("a", received=10_000)
    assert arriving.unfinished(received=10_000) == 0
    assert arriving.unfinished(received=70_000) == 60_000
    arriving.delivered(64_000)
    arriving.awaits("a", received=75_000)
    assert arriving.unfinished(received=75_000) == 0
    assert arriving.unfinished(received=75_001) == 1


def test_messages_of_other_streams_are_taken_off_and_rather_too_much_of_them() -> None:
    arriving = ArrivingMessages[str]()
    arriving.awaits("idle", received=0)
    arriving.awaits("busy", received=100)
    received = 100
    for _ in range(1000):
        received += 6_400 + 300  # with what surrounds it
        arriving.delivered(6_400)
        arriving.awaits("busy", received=received)
    assert arriving.unfinished(received=received) == 0
    taken_off = 1000 * (6_400 + 6_400 // OVERHEAD_PART + MESSAGE_OVERHEAD_BYTES)
    assert arriving.unfinished(received=taken_off + 5) == 5


def test_the_stream_that_is_clean_for_longest_says_from_when_on() -> None:
    arriving = ArrivingMessages[str]()
    arriving.awaits("a", received=0)
    arriving.awaits("b", received=1_000)
    assert arriving.unfinished(received=9_000) == 9_000
    arriving.ended("a")
    assert arriving.unfinished(received=9_000) == 8_000
    arriving.awaits("a", received=9_000)
    arriving.awaits("b", received=9_500)
    assert arriving.streams == ["a", "b"]
    assert arriving.unfinished(received=10_000) == 1_000
    for stream in ("a", "b", "b"):
        arriving.ended(stream)
    assert len(arriving) == arriving.unfinished(received=99_000) == 0
