"""Answers of one connection: their order, what waits, who is cut off, and when time is up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.gateway.http_by_hand import ByHand
from tests.kit.http_clients import post
from tests.kit.virtual_network import run_virtual

from penstock.gateway.http import answer_pipeline as pipeline
from penstock.gateway.http.answer_pipeline import (
    PENDING_PIECES_MAX,
    PIPELINE_MAX,
    TURN_BYTES_MAX,
    UNREAD_BYTES_PACED,
    UNREAD_BYTES_STALLED,
)
from penstock.gateway.http.call import status_line

pytestmark = pytest.mark.loop(by=run_virtual)

OK = status_line(200)
LATER = post("/hot/later")
TOO_LARGE = b"POST /hot/x HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n"


def test_an_idle_connection_is_kept_from_its_last_answer_on() -> None:
    by_hand = ByHand(keep_alive_s=10.0)
    call = by_hand.ask(LATER)
    by_hand.later(30.0)
    call.answer(OK, b"late")
    by_hand.later(9.9)
    assert by_hand.wire.told == []
    by_hand.later(0.2)
    assert by_hand.wire.told == ["close"]


async def test_so_it_is_after_an_answer_in_pieces() -> None:
    by_hand = ByHand(keep_alive_s=10.0)
    call = by_hand.ask(LATER)
    by_hand.later(30.0)
    call.start(OK)
    call.finish()
    by_hand.later(9.9)
    assert by_hand.wire.told == []
    by_hand.later(0.2)
    assert by_hand.wire.told == ["close"]


def test_an_answer_gives_the_next_head_no_more_time() -> None:
    by_hand = ByHand(head_timeout_s=10.0)
    call = by_hand.ask(LATER)
    by_hand.read(b"POST /hot")
    by_hand.later(6.0)
    call.answer(OK, b"first")
    by_hand.later(3.9)
    assert by_hand.statuses == [200]
    by_hand.later(0.2)
    assert by_hand.statuses == [200, 408]


async def test_pieces_that_together_are_large_leave_at_once_and_smaller_ones_with_the_turn() -> (
    None
):
    """The count begins anew behind each write."""
    by_hand = ByHand()
    call = by_hand.ask(LATER)
    call.start(OK, length=1_000_000)
    by_hand.connection.flush()
    for _ in range(2):
        by_hand.wire.writes.clear()
        call.send(b"a" * (TURN_BYTES_MAX - 1))
        assert by_hand.wire.writes == []
        call.send(b"b")
        assert by_hand.wire.writes == [b"a" * (TURN_BYTES_MAX - 1) + b"b"]
    by_hand.wire.writes.clear()
    call.send(b"c")
    assert by_hand.wire.writes == []
    await asyncio.sleep(0)
    assert by_hand.wire.writes == [b"c"]


async def test_a_large_piece_is_not_copied_to_be_joined() -> None:
    by_hand = ByHand()
    call = by_hand.ask(LATER)
    call.start(OK, length=1_000_000)
    by_hand.connection.flush()
    by_hand.wire.writes.clear()
    call.send(b"small")
    call.send(b"L" * TURN_BYTES_MAX)
    assert by_hand.wire.writes == [b"small", b"L" * TURN_BYTES_MAX]


async def test_the_end_of_an_answer_whose_length_was_told_writes_nothing() -> None:
    by_hand = ByHand()
    call = by_hand.ask(LATER)
    call.start(OK, length=3)
    call.send(b"abc")
    await asyncio.sleep(0)
    assert [write[-7:] for write in by_hand.wire.writes] == [b"\r\n\r\nabc"]
    call.finish()
    assert len(by_hand.wire.writes) == 1
    assert by_hand.door.written_urls == [b"/hot/later"]


# Answers that wait for their turn


def test_an_answer_that_waits_is_kept_in_few_pieces() -> None:
    by_hand = ByHand()
    by_hand.ask(LATER)
    second = by_hand.ask(LATER)
    second.start(OK, length=1000)
    for _ in range(PENDING_PIECES_MAX - 2):
        second.send(b"x")
    assert second.pending is not None
    assert len(second.pending) == PENDING_PIECES_MAX - 1
    second.send(b"x")
    assert len(second.pending) == 1
    assert second.pending[0].endswith(b"\r\n\r\n" + b"x" * (PENDING_PIECES_MAX - 1))


@pytest.mark.parametrize(("more", "told"), [(0, []), (1, ["abort"])])
def test_an_answer_that_waits_may_not_outgrow_the_bound(
    monkeypatch: pytest.MonkeyPatch, more: int, told: list[str]
) -> None:
    by_hand = ByHand()
    by_hand.ask(LATER)
    second = by_hand.ask(LATER)
    second.start(OK, length=10_000)
    head = len(second.pending[0]) if second.pending else 0
    assert head
    monkeypatch.setattr(pipeline, "UNREAD_BYTES_MAX", head + 10 * (PENDING_PIECES_MAX - 1))
    second.send(b"x" * (10 + more))
    for _ in range(PENDING_PIECES_MAX - 2):
        second.send(b"x" * 10)
    assert by_hand.wire.told == told


@pytest.mark.parametrize(("more", "told"), [(0, []), (1, ["abort"])])
async def test_what_a_client_leaves_unread_may_not_outgrow_the_bound(
    monkeypatch: pytest.MonkeyPatch, more: int, told: list[str]
) -> None:
    by_hand = ByHand()
    call = by_hand.ask(LATER)
    call.start(OK, length=10_000)
    by_hand.connection.flush()
    monkeypatch.setattr(pipeline, "UNREAD_BYTES_MAX", 1000)
    by_hand.wire.taking = False
    for size in (400, 600 + more):
        call.send(b"x" * size)
        by_hand.connection.flush()
    assert by_hand.wire.told == told


async def test_what_is_taken_at_once_has_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the transport still holds below its mark is on its way: with TLS that can be much."""
    monkeypatch.setattr(pipeline, "UNREAD_BYTES_MAX", 1000)
    by_hand = ByHand(tls=True)
    call = by_hand.ask(LATER)
    call.start(OK, length=10_000)
    by_hand.wire.unread_bytes = 5000
    call.send(b"x" * 5000)
    by_hand.connection.flush()
    assert by_hand.wire.told == []
    assert by_hand.connection.unread_bytes == 0


