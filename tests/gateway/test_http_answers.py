"""What a `Call` says: the bytes of each form of an answer, and what it refuses to say twice."""

from __future__ import annotations

import pytest
from tests.gateway.http_by_hand import ByHand
from tests.kit.gateway import PREFIX
from tests.kit.http_clients import post
from tests.kit.virtual_network import run_virtual

from penstock.errors import CallerError, NotNowError
from penstock.gateway.http.call import JOIN_BYTES_MAX, Call, status_line

pytestmark = pytest.mark.loop(by=run_virtual)

OK = status_line(200)
COMMON = (
    b"date: Tue, 14 Nov 2023 22:13:20 GMT\r\nserver: penstock\r\nx-amzn-requestid: "
    + PREFIX.encode()
    + b"000000000001\r\n"
)
CHUNKED = OK + COMMON + b"transfer-encoding: chunked\r\n\r\n"


def asked(by_hand: ByHand, method: str = "POST", *lines: str) -> Call:
    text = [f"{method} /hot/later?a=b?c HTTP/1.1", "Host: x", "Content-Length: 0", *lines]
    return by_hand.ask("\r\n".join(text).encode() + b"\r\n\r\n")


def test_a_status_is_told_with_its_phrase_and_an_unknown_one_with_a_word() -> None:
    assert status_line(404) == b"HTTP/1.1 404 Not Found\r\n"
    assert status_line(799) == b"HTTP/1.1 799 Status\r\n"


def test_a_target_is_a_path_and_all_behind_the_first_question_mark() -> None:
    call = asked(ByHand())
    assert (call.path, call.query) == (b"/hot/later", b"a=b?c")
    assert call.request_id == PREFIX + "000000000001"
    assert (call.priority, call.body_held, call.door) == (0, 0, "runtime")


def test_an_answer_is_given_once() -> None:
    by_hand = ByHand()
    call = asked(by_hand)
    call.answer(OK + b"a: b\r\n", b"body")
    expected = OK + b"a: b\r\n" + COMMON + b"content-length: 4\r\n\r\nbody"
    assert by_hand.wire.sent == expected
    call.answer(OK, b"again")
    call.start(OK)
    call.start_without_body(OK)
    call.send(b"again")
    call.finish()
    assert by_hand.wire.sent == expected
    assert by_hand.door.written_urls == [b"/hot/later?a=b?c"]
    assert (call.headers, call.finished) == ((), True)


@pytest.mark.parametrize(("size", "writes"), [(JOIN_BYTES_MAX, 1), (JOIN_BYTES_MAX + 1, 2)])
async def test_a_large_body_is_not_copied_behind_its_head(size: int, writes: int) -> None:
    by_hand = ByHand()
    asked(by_hand).answer(OK, b"x" * size)
    assert len(by_hand.wire.writes) == writes
    assert by_hand.wire.sent.endswith(b"content-length: %d\r\n\r\n" % size + b"x" * size)
    assert by_hand.door.written_urls == [b"/hot/later?a=b?c"]


def test_a_head_is_answered_with_the_length_and_without_the_body() -> None:
    by_hand = ByHand()
    asked(by_hand, "HEAD").answer(OK, b"x" * (JOIN_BYTES_MAX + 1))
    assert by_hand.wire.sent == OK + COMMON + b"content-length: 131073\r\n\r\n"


@pytest.mark.parametrize(
    ("retry_after_s", "line"),
    [
        (None, b""),
        (0.2, b"retry-after: 1\r\n"),
        (1.0, b"retry-after: 1\r\n"),
        (2.4, b"retry-after: 2\r\n"),
    ],
)
def test_an_error_tells_when_to_come_again_in_whole_seconds(
    retry_after_s: float | None, line: bytes
) -> None:
    by_hand = ByHand()
    error = NotNowError("busy", "Later.", hint="Wait.", retry_after_s=retry_after_s)
    asked(by_hand).answer_error(error)
    head = status_line(503) + b"content-type: application/json\r\n" + line + COMMON
    body = b'{"code":"busy","message":"Later.","hint":"Wait."}'
    assert by_hand.wire.sent == head + b"content-length: %d\r\n\r\n" % len(body) + body


