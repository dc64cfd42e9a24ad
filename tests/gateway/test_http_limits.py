"""What a connection takes in: each bound at its edge, each timeout at its moment."""

from __future__ import annotations

import pytest
from tests.gateway.http_by_hand import ByHand
from tests.gateway.http_site import Gatekeeper
from tests.kit.http_clients import post

from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.head_check import FIELDS_MAX
from penstock.gateway.http import connection as http
from penstock.gateway.http.call import status_line
from penstock.gateway.http.listener_state import TURNED_AWAY_MAX

OK = status_line(200)
LATER = post("/hot/later")
START = b"POST /hot/x HTTP/1.1\r\nHost: x\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"


def announcing(size: int) -> bytes:
    return START + b"Content-Length: %d\r\n\r\n" % size


# Time


def test_a_connection_on_which_nothing_comes_is_closed_without_a_word() -> None:
    by_hand = ByHand(head_timeout_s=10.0)
    by_hand.later(9.875)
    assert by_hand.wire.told == []
    by_hand.later(0.125)
    assert (by_hand.wire.told, by_hand.wire.writes) == (["close"], [])


def test_a_head_has_its_time_from_its_first_byte_however_many_follow() -> None:
    by_hand = ByHand(head_timeout_s=10.0)
    by_hand.ask(LATER).answer(OK, b"")
    by_hand.later(30.0)
    by_hand.read(b"PO")
    for _ in range(9):
        by_hand.later(1.0)
        by_hand.read(b"S" if by_hand.wire.sent.count(b"S") else b"")
    by_hand.later(0.875)
    assert by_hand.statuses == [200]
    by_hand.later(0.125)
    assert by_hand.statuses == [200, 408]
    assert by_hand.wire.sent.endswith(b"request-too-slow") or b"10 s" in by_hand.wire.sent


def test_a_body_has_its_time_from_its_head_on() -> None:
    by_hand = ByHand(head_timeout_s=10.0, body_timeout_s=20.0)
    by_hand.read(START)
    by_hand.later(9.0)
    by_hand.read(b"Content-Length: 2\r\n\r\na")
    by_hand.later(19.875)
    assert by_hand.statuses == []
    by_hand.later(0.125)
    assert (by_hand.statuses, by_hand.wire.told) == ([408], ["eof"])


def test_a_request_in_time_leaves_nothing_that_ends_the_next() -> None:
    by_hand = ByHand(head_timeout_s=10.0, body_timeout_s=10.0, keep_alive_s=100.0)
    for _ in range(3):
        by_hand.later(9.0)
        by_hand.read(announcing(2)[:20])
        by_hand.later(9.0)
        by_hand.read(announcing(2)[20:])
        by_hand.later(9.0)
        by_hand.read(b"ok")
    assert (by_hand.statuses, by_hand.wire.told) == ([200] * 3, [])


def test_an_idle_connection_is_closed_at_its_moment_and_a_busy_one_is_not() -> None:
    by_hand = ByHand(keep_alive_s=10.0)
    call = by_hand.ask(LATER)
    by_hand.later(100.0)
    assert by_hand.wire.told == []
    call.answer(OK, b"")
    by_hand.later(9.875)
    assert by_hand.wire.told == []
    by_hand.later(0.125)
    assert by_hand.wire.told == ["close"]


def test_a_last_request_may_wait_for_its_answer_and_its_close_may_not_wait_for_ever() -> None:
    """A client that never closes its side would keep the socket."""
    by_hand = ByHand(body_timeout_s=10.0)
    call = by_hand.ask(post("/hot/later", b"", "Connection: close"))
    by_hand.later(100.0)
    assert by_hand.wire.told == []
    call.answer(OK, b"")
    by_hand.later(9.875)
    assert by_hand.wire.told == ["close"]
    by_hand.later(0.125)
    assert by_hand.wire.told == ["close", "abort"]


def test_who_is_heard_out_is_not_heard_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LINGER_BYTES_MAX", 1000)
    by_hand = ByHand(body_bytes_max=1000)
    by_hand.read(announcing(10_000))
    by_hand.read(b"x" * 400, b"x" * 600)
    assert by_hand.wire.told == ["eof"]
    by_hand.read(b"x")
    assert by_hand.wire.told == ["eof", "abort"]


# Heads


def head_of_size(size: int) -> bytes:
    """Of `size` bytes as they are counted: the target and each field with four bytes around it."""
    counted = len("/hot/x") + len("Hostx") + 4 + len("A") + 4
    return START + b"A: " + b"a" * (size - counted) + b"\r\n\r\n"