def test_answers_given_before_their_turn_leave_with_it_and_then_they_are_written() -> None:
    by_hand = ByHand()
    first, second = by_hand.ask(LATER), by_hand.ask(post("/hot/later?2"))
    second.answer(OK, b"second")
    assert (by_hand.wire.writes, by_hand.door.written_urls) == ([], [])
    first.answer(OK, b"first")
    assert [write[-6:] for write in by_hand.wire.writes] == [b"\nfirst", b"second"]
    assert by_hand.door.written_urls == [b"/hot/later", b"/hot/later?2"]


# The last answer of a connection


def test_a_connection_that_is_to_end_closes_behind_its_answer() -> None:
    by_hand = ByHand()
    call = by_hand.ask(post("/hot/later", b"", "Connection: close"))
    assert by_hand.wire.told == []
    call.answer(OK, b"")
    assert by_hand.wire.told == ["close"]


async def test_requests_behind_an_answer_that_ends_with_its_connection_are_abandoned() -> None:
    """HTTP/1.0 knows no chunks: the end of the connection is the end of the answer."""
    by_hand = ByHand()
    request = b"GET %s HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
    first = by_hand.ask(request % b"/hot/later?1")
    second = by_hand.ask(request % b"/hot/later?2")
    first.start(OK)
    first.send(b"all")
    assert by_hand.door.abandoned_urls == []
    first.finish()
    assert by_hand.door.abandoned_urls == [b"/hot/later?2"]
    assert by_hand.wire.told == ["close"]
    assert second.connection is None
    by_hand.lose()
    assert by_hand.door.abandoned_urls == [b"/hot/later?2"]
    assert by_hand.door.written_urls == [b"/hot/later?1"]


