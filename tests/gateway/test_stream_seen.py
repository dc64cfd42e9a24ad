"""What is made of the words of an engine about one answer, and what is told of it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from tests.kit.gateway import reply

from penstock.gateway.dispatch.streaming import StreamObserved, generation_of
from penstock.wire import frames


class StreamResponder:
    """A recorder that writes down what streams tell it."""

    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.rows.append((name, *args))


def end(said: object, *, queue_us: int = 0, run_us: int = 0) -> frames.Reply:
    meta = frames.encode_reply_meta(frames.ReplyMeta(generation=orjson.dumps(said).decode()))
    return reply(b"", meta)._replace(queue_us=queue_us, run_us=run_us)


def ended(said: object, *, first_at: float = 0.0, **times: int) -> StreamObserved:
    """Received at 10 s, over at 20 s."""
    stream = StreamObserved()
    stream.first_at = first_at
    stream.ended(end(said, **times), 10.0, 20.0)
    return stream


def times(stream: StreamObserved) -> tuple[int, int, float, float]:
    return (stream.tokens_in, stream.tokens_out, stream.first_token_s, stream.per_token_s)


def test_a_stream_is_measured_here() -> None:
    said = {"tokens_in": 3, "tokens_out": 5, "first_token_s": 9.0}
    assert times(ended(said, first_at=12.0)) == (3, 5, 2.0, 2.0)


def test_a_whole_answer_is_measured_by_its_engine() -> None:
    said = {"tokens_in": 3, "tokens_out": 5, "first_token_s": 1.0}
    stream = ended(said, queue_us=500_000, run_us=2_500_000)
    assert times(stream) == (3, 5, 1.0, pytest.approx(0.5))


@pytest.mark.parametrize(("tokens", "per_token_s"), [(0, 0.0), (1, 0.0), (2, 8.0), (3, 4.0)])
def test_time_per_token_is_of_those_behind_the_first(tokens: int, per_token_s: float) -> None:
    assert ended({"tokens_out": tokens}, first_at=12.0).per_token_s == per_token_s


def test_no_token_takes_less_than_no_time() -> None:
    said = {"tokens_out": 5, "first_token_s": 3.0}
    assert ended(said, run_us=2_000_000).per_token_s == 0.0


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (1, 1),
        (1 << 40, 1 << 40),
        ((1 << 40) + 1, 0),
        (0, 0),
        (-1, 0),
        (2.0, 0),
        ("2", 0),
        (None, 0),
    ],
)
def test_absurd_counts_are_no_counts(value: object, count: int) -> None:
    stream = ended({"tokens_in": value, "tokens_out": value})
    assert (stream.tokens_in, stream.tokens_out) == (count, count)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0.25, 0.25), (2, 2.0), (86_400, 86_400.0), (86_401, 0.0), (0, 0.0), (-1.0, 0.0), ("1", 0.0)],
)
def test_absurd_times_are_no_times(value: object, seconds: float) -> None:
    assert ended({"first_token_s": value}).first_token_s == seconds


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        (b"", None),
        (b"[]", None),
        (b"[null,null,null]", None),
        (b"[null,null,null,null]", None),
        (b'[null,null,null,""]', None),
        (b'[null,null,null,"{}"]', {}),
        (b'[null,null,null,"{\\"tokens_in\\":1}"]', {"tokens_in": 1}),
        (b'[null,null,null,"[1]"]', None),
        (b'[null,null,null,"{"]', None),
        (b"[null,null,null,7]", None),
        (b"{torn", None),
        (b"7", None),
        (b'{"a":1,"b":2,"c":3,"d":4}', None),
    ],
)
def test_what_an_engine_says_is_found_or_left(meta: bytes, said: object) -> None:
    assert generation_of(meta) == said


@pytest.mark.parametrize("meta", [b"", b"[]", b"[null,null,null]", b"[null,null,null,null]"])
def test_an_engine_that_says_nothing_is_no_cause_for_complaint(
    meta: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    assert generation_of(meta) is None
    assert caplog.text == ""
    assert generation_of(b"[null,null,null,7]") is None
    assert "what can't be read" in caplog.text


def test_what_is_counted_of_a_stream() -> None:
    stream = ended({"tokens_in": 3, "tokens_out": 5}, first_at=12.0)
    told = StreamResponder()
    stream.record(told, 10.0, failed=False)
    assert told.rows == [("streamed", 2.0), ("generated", 3, 5, 2.0, 2.0)]
    told = StreamResponder()
    stream.record(told, 10.0, failed=True)
    assert told.rows[:2] == [("streamed", 2.0), ("broken",)]
    for said, rows in (({"tokens_in": 3}, 1), ({"tokens_out": 3}, 1), ({}, 0)):
        told = StreamResponder()
        ended(said).record(told, 10.0, failed=True)
        assert [row[0] for row in told.rows] == ["generated"] * rows


def test_what_is_told_of_a_stream() -> None:
    assert StreamObserved().story(10.0) is None
    assert ended({"tokens_in": 3}).story(10.0) is None
    stream = StreamObserved()
    stream.chunks, stream.first_at = 2, 10.0001234
    assert stream.story(10.0) == {"chunks": 2, "first_chunk_ms": 0.123}
    said = {"tokens_in": 3, "tokens_out": 2, "first_token_s": 0.0123456}
    assert ended(said, run_us=20_000).story(10.0) == {
        "chunks": 0,
        "tokens_in": 3,
        "tokens_out": 2,
        "time_to_first_token_ms": 12.346,
        "time_per_output_token_ms": 7.654,
    }