@pytest.mark.parametrize("reads", [1, 2])
@pytest.mark.parametrize(("size", "statuses"), [(1000, [200]), (1001, [431])])
def test_a_head_may_be_as_large_as_the_limit(reads: int, size: int, statuses: list[int]) -> None:
    by_hand = ByHand(head_bytes_max=1000)
    by_hand.read(post("/hot/x"))  # its host is known from here on
    by_hand.wire.writes.clear()
    head = head_of_size(size)
    cut = len(head) if reads == 1 else 900
    by_hand.read(*filter(None, (head[:cut], head[cut:])))
    assert by_hand.statuses == statuses


def test_a_large_body_in_the_same_read_makes_no_head_too_large() -> None:
    by_hand = ByHand(head_bytes_max=1000)
    by_hand.read(post("/hot/x", b"b" * 5000), post("/hot/x", b"b" * 5000))
    assert by_hand.statuses == [200, 200]


@pytest.mark.parametrize(("size", "statuses"), [(1000, []), (1001, [431])])
def test_a_head_that_does_not_end_is_refused_at_the_limit(size: int, statuses: list[int]) -> None:
    by_hand = ByHand(head_bytes_max=1000)
    by_hand.read((START + b"A: ").ljust(size - 100, b"a"), b"a" * 100)
    assert by_hand.statuses == statuses


def test_what_came_before_a_head_in_the_same_read_is_not_counted_against_it() -> None:
    by_hand = ByHand(head_bytes_max=1000)
    by_hand.read(post("/hot/x", b"b" * 900) + START)
    by_hand.read(b"A: " + b"a" * 996)
    assert by_hand.statuses == [200]
    by_hand.read(b"a")
    assert by_hand.statuses == [200, 431]
    assert by_hand.listener.bodies.bytes_taken == 0


def test_an_unfinished_head_holds_no_less_than_all_that_was_read_of_it() -> None:
    """Whatever the connection carried before, and even if more came in the same read."""
    start = START + b"A: " + b"a" * 700
    by_hand = ByHand()
    for before in (b"", post("/hot/x"), post("/hot/x")):
        by_hand.read(*filter(None, (before, start)))
        assert by_hand.listener.bodies.bytes_taken == len(start)
        by_hand.read(b"\r\n\r\n")
    by_hand.read(post("/hot/x") + start)
    assert by_hand.listener.bodies.bytes_taken >= len(start)
    by_hand.read(b"a" * 100)
    assert by_hand.listener.bodies.bytes_taken >= len(start) + 100
    by_hand.read(b"\r\n\r\n")
    assert by_hand.statuses == [200] * 7
    assert by_hand.listener.bodies.bytes_taken == 0


def test_a_second_head_is_counted_from_its_own_beginning() -> None:
    by_hand = ByHand(head_bytes_max=1000)
    for _ in range(3):
        by_hand.read(START + b"A: " + b"a" * 700)
        by_hand.read(b"\r\n\r\n")
    assert by_hand.statuses == [200] * 3
    assert by_hand.listener.bodies.bytes_taken == 0
    assert len(by_hand.listener.unfinished) == 0


@pytest.mark.parametrize("host", [b"Host: x\r\n", b"Host: never-seen.localhost\r\n"])
@pytest.mark.parametrize(("fields", "statuses"), [(FIELDS_MAX, [200]), (FIELDS_MAX + 1, [431])])
def test_a_head_may_have_so_many_fields(host: bytes, fields: int, statuses: list[int]) -> None:
    """Whether it comes with all the rest or not, and whether its host is known or not."""
    by_hand = ByHand()
    by_hand.read(post("/hot/x"), START + b"\r\n")
    by_hand.wire.writes.clear()
    by_hand.read(b"POST /hot/x HTTP/1.1\r\n" + host + b"a: b\r\n" * (fields - 1) + b"\r\n")
    assert by_hand.statuses == statuses or host != b"Host: x\r\n"


def test_a_repeated_header_is_one_value() -> None:
    by_hand = ByHand(interest=(b"x-thing",))
    by_hand.ask(LATER)
    call = by_hand.ask(
        b"POST /hot/later HTTP/1.1\r\nHost: localhost\r\nX-Thing: a\r\nX-THING: b\r\n"
        b"Content-Length: 0\r\n\r\n"
    )
    assert call.rare == {b"x-thing": b"a,b"}
    assert by_hand.ask(LATER).rare is None, "nothing of it is the next one's"


