"""Applications behind the door: what they are told, and what they may say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.gateway.http_by_hand import ByHand
from tests.kit.gateway import PREFIX
from tests.kit.http_clients import post
from tests.kit.virtual_network import run_virtual

from penstock.errors import CallerError, InternalError, PenstockError
from penstock.gateway.http.asgi import AsgiApp, AsgiDoor
from penstock.gateway.http.call import Call, status_line

pytestmark = pytest.mark.loop(by=run_virtual)

START = {"type": "http.response.start", "status": 200, "headers": [(b"A", b"b")]}
Send = Callable[[Any], Awaitable[None]]


def body(data: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": more}


def saying(*messages: dict[str, Any]) -> AsgiApp:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    return app


async def served(app: AsgiApp, request: bytes = b"", **options: Any) -> ByHand:
    by_hand = ByHand(fallback=AsgiDoor(app), **options)
    by_hand.read(request or post("/app", b"asked"))
    for _ in range(5):
        await asyncio.sleep(0)
    return by_hand


def answer(by_hand: ByHand) -> tuple[bytes, bytes]:
    """Status and own headers of the one answer, and what follows its common ones."""
    head, _, rest = by_hand.wire.sent.partition(b"date: ")
    return head, rest.partition(b"000000000001\r\n")[2]


async def test_an_application_hears_the_whole_request() -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.extend((scope, await receive()))
        await send(START)
        await send({"type": "http.response.body"})
        heard.append(await receive())
        heard.append(await receive())

    request = (
        b"PUT /a%20p/%C3%A9?q=%20&r HTTP/1.1\r\nHost: x\r\nX-A: B\r\nContent-Length: 2\r\n\r\nok"
    )
    by_hand = await served(app, request)
    assert heard == [
        {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "PUT",
            "scheme": "http",
            "path": "/a p/é",
            "raw_path": b"/a%20p/%C3%A9",
            "query_string": b"q=%20&r",
            "root_path": "",
            "headers": [(b"host", b"x"), (b"x-a", b"B"), (b"content-length", b"2")],
            "client": ("192.0.2.1", 1),
            "server": ("192.0.2.2", 80),
            "state": {},
            "extensions": {},
            "penstock.request_id": PREFIX + "000000000001",
        },
        {"type": "http.request", "body": b"ok", "more_body": False},
        {"type": "http.disconnect"},
        {"type": "http.disconnect"},
    ]
    assert answer(by_hand) == (status_line(200) + b"a: b\r\n", b"content-length: 0\r\n\r\n")


async def test_an_application_hears_of_tls_and_of_an_old_client() -> None:
    heard: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        heard.append(scope)

    by_hand = ByHand(fallback=AsgiDoor(app), tls=True)
    by_hand.wire.peername = None
    by_hand.read(b"GET /app HTTP/1.0\r\n\r\n")
    await asyncio.sleep(0)
    [scope] = heard
    assert (scope["scheme"], scope["http_version"], scope["client"]) == ("https", "1.0", None)


@pytest.mark.parametrize(
    ("request_head", "messages", "head", "rest"),
    [
        pytest.param("POST", (START, body(b"all")), b"a: b\r\n",
                     b"content-length: 3\r\n\r\nall", id="whole"),
        pytest.param("POST", (START, body(b"one", more=True), body(b"two")), b"a: b\r\n",
                     b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n",
                     id="pieces"),
        pytest.param("POST", (START, body(b"one", more=True), body(b"", more=True),
                              body(b"")), b"a: b\r\n",
                     b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n",
                     id="empty pieces"),
        pytest.param("POST", (START | {"headers": [(b"Content-Length", b"6")]},
                              body(b"one", more=True), body(b"two")), b"",
                     b"content-length: 6\r\n\r\nonetwo", id="pieces of known length"),
        pytest.param("POST", (START | {"headers": [(b"Content-Length", b"9")]}, body(b"all")), b"",
                     b"content-length: 3\r\n\r\nall", id="whole, its length is ours to say"),
        pytest.param("HEAD", (START, body(b"all")), b"a: b\r\n",
                     b"content-length: 3\r\n\r\n", id="HEAD"),
        pytest.param("HEAD", (START | {"headers": [(b"content-length", b"7")]}, body(b"")), b"",
                     b"content-length: 7\r\n\r\n", id="HEAD of a known length"),
        pytest.param("POST", (START | {"status": 204}, body(b"lost")), b"a: b\r\n", b"\r\n",
                     id="no body"),
        pytest.param("POST", (START | {"status": 304}, body(b"", more=True), body(b"")),
                     b"a: b\r\n", b"\r\n", id="no body, at its end"),
        pytest.param("POST", ({"type": "http.response.start", "status": 200}, body(b"")), b"",
                     b"content-length: 0\r\n\r\n", id="no headers"),
        pytest.param("POST", (START | {"headers": [
            (b"Date", b"x"), (b"server", b"x"), (b"x-amzn-RequestId", b"x"), (b"connection", b"x"),
            (b"Transfer-Encoding", b"x"), (b"x-own", b"kept")]}, body(b"")), b"x-own: kept\r\n",
                     b"content-length: 0\r\n\r\n", id="what is ours to say"),
    ],
)  # fmt: skip
async def test_what_an_application_says_in_these_bytes(
    request_head: str, messages: tuple[dict[str, Any], ...], head: bytes, rest: bytes
) -> None:
    request = f"{request_head} /app HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    by_hand = await served(saying(*messages), request.encode())
    status = messages[0]["status"]
    assert answer(by_hand) == (status_line(status) + head, rest)
    by_hand.read(post("/app"))
    await asyncio.sleep(0)
    assert len(by_hand.statuses) == 2, "the connection goes on"


@pytest.mark.parametrize(
    ("messages", "statuses"),
    [
        pytest.param((START, START), [500], id="two starts"),
        pytest.param((body(b"x"),), [500], id="a body without a start"),
        pytest.param((START, body(b""), body(b"")), [200], id="a body behind the end"),
        pytest.param((START, {"type": "http.response.push"}), [500], id="an unknown message"),
        pytest.param((START | {"headers": [(b"a", b"b\rc")]}, body(b"")), [500], id="CR"),
        pytest.param((START | {"headers": [(b"a", b"b\nc")]}, body(b"")), [500], id="LF"),
        pytest.param((START | {"headers": [(b"a\0", b"b")]}, body(b"")), [500], id="NUL"),
        pytest.param((), [500], id="nothing"),
    ],
)
async def test_an_application_that_breaks_the_protocol_fails_and_says_nothing_that_spans_lines(
    messages: tuple[dict[str, Any], ...], statuses: list[int]
) -> None:
    raised: list[BaseException] = []
    inner = saying(*messages)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await inner(scope, receive, send)
        except InternalError as error:
            raised.append(error)
            raise

    by_hand = await served(app)
    assert (by_hand.statuses, by_hand.wire.told) == (statuses, [])
    assert bool(raised) == bool(messages)
    assert by_hand.listener.bodies.bytes_taken == 0


async def test_an_application_that_fails_in_the_middle_of_an_answer_cuts_the_connection() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(body(b"half", more=True))
        raise RuntimeError("a bug")

    by_hand = await served(app)
    assert by_hand.wire.sent.endswith(b"4\r\nhalf\r\n")
    assert by_hand.wire.told == ["abort"]


async def test_an_application_waits_while_its_client_does_not_read() -> None:
    steps: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        for number in range(3):
            await send(body(b"x", more=True))
            steps.append(number)
        await send(body(b""))

    by_hand = ByHand(fallback=AsgiDoor(app))
    by_hand.wire.taking = False
    by_hand.read(post("/app"))
    await asyncio.sleep(0.1)
    assert steps == []
    by_hand.wire.take_all()
    await asyncio.sleep(0.1)
    assert steps == [0, 1, 2]


async def test_an_application_hears_that_its_client_is_gone_and_holds_the_body_until_it_ends() -> (
    None
):
    heard: list[str] = []
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        heard.append((await receive())["type"])
        await send(START)
        await send(body(b"nobody", more=True))
        await go_on.wait()

    by_hand = await served(app)
    by_hand.lose()
    await asyncio.sleep(0.1)
    assert heard == ["http.disconnect"]
    assert by_hand.listener.bodies.bytes_taken == 5
    go_on.set()
    await asyncio.sleep(0.1)
    assert by_hand.listener.bodies.bytes_taken == 0
    assert (by_hand.wire.writes, by_hand.wire.told) == ([], [])


async def test_a_target_that_is_no_path_does_not_reach_an_application() -> None:
    by_hand = await served(saying(START, body(b"")), b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (by_hand.statuses, b"target-unknown" in by_hand.wire.sent) == ([400], True)


@pytest.mark.parametrize(("takes", "sent"), [(True, b"in its own form"), (False, b"host-missing")])
def test_a_refusal_is_told_in_the_form_of_its_protocol_or_in_the_plain_one(
    takes: bool, sent: bytes
) -> None:
    """The application never sees it."""

    def refusal(call: Call, error: PenstockError) -> bool:
        assert isinstance(error, CallerError)
        if takes:
            call.answer(status_line(400), b"in its own form")
        return takes

    by_hand = ByHand(fallback=AsgiDoor(saying(), refusal=refusal))
    by_hand.read(b"POST /app HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    assert by_hand.statuses == [400]
    assert sent in by_hand.wire.sent
    by_hand.lose()
