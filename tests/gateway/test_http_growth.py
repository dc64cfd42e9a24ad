"""The work for hostile input grows with its size and not faster: counted, never timed.

What is counted is every call that Python makes while a connection reads: of its own functions and
of those written in C. Sizes double; so may the work.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from tests.gateway.http_site import ScriptedDoor

from penstock.clock import ManualClock
from penstock.config import LimitConfig
from penstock.core.request.body_budget import UnfinishedBodies
from penstock.core.request.head_check import FIELDS_MAX
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.listener import HttpListener
from penstock.gateway.request_id import RequestIds

READ_BYTES = 65_536
START = b"POST /hot/x HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n\r\n"
WAITING = b"POST /hot/later HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"


class MemoryGrowth:
    """A transport that leads nowhere. It has no limits: what is written is gone."""

    def __init__(self) -> None:
        self.written_bytes = 0
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 1) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.written_bytes += len(data)

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def nothing(self, *_: object, **__: object) -> None:
        return

    set_write_buffer_limits = pause_reading = resume_reading = write_eof = nothing

    def can_write_eof(self) -> bool:
        return True


def connection() -> tuple[HttpConnection, ScriptedDoor, HttpListener]:
    door = ScriptedDoor()
    listener = HttpListener(
        limits=LimitConfig(),
        clock=ManualClock(),
        ids=RequestIds(),
        doors=[(b"/hot/", door)],
        fallback=door,
    )
    made = HttpConnection(listener)
    made.connection_made(MemoryGrowth())  # type: ignore[arg-type]
    return made, door, listener


def reads(data: bytes, size: int = READ_BYTES) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def calls_in(work: Callable[[], None]) -> int:
    """How many functions are called while `work` is done, without the garbage collector's own.

    It may begin at any moment, and Hypothesis has it call back.
    """
    count = 0

    def note(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


def fed(data: bytes, size: int = READ_BYTES) -> Callable[[], None]:
    made, _, _ = connection()
    pieces = list(reads(data, size))

    def feed() -> None:
        for piece in pieces:
            made.data_received(piece)

    return feed


HOSTILE: dict[str, Callable[[int], Callable[[], None]]] = {
    "headers": lambda n: fed(START + b"a: b\r\n" * n + b"\r\n"),
    "headers of new names": lambda n: fed(
        START + b"".join(b"x%d: b\r\n" % i for i in range(n)) + b"\r\n"
    ),
    "a header in small reads": lambda n: fed(START + b"a: " + b"b" * 64 * n, 64),
    "a target in small reads": lambda n: fed(b"GET /" + b"b" * 64 * n, 64),
    "repeated rare headers": lambda n: fed(START + b"Expect: b\r\n" * n + b"\r\n"),
    "chunks of one byte": lambda n: fed(CHUNKED + b"1\r\na\r\n" * n + b"0\r\n\r\n"),
    "chunks of one byte in small reads": lambda n: fed(CHUNKED + b"1\r\na\r\n" * n, 6),
    "a chunk extension": lambda n: fed(CHUNKED + b"1;" + b"a" * 64 * n, 64),
    "trailers": lambda n: fed(CHUNKED + b"0\r\n" + b"a: b\r\n" * n + b"\r\n"),
    "tiny requests": lambda n: fed((START + b"Content-Length: 0\r\n\r\n") * n),
    "tiny requests behind one that waits": lambda n: fed(
        WAITING + (START + b"Content-Length: 0\r\n\r\n") * n
    ),
    "requests that wait": lambda n: fed(WAITING * n),
    "bytes after the end": lambda n: fed(b"nonsense\r\n\r\n" * n, 16),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_twice_the_input_is_at_most_twice_the_work(kind: str) -> None:
    make = HOSTILE[kind]
    sizes = [256 * 2**step for step in range(5)]
    work = [calls_in(make(size)) for size in sizes]
    print(kind, dict(zip(sizes, work, strict=True)))
    for smaller, larger in pairwise(work):
        assert larger <= 2.05 * smaller + 128, (kind, work)


def test_the_answers_that_a_pipeline_owes_are_given_in_linear_work() -> None:
    def waiting(n: int) -> Callable[[], None]:
        made, door, _ = connection()
        for piece in reads(WAITING + (START + b"Content-Length: 1\r\n\r\na") * n):
            made.data_received(piece)
        return lambda: door.waiting[0].answer(b"HTTP/1.1 200 OK\r\n", b"")

    work = [calls_in(waiting(256 * 2**step)) for step in range(5)]
    for smaller, larger in pairwise(work):
        assert larger <= 2.05 * smaller + 128, work


@pytest.mark.parametrize(
    ("kind", "data", "times"),
    [
        ("many headers", START + b"a:b\r\n" * 13_000, 16),
        ("chunks of one byte", CHUNKED + b"1\r\na\r\n" * 50_000, 4),
        ("one body", START + b"Content-Length: 6000000\r\n\r\n" + b"x" * 5_000_000, 4),
        ("refused requests that wait", WAITING + (START + b"Content-Length: 5\r\n"
         b"\r\nabcde") * 20_000, 20),
    ],
)  # fmt: skip
def test_a_connection_holds_a_small_multiple_of_what_it_read(
    kind: str, data: bytes, times: int
) -> None:
    """Objects are larger than what makes them: a field of 5 bytes takes 60, a request 1,400.

    So there are few of them: no more fields than one read brings, and 64 requests, or one read.
    """
    made, _, _ = connection()
    pieces = list(reads(data))
    tracemalloc.start()
    try:
        for piece in pieces:
            if made._reading:
                made.data_received(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    print(kind, f"{peak / len(data):.1f} bytes per byte")
    assert peak <= times * len(data) + 100_000


def test_a_head_of_many_fields_is_refused_as_soon_as_they_are_too_many() -> None:
    made, door, _ = connection()
    made.data_received(START + b"a: b\r\n" * (FIELDS_MAX - 1))
    assert door.refused == []
    made.data_received(b"a: b\r\na: b\r\n")  # a field is known when the next one begins
    assert door.refused == ["head-too-large"]
    made, door, _ = connection()
    made.data_received(START + b"a: b\r\n" * (FIELDS_MAX - 1) + b"\r\n")
    assert (door.refused, len(door.handled)) == ([], 1)


def test_values_of_a_repeated_header_are_not_joined_for_ever() -> None:
    """Each joining copies all before it; the head is refused when the read ends, not earlier."""
    made, _, _ = connection()
    made.on_url(b"/")
    for _ in range(100 * FIELDS_MAX):
        made.on_header(b"Expect", b"x" * 9)
    assert made._rare is not None
    assert len(made._rare[b"expect"]) <= 10 * (FIELDS_MAX + 1)


def test_finding_who_makes_room_costs_what_it_cuts_and_not_all_that_there_is() -> None:
    def search(bodies_count: int) -> int:
        bodies: UnfinishedBodies[int] = UnfinishedBodies()
        for number in range(bodies_count):
            bodies.grown(number, "many", 10, now=0.0)
        chosen: list[int] = []
        count = calls_in(lambda: chosen.extend(bodies.making_room(30, "one", now=0.0)))
        assert chosen == [0, 1, 2]
        return count

    assert search(16) == search(4096)