def test_a_client_that_still_sends_is_heard_out_so_that_it_reads_why_it_is_refused() -> None:
    by_hand = ByHand(body_bytes_max=1000)
    by_hand.read(TOO_LARGE)
    assert by_hand.statuses == [413]
    assert by_hand.wire.told == ["eof"]
    by_hand.read(b"x" * 5000)
    by_hand.later(4.875)
    assert by_hand.wire.told == ["eof"]
    by_hand.later(0.125)
    assert by_hand.wire.told == ["eof", "abort"]


def test_it_is_heard_out_from_the_answer_on_however_late_that_is() -> None:
    by_hand = ByHand(body_bytes_max=1000)
    first = by_hand.ask(LATER)
    by_hand.read(TOO_LARGE)
    by_hand.later(30.0)
    first.answer(OK, b"")
    assert (by_hand.statuses, by_hand.wire.told) == ([200, 413], ["eof"])
    by_hand.later(4.9)
    assert by_hand.wire.told == ["eof"]


def test_it_is_heard_out_even_while_it_does_not_read() -> None:
    by_hand = ByHand(body_bytes_max=1000)
    first = by_hand.ask(LATER)
    by_hand.read(TOO_LARGE)
    by_hand.wire.taking = False
    first.answer(OK, b"first")
    assert by_hand.wire.told == ["eof"]
    assert by_hand.wire.reading


def test_a_connection_that_can_not_be_half_closed_closes() -> None:
    by_hand = ByHand(tls=True, body_bytes_max=1000)
    by_hand.read(TOO_LARGE)
    assert (by_hand.statuses, by_hand.wire.told) == ([413], ["close"])


# Clients that do not read


def test_an_answer_that_is_not_taken_is_not_written_and_nothing_more_is_read() -> None:
    by_hand = ByHand()
    by_hand.wire.taking = False
    by_hand.ask(LATER).answer(OK, b"slow")
    assert (by_hand.door.written_urls, by_hand.wire.reading) == ([], False)
    by_hand.wire.take_all()
    assert (by_hand.door.written_urls, by_hand.wire.reading) == ([b"/hot/later"], True)
    by_hand.lose()
    assert by_hand.door.written_urls == [b"/hot/later"]
    assert by_hand.door.abandoned_urls == []


def test_the_end_of_the_connection_ends_what_was_not_taken_and_what_was_not_answered() -> None:
    by_hand = ByHand()
    first, second = by_hand.ask(post("/hot/later?1")), by_hand.ask(post("/hot/later?2"))
    by_hand.ask(post("/hot/later?3"))
    by_hand.wire.taking = False
    first.answer(OK, b"")
    by_hand.lose()
    assert by_hand.door.written_urls == [b"/hot/later?1"]
    assert by_hand.door.abandoned_urls == [b"/hot/later?2", b"/hot/later?3"]
    writes = len(by_hand.wire.writes)
    second.answer(OK, b"nobody")
    by_hand.connection.flush()
    assert len(by_hand.wire.writes) == writes


async def test_pieces_of_this_turn_are_not_written_to_a_client_that_is_gone() -> None:
    by_hand = ByHand()
    call = by_hand.ask(LATER)
    call.start(OK)
    by_hand.lose()
    await asyncio.sleep(0)
    assert by_hand.wire.writes == []


async def test_what_was_made_leaves_before_a_connection_is_cut() -> None:
    by_hand = ByHand()
    call = by_hand.ask(LATER)
    call.start(OK)
    call.send(b"half")
    call.abort()
    assert by_hand.wire.sent.endswith(b"4\r\nhalf\r\n")
    assert by_hand.wire.told == ["abort"]


def stalled(by_hand: ByHand, unread_bytes: int, *, taken_bytes: int = 0) -> Any:
    """A stream of which the client has taken `taken_bytes` and leaves `unread_bytes`."""
    call = by_hand.ask(LATER)
    call.start(OK, length=100_000_000)
    call.send(b"t" * taken_bytes)
    by_hand.connection.flush()
    by_hand.wire.taking = False
    call.send(b"x" * unread_bytes)
    by_hand.connection.flush()
    assert by_hand.connection.unread_bytes == unread_bytes
    return call


