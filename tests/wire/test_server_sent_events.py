"""Server-sent events taken apart, wherever the bytes were cut."""

from __future__ import annotations

import random

import pytest

from penstock.wire.server_sent_events import EVENT_BYTES_MAX, EventSplitter

EVENTS = [
    b"data: one\n\n",
    b"event: product\ndata: {}\n\n",
    b": its reason\ndata: {}\n\n",
    b"data: crlf\r\ndata: more\r\n\r\n",
    b"data: cr\r\r",
    b"data: [DONE]\n\n",
]


def test_every_cut_gives_the_same_events() -> None:
    body = b"".join(EVENTS)
    for seed in range(300):
        chance = random.Random(seed)
        splitter, seen, at = EventSplitter(), [], 0
        while at < len(body):
            size = chance.randint(1, 40)
            seen += splitter.feed(body[at : at + size])
            at += size
        # A CR that may be half of a CRLF ends its event; the LF that follows begins the next one.
        assert [each.lstrip(b"\n") for each in seen] == _ended(EVENTS, seen), f"seed {seed}"
        assert splitter.rest() == b"", f"seed {seed}"


def _ended(events: list[bytes], seen: list[bytes]) -> list[bytes]:
    """The events, without the LF that a cut inside the last CRLF left to the one behind it."""
    return [
        event[:-1] if event.endswith(b"\r\n") and got.lstrip(b"\n") == event[:-1] else event
        for event, got in zip(events, seen, strict=True)
    ]


@pytest.mark.parametrize(
    ("fed", "events", "rest"),
    [
        ([b"data: a\n\ndata: b\n\n"], [b"data: a\n\n", b"data: b\n\n"], b""),
        ([b"data: a\n", b"\n"], [b"data: a\n\n"], b""),
        ([b"\n\n\ndata: a\n\n\n\n"], [b"\ndata: a\n\n"], b""),
        ([b"data: a\r\ndata: b"], [], b"data: a\r\ndata: b"),
        ([b"data: a\n\ndata: b\n"], [b"data: a\n\n"], b"data: b\n"),
        ([b"", b"\n"], [], b""),
        ([b"\n", b"\ndata: a\n\n"], [b"data: a\n\n"], b""),
        ([b": alive\n\n", b"data: a\n\n: alive\n\n", b": al"], [b"data: a\n\n"], b""),
        ([b"data: a\n", b"data: b\n\n"], [b"data: a\ndata: b\n\n"], b""),
        ([b"data: a\r\rdata: b\n\n"], [b"data: a\r\r", b"data: b\n\n"], b""),
        ([b"data: a\n\ndata: b"], [b"data: a\n\n"], b"data: b"),
        ([b"id: a\n\n"], [b"id: a\n\n"], b""),
        ([b"data: a\r\n", b"\r", b"\ndata: b\n\n"], [b"data: a\r\n\r", b"\ndata: b\n\n"], b""),
        ([b"data: a\r", b"\r", b"id: b\r\n", b"\n"], [b"data: a\r\r", b"id: b\r\n\n"], b""),
        ([b"x", b"\n", b"\n", b"y"], [b"x\n\n"], b"y"),
        ([b"\n", b"\n", b"\r\n\r\n"], [], b""),
        ([b":", b"\nx"], [], b":\nx"),
    ],
)
def test_an_event_ends_with_an_empty_line(
    fed: list[bytes], events: list[bytes], rest: bytes
) -> None:
    splitter = EventSplitter()
    assert [event for data in fed for event in splitter.feed(data)] == events
    assert splitter.rest() == rest


def test_an_event_without_end_passes_on_in_pieces() -> None:
    splitter, piece, passed = EventSplitter(), b"x" * 65_536, 0
    for _ in range(3 * EVENT_BYTES_MAX // len(piece)):
        passed += sum(len(event) for event in splitter.feed(piece))
    assert passed >= 2 * EVENT_BYTES_MAX
    assert passed + len(splitter.rest()) == 3 * EVENT_BYTES_MAX


def test_what_is_as_large_as_an_event_may_be_waits_for_its_end() -> None:
    splitter, largest = EventSplitter(), b"x" * (1 << 20)
    assert splitter.feed(largest) == []
    assert splitter.feed(b"y") == [largest + b"y"]
    assert splitter.feed(b"id: 1\n\n") == [b"id: 1\n\n"]
    assert splitter.feed(largest + b"\n\n") == [largest + b"\n\n"]
    assert splitter.rest() == b""


def test_whoever_needs_events_whole_says_how_large_they_may_be() -> None:
    splitter, large = EventSplitter(2 << 20), b"x" * (1 << 20)
    assert splitter.feed(large + b"y") == []
    assert splitter.feed(b"\n\n") == [large + b"y\n\n"]


def test_a_splitter_whose_rest_was_taken_begins_anew() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: long enough to be searched") == []
    assert splitter.rest() == b"data: long enough to be searched"
    assert splitter.feed(b"x\n\ny") == [b"x\n\n"]
    assert splitter.rest() == b"y"