def test_a_target_in_two_reads_is_one_target_and_trailers_are_no_headers() -> None:
    by_hand = ByHand()
    by_hand.read(
        b"POST /hot/la", b"ter?a=", b"b HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"1\r\na\r\n0\r\nContent-Type: evil/evil\r\nX: y\r\n\r\n",
    )  # fmt: skip
    [call] = by_hand.door.waiting
    assert (call.url, call.body, call.content_type) == (b"/hot/later?a=b", b"a", None)
    assert [name for name, _ in call.headers] == [b"Host", b"Transfer-Encoding"]


def test_what_one_request_said_is_not_the_next_ones() -> None:
    by_hand = ByHand()
    full = by_hand.ask(
        b"PUT /hot/later HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nAccept: c/d\r\n"
        b"Connection: keep-alive\r\nContent-Length: 2\r\n\r\nok"
    )
    assert (full.method, full.content_type, full.accept, full.body) == (
        b"PUT", b"a/b", b"c/d", b"ok",
    )  # fmt: skip
    plain = by_hand.ask(b"GET /hot/later HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (plain.method, plain.content_type, plain.accept, plain.body, plain.headers) == (
        b"GET", None, None, b"", [(b"Host", b"x")],
    )  # fmt: skip
    assert (full.number, plain.number, full.connection_line) == (1, 2, b"")


def test_requests_get_the_moment_of_the_read_that_ended_them() -> None:
    by_hand = ByHand()
    by_hand.read(post("/hot/later", b"ab")[:-1])
    by_hand.clock.advance(2.5)
    assert by_hand.ask(b"b").received == 1002.5


# Bodies


@pytest.mark.parametrize("how", ["announced", "with the head", "in chunks"])
@pytest.mark.parametrize(("size", "statuses"), [(12_000, [200]), (12_001, [413])])
def test_a_body_may_be_as_large_as_the_limit(how: str, size: int, statuses: list[int]) -> None:
    by_hand = ByHand(body_bytes_max=12_000)
    if how == "announced":
        by_hand.read(announcing(size))
        assert by_hand.statuses == statuses[: size - 12_000], "its head alone tells"
        by_hand.read(b"x" * size)
    elif how == "with the head":
        by_hand.read(announcing(size) + b"x" * size)
    else:
        by_hand.read(CHUNKED, b"%x\r\n" % size + b"x" * (size - 1), b"x\r\n0\r\n\r\n")
    assert by_hand.statuses == statuses


def test_a_small_limit_is_held_at_the_head_as_well() -> None:
    """`Content-Length` is looked at from as many digits on as the limit has."""
    by_hand = ByHand(body_bytes_max=100)
    by_hand.read(announcing(100))
    assert by_hand.statuses == []
    by_hand.read(b"x" * 100)
    assert by_hand.statuses == [200]
    by_hand.read(announcing(101))
    assert by_hand.statuses == [200, 413]


@pytest.mark.parametrize(("size", "statuses"), [(9_000, []), (9_001, [413])])
def test_framing_may_not_outgrow_a_body_by_more_than_eight(size: int, statuses: list[int]) -> None:
    """Eight times the largest body, and as much as a head has."""
    by_hand = ByHand(body_bytes_max=1000, head_bytes_max=1000)
    by_hand.read(CHUNKED)
    frame = b"1;" + b"a" * (size - 2 - 1)
    for at in range(0, len(frame), 500):
        by_hand.read(frame[at : at + 500])
    assert by_hand.statuses == statuses


def test_pieces_of_a_body_are_joined_in_their_order_and_the_next_has_none_of_them() -> None:
    by_hand = ByHand()
    by_hand.read(announcing(9).replace(b"/hot/x", b"/hot/later"), b"one", b"two", b"six")
    by_hand.read(announcing(3).replace(b"/hot/x", b"/hot/later"), b"new")
    assert [call.body for call in by_hand.door.waiting] == [b"onetwosix", b"new"]
    assert by_hand.listener.bodies.bytes_taken == 12


def test_the_budget_for_bodies_may_be_used_up_to_its_last_byte() -> None:
    bodies = BodyBudget(100)
    by_hand = ByHand(bodies=bodies)
    by_hand.ask(post("/hot/later", b"a" * 60))
    by_hand.ask(post("/hot/later", b"b" * 40))
    assert bodies.bytes_taken == 100
    by_hand.read(post("/hot/later", b"c"))
    assert by_hand.door.refused == ["bodies-too-many"]
    assert bodies.bytes_taken == 100
    by_hand.lose()
    assert bodies.bytes_taken == 0