@pytest.mark.parametrize(
    ("unread_bytes", "body_timeout_s", "limit_s"),
    [
        (UNREAD_BYTES_PACED, 60.0, 60.0),
        (UNREAD_BYTES_PACED + 1, 60.0, 30.0),
        (UNREAD_BYTES_STALLED, 60.0, 30.0),
        (UNREAD_BYTES_STALLED + 1, 60.0, 10.0),
        (UNREAD_BYTES_STALLED + 1, 5.0, 5.0),
        (1, 5.0, 5.0),
    ],
)
async def test_who_takes_nothing_is_cut_off_and_sooner_if_it_leaves_much(
    unread_bytes: int, body_timeout_s: float, limit_s: float
) -> None:
    """What was taken before it stopped counts for nothing."""
    by_hand = ByHand(body_timeout_s=body_timeout_s)
    stalled(by_hand, unread_bytes, taken_bytes=2_000_000)
    by_hand.later(limit_s / 2)
    assert by_hand.wire.told == []
    by_hand.later(limit_s / 2 - 0.125)
    assert by_hand.wire.told == []
    by_hand.later(0.125)
    assert by_hand.wire.told == ["abort"]


async def test_who_takes_a_little_has_the_whole_time_again_from_then_on() -> None:
    by_hand = ByHand()
    stalled(by_hand, UNREAD_BYTES_STALLED + 1000, taken_bytes=50_000)
    for _ in range(3):
        by_hand.later(9.0)
        by_hand.wire.take(1)
        by_hand.later(0.5)
    assert by_hand.wire.told == []
    by_hand.later(9.0)
    assert by_hand.wire.told == []
    by_hand.later(1.0)
    assert by_hand.wire.told == ["abort"]


async def test_who_takes_as_much_as_comes_is_not_cut_off() -> None:
    by_hand = ByHand()
    call = stalled(by_hand, UNREAD_BYTES_STALLED + 1000)
    for _ in range(3):
        by_hand.later(9.0)
        call.send(b"y" * 1000)
        by_hand.connection.flush()
        by_hand.wire.take(1000)
        by_hand.later(0.5)
    assert by_hand.wire.told == []


async def test_a_pause_begins_when_the_client_falls_behind() -> None:
    by_hand = ByHand()
    call = stalled(by_hand, UNREAD_BYTES_STALLED + 1)
    by_hand.wire.take_all()
    by_hand.later(100.0)
    by_hand.wire.taking = False
    call.send(b"x" * (UNREAD_BYTES_STALLED + 1))
    by_hand.connection.flush()
    by_hand.later(9.0)
    assert by_hand.wire.told == []


def test_time_in_which_the_client_was_not_read_from_does_not_make_it_late() -> None:
    by_hand = ByHand(head_timeout_s=10.0)
    first = by_hand.ask(LATER)
    by_hand.read(b"POST /hot")
    by_hand.wire.taking = False
    first.answer(OK, b"slow")
    by_hand.later(9.0)
    by_hand.wire.take_all()
    by_hand.later(9.0)
    assert by_hand.statuses == [200]
    by_hand.later(1.0)
    assert by_hand.statuses == [200, 408]


# Pipelines that are full


def test_a_pipeline_is_read_until_it_is_full_and_again_when_it_is_not() -> None:
    by_hand = ByHand()
    calls = [by_hand.ask(LATER) for _ in range(PIPELINE_MAX)]  # one of them is the current one
    assert by_hand.wire.reading
    calls.append(by_hand.ask(LATER))
    assert not by_hand.wire.reading
    calls[0].answer(OK, b"")
    assert by_hand.wire.reading


def test_bodies_that_wait_fill_a_pipeline_once_they_are_larger_than_one_may_be() -> None:
    by_hand = ByHand(body_bytes_max=1000)
    first = by_hand.ask(post("/hot/later", b"a" * 600))
    second = by_hand.ask(post("/hot/later", b"b" * 400))
    assert by_hand.wire.reading
    third = by_hand.ask(post("/hot/later", b"c"))
    assert not by_hand.wire.reading
    third.drop_body()
    assert by_hand.wire.reading
    assert by_hand.listener.bodies.bytes_taken == by_hand.connection.held_bytes == 1000
    assert (third.body, second.body) == (b"", b"b" * 400)
    third.drop_body()
    assert by_hand.listener.bodies.bytes_taken == 1000
    first.answer(OK, b"")
    second.answer(OK, b"")
    assert by_hand.listener.bodies.bytes_taken == by_hand.connection.held_bytes == 0


