"""What bodies hold of the memory that is set aside for them, and when it is given back."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.http_site import POST, Gatekeeper, HttpSite, site
from tests.kit.gateway import run
from tests.kit.http_clients import RawClient, post
from tests.kit.polling import until

from penstock.core.request import body_budget
from penstock.gateway.http.call import status_line

pytestmark = pytest.mark.loop(by=run)

MANY = 1_000_000


def taken(served: HttpSite) -> int:
    return served.listener.bodies.bytes_taken


async def half_a_body(served: HttpSite, size: int = MANY, rest: int = MANY) -> RawClient:
    """A client that has sent `size` bytes and holds back `rest`."""
    before = taken(served)
    client = await served.client()
    client.write(POST + f"Content-Length: {size + rest}\r\n\r\n".encode() + b"x" * size)
    await until(lambda: taken(served) >= before + size)
    return client


async def test_a_body_counts_as_it_comes_and_until_it_is_answered() -> None:
    async with site() as served:
        client = await half_a_body(served)
        assert (await client.ask(b"x" * MANY))[0] == 200
        assert taken(served) == 0
        client.write(post("/hot/later", b"z" * MANY))
        await until(lambda: served.door.waiting)
        assert taken(served) == MANY
        served.door.waiting[0].answer(status_line(200), b"")
        assert taken(served) == 0
        assert len(served.listener.unfinished) == 0


async def test_an_announced_body_holds_nothing() -> None:
    async with site() as served:
        for _ in range(20):
            client = await served.client()
            client.write(POST + b"Content-Length: 6000000\r\n\r\n")
        await until(lambda: len(served.listener.connections) == 20)
        assert taken(served) == 0


@pytest.mark.parametrize("end", ["gone", "late", "malformed", "too-large", "unfinished-chunk"])
async def test_a_body_that_comes_to_nothing_is_given_back(end: str) -> None:
    limits = {"body_timeout_s": 0.2} if end == "late" else {}
    async with site(body_bytes_max=2 * MANY, **limits) as served:
        if end == "unfinished-chunk":
            client = await served.client()
            client.write(POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc")
            await until(lambda: taken(served) == 3)
            client.write(b"de\r\nzz\r\n")
        elif end == "malformed":
            client = await served.client()
            client.write(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
            await until(lambda: taken(served) == 1)
            client.write(b"zz\r\n")
        elif end == "too-large":
            client = await served.client()
            client.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
            client.write(b"%x\r\n" % (2 * MANY + 1) + b"x" * (2 * MANY + 1))
        else:
            client = await half_a_body(served)
        if end == "gone":
            client.close()
        else:
            assert (await client.answer())[0] in (400, 408, 413)
        await until(lambda: taken(served) == 0)
        assert len(served.listener.unfinished) == 0


async def test_one_chunk_then_the_end_in_another_read_leaves_no_trace() -> None:
    async with site() as served:
        client = await served.client()
        client.write(POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await until(lambda: len(served.listener.unfinished) == 1)
        assert (await client.ask(b"0\r\n\r\n"))[2] == b"abc"
        assert len(served.listener.unfinished) == 0
        assert taken(served) == 0


async def test_an_unfinished_head_counts_too() -> None:
    async with site() as served:
        client = await served.client()
        start = b"POST /hot/x HTTP/1.1\r\nHost: x\r\nA: "
        client.write(start + b"a" * 1000)
        await until(lambda: taken(served) == len(start) + 1000)
        client.write(b"a" * 1000)
        await until(lambda: taken(served) == len(start) + 2000)
        assert (await client.ask(b"\r\n\r\n"))[0] == 200
        assert taken(served) == 0
        assert len(served.listener.unfinished) == 0


async def test_a_refused_request_keeps_no_body_while_its_answer_waits_for_its_turn() -> None:
    """Each was refused at once and kept 6 MiB until the first one of its connection was done."""
    async with site(authenticator=Gatekeeper()) as served:
        client = await served.client()
        client.write(post("/hot/later", b"a", "Authorization: a"))
        await until(lambda: served.door.waiting)
        for _ in range(20):
            client.write(post("/hot/x", b"forged" * 100_000, "Authorization: signed"))
        await until(lambda: len(served.door.refused) == 20)
        assert taken(served) == 1
        [connection] = served.listener.connections
        assert [(call.body, call.headers) for call in connection._queue] == [(b"", ())] * 20
        served.door.waiting[0].answer(status_line(200), b"first")
        assert [(await client.answer())[0] for _ in range(21)] == [200] + [403] * 20


async def test_a_pipeline_whose_bodies_wait_for_answers_is_not_read_on() -> None:
    """One connection holds little more than one of the largest bodies, and is not late for it."""
    async with site(body_bytes_max=MANY, body_timeout_s=0.2, head_timeout_s=0.2) as served:
        client = await served.client()
        for number in range(8):
            client.write(post(f"/hot/later?{number}", b"z" * MANY))
        await until(lambda: any(not c._reading for c in served.listener.connections))
        await asyncio.sleep(0.5)  # twice the timeouts
        assert taken(served) <= 4 * MANY
        for number in range(8):
            await until(lambda: len(served.door.waiting) > number)  # noqa: B023
            served.door.waiting[number].answer(status_line(200), b"%d" % number)
        assert [(await client.answer())[2] for _ in range(8)] == [b"%d" % n for n in range(8)]
        assert taken(served) == 0


async def test_what_does_not_fit_is_refused_at_its_head_and_told_to_come_again() -> None:
    async with site(bodies_bytes_max=3 * MANY) as served:
        first = await half_a_body(served, 2 * MANY, 1)
        second = await served.client()
        assert (await second.ask(POST + f"Content-Length: {2 * MANY}\r\n\r\n".encode()))[::2] == (
            503,
            b"bodies-too-many",
        )
        small = await served.client()
        assert (await small.ask(post("/hot/x", b"fits")))[2] == b"fits"
        chunked = await served.client()
        chunked.write(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        assert (await chunked.ask(b"%x\r\n" % (2 * MANY) + b"x" * 2 * MANY))[::2] == (
            503,
            b"bodies-too-many",
        )
        await until(lambda: taken(served) == 2 * MANY)
        first.close()
        await until(lambda: taken(served) == 0)


async def test_slow_bodies_make_room_for_one_that_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_budget, "SLOW_S", 0.0)
    async with site(bodies_bytes_max=3 * MANY) as served:
        oldest = await half_a_body(served)
        younger = await half_a_body(served)
        client = await served.client()
        assert (await client.ask(post("/hot/x", b"n" * 2 * MANY)))[0] == 200
        assert (await oldest.answer())[::2] == (503, b"bodies-too-many")
        assert (await younger.ask(b"x" * MANY))[0] == 200


async def test_a_slow_body_that_itself_finds_no_room_is_the_one_that_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_budget, "SLOW_S", 0.0)
    async with site(bodies_bytes_max=3 * MANY // 2) as served:
        client = await half_a_body(served, rest=MANY // 2)
        chunked = await served.client()
        chunked.write(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await until(lambda: taken(served) == MANY + 1)
        assert (await client.ask(b"x" * MANY))[::2] == (503, b"bodies-too-many")
        await until(lambda: taken(served) == 1)


async def test_an_applications_body_counts_until_the_application_ends() -> None:
    """It may read it, or work on it, when its client has long gone."""
    async with site() as served:
        client = await served.client()
        client.write(post("/wait", b"w" * MANY))
        await until(lambda: served.application.waiting == 1)
        assert taken(served) == MANY
        client.close()
        await until(lambda: taken(served) == 0)
        assert not served.listener.connections