def test_known_heads_may_use_it_up_too_and_no_more() -> None:
    bodies = BodyBudget(100)
    by_hand = ByHand(bodies=bodies)
    request = post("/hot/x", b"b" * 40)
    by_hand.read(*[request] * 4)
    by_hand.ask(post("/hot/later", b"a" * 60))
    by_hand.read(post("/hot/later", b"a" * 40))
    assert (by_hand.door.refused, bodies.bytes_taken) == ([], 100)


def test_a_body_that_can_have_no_room_is_refused_when_it_is_announced() -> None:
    bodies = BodyBudget(20_000)
    by_hand = ByHand(bodies=bodies)
    by_hand.ask(post("/hot/later", b"a" * 8_000))
    by_hand.read(announcing(12_000))
    assert by_hand.door.refused == []
    wire, connection = by_hand.another()
    connection.data_received(announcing(12_001))
    assert by_hand.door.refused == ["bodies-too-many"]
    assert wire.sent.startswith(b"HTTP/1.1 503 ")


def test_a_refused_request_gives_its_bytes_back_at_once_and_nothing_more_is_taken() -> None:
    by_hand = ByHand()
    by_hand.read(CHUNKED, b"5\r\nabcde\r\n")
    assert by_hand.listener.bodies.bytes_taken == 5
    assert len(by_hand.listener.unfinished) == 1
    by_hand.read(b"zz\r\n")
    assert by_hand.statuses == [400]
    by_hand.read(b"5\r\nabcde\r\n")
    assert by_hand.listener.bodies.bytes_taken == 0
    assert len(by_hand.listener.unfinished) == 0
    assert by_hand.statuses == [400]


def test_requests_behind_a_refused_one_in_the_same_read_are_not_handled() -> None:
    by_hand = ByHand()
    by_hand.read(START + b"Origin: null\r\nContent-Length: 2\r\n\r\nab" + post("/hot/x", b"no"))
    assert (by_hand.statuses, by_hand.door.handled) == ([403], [])
    assert by_hand.listener.bodies.bytes_taken == 0


def test_an_expectation_may_be_spelled_in_any_case_and_http_1_0_has_none() -> None:
    by_hand = ByHand()
    by_hand.read(START + b"Expect: 100-Continue\r\nContent-Length: 1\r\n\r\n")
    assert by_hand.wire.writes == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    by_hand = ByHand()
    by_hand.read(
        b"POST /hot/x HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
    )
    assert by_hand.wire.writes == []


def test_an_upgrade_keeps_all_else_that_its_head_says() -> None:
    by_hand = ByHand()
    by_hand.read(
        b"PUT /hot/later?q HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nupgrade: h2c\r\n"
        b"CONNECTION: Upgrade\r\nContent-Length: 4\r\n\r\nbo",
        b"dy",
    )
    [call] = by_hand.door.waiting
    assert (call.method, call.url, call.body) == (b"PUT", b"/hot/later?q", b"body")
    assert call.headers == [
        (b"Host", b"x"), (b"Content-Type", b"a/b"), (b"Content-Length", b"4"),
        (b"Connection", b"close"),
    ]  # fmt: skip
    assert (call.number, call.connection_line) == (1, b"connection: close\r\n")


# Who is let in


def test_credentials_are_asked_for_with_the_whole_target_and_each_request_anew() -> None:
    gate = Gatekeeper()
    by_hand = ByHand(authenticator=gate)
    for body in (b"one", b"two"):
        by_hand.read(post("/hot/x?a=b", body, f"Authorization: {body.decode()}"))
    assert by_hand.statuses == [200, 200]
    assert gate.heads == [("POST", b"/hot/x", b"a=b")] * 2
    assert gate.seen == [("POST", b"/hot/x", b"a=b", b"one"), ("POST", b"/hot/x", b"a=b", b"two")]
    by_hand.read(post("/hot/x", b"three", "Authorization: four"))
    assert (by_hand.statuses, by_hand.door.refused) == ([200, 200, 403], ["wrong"])
    assert by_hand.wire.told == [], "whoever signs wrongly may sign again"
    by_hand.read(post("/hot/x", b"five"))
    assert by_hand.door.refused == ["wrong", "MissingAuthenticationTokenException"]
    assert by_hand.wire.told == ["eof"]


def test_a_body_over_the_limit_is_refused_before_credentials_are_looked_at() -> None:
    gate = Gatekeeper()
    by_hand = ByHand(authenticator=gate, body_bytes_max=1000)
    by_hand.read(announcing(1001))
    assert (by_hand.door.refused, gate.heads) == (["body-too-large"], [])