def test_one_body_alone_fills_no_pipeline() -> None:
    """Behind it a small request is read: only with the next one are there too many bytes."""
    by_hand = ByHand(body_bytes_max=1000)
    by_hand.ask(post("/hot/later", b"a" * 1000))
    assert by_hand.wire.reading
    by_hand.ask(post("/hot/later", b"b"))
    assert not by_hand.wire.reading


def test_a_body_that_an_application_holds_is_held_until_it_gives_it_back() -> None:
    by_hand = ByHand(body_bytes_max=1000)
    first = by_hand.ask(post("/hot/later", b"a" * 1000))
    body, give_back = first.take_body()
    assert (body, first.body, first.body_held) == (b"a" * 1000, b"", 0)
    by_hand.ask(post("/hot/later", b"b"))
    assert not by_hand.wire.reading
    first.drop_body()
    assert by_hand.listener.bodies.bytes_taken == by_hand.connection.held_bytes == 1001
    give_back()
    assert by_hand.wire.reading
    assert by_hand.listener.bodies.bytes_taken == by_hand.connection.held_bytes == 1


def test_a_connection_that_is_closing_is_not_told_to_read() -> None:
    """asyncio's transports raise when one that closes is to pause."""
    by_hand = ByHand()
    calls = [by_hand.ask(LATER) for _ in range(PIPELINE_MAX + 1)]
    by_hand.connection.abort()
    calls[0].answer(OK, b"")
    assert not by_hand.wire.reading


# Waiting to write


async def test_a_producer_waits_for_its_turn_and_until_all_is_taken() -> None:
    by_hand = ByHand()
    first, second = by_hand.ask(LATER), by_hand.ask(LATER)
    connection = by_hand.connection
    await asyncio.wait_for(connection.wait_writable(first), 60)
    waiting = asyncio.ensure_future(connection.wait_writable(second))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    first.answer(OK, b"")
    await asyncio.wait_for(waiting, 60)
    by_hand.wire.taking = False
    second.start(OK)
    waiting = asyncio.ensure_future(connection.wait_writable(second))
    await asyncio.sleep(0)
    assert by_hand.wire.sent.endswith(b"transfer-encoding: chunked\r\n\r\n"), "it is flushed"
    await asyncio.sleep(0.1)
    assert not waiting.done()
    by_hand.wire.take(1)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    by_hand.wire.take_all()
    await asyncio.wait_for(waiting, 60)


async def test_a_producer_whose_client_is_gone_waits_no_longer() -> None:
    by_hand = ByHand()
    by_hand.ask(LATER)
    second, third = by_hand.ask(LATER), by_hand.ask(LATER)
    waiting = [
        asyncio.ensure_future(by_hand.connection.wait_writable(call)) for call in (second, third)
    ]
    await asyncio.sleep(0.1)
    waiting[0].cancel()
    await asyncio.sleep(0)
    by_hand.lose()
    await asyncio.wait_for(waiting[1], 60)
    assert waiting[0].cancelled()
    await asyncio.wait_for(by_hand.connection.wait_writable(third), 60)


# Requests that ask whether they may go on


def test_go_on_is_said_when_the_answers_before_are_out_and_once() -> None:
    by_hand = ByHand()
    first, second = by_hand.ask(LATER), by_hand.ask(LATER)
    expecting = b"POST /hot/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
    by_hand.read(expecting + b"\r\n")
    first.answer(OK, b"")
    assert by_hand.statuses == [200]
    second.answer(OK, b"")
    assert by_hand.statuses == [200, 200, 100]
    by_hand.read(b"ok")
    assert by_hand.statuses == [200, 200, 100, 200]
    by_hand.ask(LATER).answer(OK, b"")
    assert by_hand.statuses == [200, 200, 100, 200, 200]
