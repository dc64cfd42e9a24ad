"""Whole answers in one step, and large bodies: what they are is the same as of many steps."""

from __future__ import annotations

from http2_bytes import data, get, post, received, started

from penstock.wire.http2 import frames
from penstock.wire.http2.connection import Http2Connection
from penstock.wire.http2.events import DataReceived
from penstock.wire.http2.frames import NO_ERROR, frame
from penstock.wire.http2.hpack import Field

TYPED: tuple[Field, ...] = ((b":status", b"200"), (b"content-type", b"application/grpc"))
LAST: tuple[Field, ...] = ((b"grpc-status", b"0"),)


def answered_by_steps(connection: Http2Connection, stream: int, body: bytes) -> bytes:
    connection.send_headers(stream, TYPED)
    assert connection.send_data(stream, body) == len(body)
    connection.send_trailers(stream, LAST)
    return connection.take_output()


def test_a_whole_answer_has_the_bytes_of_its_steps() -> None:
    """Once its head and trailers were sent by steps, which says how they are encoded."""
    connection = started()
    received(connection, get(1), get(3), get(5), post(7))
    assert not connection.send_answer(1, TYPED, b"body", LAST)
    assert connection.take_output() == b""
    answered_by_steps(connection, 1, b"body")
    by_steps = answered_by_steps(connection, 3, b"body")
    assert connection.send_answer(5, TYPED, b"body", LAST)
    assert connection.take_output() == by_steps.replace(b"\0\0\0\x03", b"\0\0\0\x05")
    assert connection.send_answer(7, TYPED, b"body", LAST)  # before the request is complete
    assert connection.take_output().endswith(frames.rst_stream(7, NO_ERROR))
    assert connection.streams == 0
    assert not connection.send_answer(7, TYPED, b"body", LAST)
    received(connection, post(9))
    connection.linger(9, until=5.0)
    assert connection.send_answer(9, TYPED, b"body", LAST)
    connection.take_output()
    assert not connection.send_answer(9, TYPED, b"again", LAST)
    assert connection.take_output() == b""


def test_a_whole_answer_takes_from_the_windows_and_keeps_to_them() -> None:
    connection = started()
    received(connection, get(1), get(3), get(5), get(7), get(9), get(11))
    answered_by_steps(connection, 1, b"")
    assert not connection.send_answer(3, TYPED, bytes(16_385), LAST)  # more than one frame
    for stream in (3, 5, 7):
        assert connection.send_answer(stream, TYPED, bytes(16_384), LAST)
    assert not connection.send_answer(9, TYPED, bytes(16_384), LAST)  # 65,535 less these
    assert connection.send_answer(9, TYPED, bytes(16_383), LAST)
    assert not connection.send_answer(11, TYPED, b"1", LAST)
    assert connection.send_data(11, b"1") == 0


def test_large_frames_of_one_body_that_come_together_are_one_piece() -> None:
    """Each frame keeps its own rules: a run ends before what isn't whole, is too large, has padding
    or is of another stream, and with the end of the body."""
    large, small = bytes(range(256)) * 16, b"small"
    connection = started()
    received(connection, post(1), post(3))
    padded = frame(frames.DATA, frames.PADDED, 1, bytes((1,)) + small + b"\0")
    cut = data(1, large)
    assert received(
        connection,
        data(1, large), data(1, small), data(1, large), data(3, large), data(3, large),
        data(1, large), padded, data(1, large), cut[:500],
    ) == [
        DataReceived(1, large + small + large, 2 * 4_096 + 5, False),
        DataReceived(3, 2 * large, 2 * 4_096, False),
        DataReceived(1, large, 4_096, False),
        DataReceived(1, small, 7, False),
        DataReceived(1, large, 4_096, False),
    ]  # fmt: skip
    assert received(
        connection, cut[500:], data(1, large), data(1, large, end=True), data(3, large)
    ) == [
        DataReceived(1, large, 4_096, False),
        DataReceived(1, 2 * large, 2 * 4_096, True),
        DataReceived(3, large, 4_096, False),
    ]
