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
        ([b": alive\n\n", b"data: a\n\n: alive\n\n", b": al"], [b"data: a\n\n"], b""),
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