def test_an_error_may_be_told_with_another_status() -> None:
    by_hand = ByHand()
    asked(by_hand).answer_error(CallerError("wrong", "No.", status=404), 410)
    assert by_hand.statuses == [410]
    asked(by_hand).answer_error(CallerError("wrong", "No.", status=404))
    assert by_hand.statuses == [410, 404]


async def test_pieces_of_unknown_number_are_chunks() -> None:
    by_hand = ByHand()
    call = asked(by_hand)
    call.start(OK)
    call.start(OK)
    call.answer(OK, b"no")
    call.start_without_body(OK)
    call.send(b"one")
    call.send(b"")
    call.send(b"x" * 16)
    assert by_hand.door.written_urls == []
    call.finish()
    call.finish()
    assert by_hand.wire.sent == (CHUNKED + b"3\r\none\r\n10\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n")
    assert by_hand.door.written_urls == [b"/hot/later?a=b?c"]


async def test_pieces_whose_sum_is_known_are_the_body_as_it_is() -> None:
    by_hand = ByHand()
    call = asked(by_hand)
    call.start(OK, length=6)
    call.send(b"one")
    call.send(b"two")
    call.finish()
    assert by_hand.wire.sent == OK + COMMON + b"content-length: 6\r\n\r\nonetwo"


async def test_a_head_that_is_answered_in_pieces_gets_none_of_them() -> None:
    by_hand = ByHand()
    call = asked(by_hand, "HEAD")
    call.start(OK)
    call.send(b"one")
    call.finish()
    assert by_hand.wire.sent == CHUNKED


async def test_http_1_1_gets_chunks_on_a_connection_that_ends_too() -> None:
    by_hand = ByHand()
    call = asked(by_hand, "POST", "Connection: close")
    call.start(OK)
    call.finish()
    assert by_hand.wire.sent == (
        OK + b"connection: close\r\n" + COMMON
        + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    )  # fmt: skip


async def test_pieces_for_http_1_0_have_no_framing_but_the_end() -> None:
    by_hand = ByHand()
    call = by_hand.ask(b"GET /hot/later HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    call.start(OK)
    call.send(b"one")
    call.finish()
    assert by_hand.wire.sent == OK + b"connection: close\r\n" + COMMON + b"\r\none"
    assert by_hand.wire.told == ["close"]


def test_a_status_without_a_body_has_no_length() -> None:
    by_hand = ByHand()
    call = asked(by_hand)
    call.start_without_body(status_line(204))
    call.start_without_body(status_line(204))
    call.finish()
    assert by_hand.wire.sent == status_line(204) + COMMON + b"\r\n"
    assert by_hand.door.written_urls == [b"/hot/later?a=b?c"]


@pytest.mark.parametrize("form", ["whole", "pieces", "no body"])
async def test_each_form_of_an_answer_gives_the_body_of_its_request_back(form: str) -> None:
    by_hand = ByHand()
    call = by_hand.ask(post("/hot/later", b"request"))
    assert by_hand.listener.bodies.bytes_taken == 7
    if form == "whole":
        call.answer(OK, b"")
    elif form == "pieces":
        call.start(OK)
        assert by_hand.listener.bodies.bytes_taken == 7
        call.finish()
    else:
        call.start_without_body(status_line(204))
    assert by_hand.listener.bodies.bytes_taken == by_hand.connection.held_bytes == 0
    assert (call.body, call.headers, call.body_held) == (b"", (), 0)


def test_nothing_is_said_to_a_client_that_is_gone() -> None:
    by_hand = ByHand()
    call = by_hand.ask(post("/hot/later", b"request"))
    by_hand.lose()
    assert (call.connection, by_hand.door.abandoned_urls) == (None, [b"/hot/later"])
    assert by_hand.listener.bodies.bytes_taken == 0
    call.answer(OK, b"")
    call.start(OK)
    call.start_without_body(OK)
    call.send(b"x")
    call.finish()
    call.drop_body()
    call.abort()
    assert (by_hand.wire.writes, by_hand.wire.told) == ([], [])
    assert (call.finished, call.started) == (False, 0)