def test_connections_over_the_limit_are_told_and_those_far_over_it_are_cut() -> None:
    by_hand = ByHand(connections_max=1)
    turned_away = [by_hand.another() for _ in range(TURNED_AWAY_MAX)]
    for wire, _ in turned_away:
        assert wire.sent.startswith(b"HTTP/1.1 503 ")
        assert wire.told == ["high=0", "eof"]
    wire, _ = by_hand.another()
    assert wire.told[:2] == ["high=0", "abort"]
    turned_away[0][1].connection_lost(None)
    assert len(by_hand.listener.connections) == 1 + TURNED_AWAY_MAX


# Stopping


def test_on_stopping_an_idle_connection_closes_and_a_busy_one_behind_its_last_answer() -> None:
    by_hand = ByHand()
    by_hand.connection.stop()
    assert by_hand.wire.told == ["close"]

    by_hand = ByHand()
    by_hand.read(announcing(2), b"o", b"k")
    by_hand.connection.stop()
    assert by_hand.wire.told == ["close"], "in how many reads its last request came is no matter"

    by_hand = ByHand()
    calls = [by_hand.ask(LATER) for _ in range(3)]
    by_hand.connection.stop()
    assert by_hand.wire.told == []
    by_hand.read(LATER)
    assert len(by_hand.door.waiting) == 3
    for call in calls:
        assert by_hand.wire.told == []
        call.answer(OK, b"")
    assert (by_hand.statuses, by_hand.wire.told) == ([200, 200, 200], ["close"])
    assert by_hand.wire.sent.count(b"connection: close\r\n") == 1


def test_on_stopping_a_request_that_is_half_there_is_still_answered() -> None:
    for half in (START[:30], announcing(2) + b"o"):
        by_hand = ByHand()
        by_hand.read(half)
        by_hand.listener.draining = True
        by_hand.connection.stop()
        assert by_hand.wire.told == []
        by_hand.read((announcing(2) + b"ok")[len(half) :])
        assert (by_hand.statuses, by_hand.wire.told) == ([200], ["close"])


def test_on_stopping_requests_with_known_heads_are_the_last_of_their_connection_too() -> None:
    by_hand = ByHand()
    by_hand.read(*[post("/hot/x", b"a")] * 4)
    by_hand.listener.draining = True
    by_hand.read(post("/hot/x", b"a"))
    assert by_hand.wire.told == ["close"]


def test_a_door_that_fails_on_a_request_with_a_known_head_fails_that_one_only() -> None:
    by_hand = ByHand()
    by_hand.read(*[post("/hot/broken", b"a")] * 5, *[post("/hot/declined", b"b")] * 5)
    assert by_hand.door.refused == ["internal"] * 5
    assert by_hand.statuses == [500] * 5 + [404] * 5
    assert by_hand.fallback.handled == [b"/hot/declined"] * 5
    assert by_hand.listener.bodies.bytes_taken == by_hand.connection.held_bytes == 0


def test_pipelined_requests_with_known_heads_keep_their_order() -> None:
    by_hand = ByHand()
    request = post("/hot/later", b"abc")
    for _ in range(6):
        by_hand.read(request)
    for number, call in reversed(list(enumerate(by_hand.door.waiting))):
        call.answer(OK, b"%d" % number)
    bodies = [part[-1:] for part in by_hand.wire.sent.split(b"content-length: 1\r\n\r\n")[1:]]
    assert [by_hand.wire.sent.index(b"\r\n\r\n%d" % n) for n in range(6)] == sorted(
        by_hand.wire.sent.index(b"\r\n\r\n%d" % n) for n in range(6)
    )
    assert len(bodies) == 6
    assert by_hand.listener.bodies.bytes_taken == by_hand.connection.held_bytes == 0
    assert [call.number for call in by_hand.door.waiting] == [1, 2, 3, 4, 5, 6]


def test_the_end_of_a_connection_gives_back_what_its_request_held() -> None:
    by_hand = ByHand()
    by_hand.read(announcing(10), b"half")
    assert by_hand.listener.bodies.bytes_taken == 4
    by_hand.lose()
    assert by_hand.listener.bodies.bytes_taken == 0
    assert len(by_hand.listener.unfinished) == 0
    assert by_hand.listener.connections == set()


def test_a_transport_of_tls_keeps_its_own_mark() -> None:
    plain, _ = ByHand().another()
    assert plain.told == ["high=0"]
    tls, _ = ByHand().another(tls=True)
    assert tls.told == []
