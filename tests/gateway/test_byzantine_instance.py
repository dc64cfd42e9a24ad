"""Whatever an instance sends, each accepted request ends exactly once by its deadline.

The whole gateway runs under virtual time, from the bytes of a client's HTTP request (or a message
of a gRPC stream) to the frames of a link; instances are `Byzantine`. A failure prints its seed, and
one seed always gives the same run.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httptools
import pytest
from tests.gateway.byzantine import MISDEEDS, TEARS, Byzantine
from tests.kit.doors import MODEL, no_app
from tests.kit.gateway import routes
from tests.kit.virtual_network import Network, VirtualInstance, answer, run_virtual

from penstock.api.oip.grpc_stream import InferNames, InferStream
from penstock.api.oip.http import INTEREST as OIP_INTEREST
from penstock.api.oip.http import OipDoor
from penstock.api.oip.models import OipModels
from penstock.api.openai.door import INTEREST as OPENAI_INTEREST
from penstock.api.openai.door import OpenAiDoor
from penstock.api.runtime.door import INTEREST as RUNTIME_INTEREST
from penstock.api.runtime.door import RuntimeDoor
from penstock.errors import PenstockError
from penstock.gateway.dispatch.awaited import AwaitedReply
from penstock.gateway.dispatch.invocation import Invocation, Responder
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.http.asgi import AsgiDoor
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.listener import HttpListener
from penstock.metrics.counts.registry import MetricRegistry

REQUEST_TIMEOUT_S: Final = 8.0
STREAM_TIMEOUT_S: Final = 14.0
#: Between a deadline and the last byte of what says so: turns of the loop, no waiting.
SLACK_S: Final = 0.05
REQUESTS: Final = 24
SEEDS: Final = int(os.environ.get("BYZANTINE_SEEDS", "240"))

#: Path, body, and whether the time of a stream holds.
DOORS: Final = (
    (b"/endpoints/echo/invocations", b'{"mark": "%b"}', False),
    (b"/endpoints/echo/invocations-response-stream", b'{"mark": "%b"}', True),
    (b"/v2/models/echo/infer", b'{"id": "%b"}', False),
    (b"/v2/models/echo/generate_stream", b'{"id": "%b"}', True),
    (b"/v1/chat/completions", b'{"model": "echo", "stream": true, "user": "%b"}', True),
)


class ByzantineClient:
    """One HTTP request over a connection of its own, and what came of it."""

    def __init__(self, number: int, url: bytes, until: float) -> None:
        self.number = number
        self.url = url
        self.until = until  #: by when it has to be over
        self.connection: HttpConnection | None = None
        self.over_at = 0.0  #: the whole answer is here, or the connection was cut
        self.left = False  #: it went away by itself
        self.answers = 0
        self.body = b""
        self.status = 0
        self._parser = httptools.HttpResponseParser(self)
        self._closing = False
        self._loop = asyncio.get_running_loop()

    # of the parser

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.answers += 1
        self.status = self._parser.get_status_code()
        self.over_at = self._loop.time()

    # the transport that the connection sees

    def write(self, data: bytes) -> None:
        if not self._closing:
            self._parser.feed_data(data)

    def abort(self) -> None:
        if not self._closing:
            self._closing = True
            self.over_at = self.over_at or self._loop.time()
            assert self.connection is not None
            self._loop.call_soon(self.connection.connection_lost, None)

    close = abort

    def is_closing(self) -> bool:
        return self._closing

    def get_extra_info(self, _: str) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def can_write_eof(self) -> bool:
        return False

    def leave(self) -> None:
        self.left = not self.over_at
        self.abort()


class ByzantineSite(Network):
    """A network with the gateway's HTTP side in front; instances by the seed."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(
            1, 2, 3, timeout_s=REQUEST_TIMEOUT_S, stream_timeout_s=STREAM_TIMEOUT_S,
            recorders=MetricRegistry() if rng.random() < 0.5 else None,
        )  # fmt: skip
        self.rng = rng
        for instance_id in ("i1", "i2"):
            honesty = rng.choice((0.0, 0.5, 0.9))
            self.instances[instance_id] = Byzantine(instance_id, rng, honesty=honesty)
        if rng.random() < 0.5:
            self.instances["i3"] = Byzantine("i3", rng, honesty=0.5)
        else:
            self.instance(3).on_invoke = answer
        dispatcher = self.dispatcher
        openai = OpenAiDoor(dispatcher)
        runtime = RuntimeDoor(
            dispatcher, account_id="123456789012", region="us-east-1", openai=openai
        )
        oip = OipDoor(dispatcher, OipModels(dispatcher, MetricRegistry()), dispatcher.limits)
        self.listener = HttpListener(
            limits=dispatcher.limits,
            clock=self.loop,
            ids=dispatcher.ids,
            doors=[(b"/endpoints/", runtime), (b"/v2", oip), (b"/v1/", openai)],
            fallback=AsgiDoor(no_app),
            interest=(*RUNTIME_INTEREST, *OIP_INTEREST, *OPENAI_INTEREST),
        )
        self.clients: list[ByzantineClient] = []
        self.awaited: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        await self.connect()
        model = MODEL | ({"task": "text-generation"} if self.rng.random() < 0.5 else {})
        self.dispatcher.publish(routes(1, 2, 3, outstanding_max=100, model=model))

    def ask(self, number: int) -> None:
        kind = self.rng.randrange(len(DOORS) + 2)
        if kind < len(DOORS):
            self._ask_over_http(number, *DOORS[kind])
        elif kind == len(DOORS):
            self.awaited.append(self.loop.create_task(self._ask_and_wait(number)))
        else:
            self.awaited.append(self.loop.create_task(self._ask_in_a_stream(number)))

    def _ask_over_http(self, number: int, url: bytes, body: bytes, streams: bool) -> None:
        body %= b"mark-%d;" % number
        own_s = self.rng.choice((None, None, 0.5, 3.0))
        limit_s = STREAM_TIMEOUT_S if streams else REQUEST_TIMEOUT_S
        until = self.loop.time() + min(limit_s, own_s or limit_s) + SLACK_S
        client = ByzantineClient(number, url, until)
        self.clients.append(client)
        lines = [b"POST %b HTTP/1.1" % url, b"Host: x", b"Content-Length: %d" % len(body)]
        if own_s is not None:
            lines.append(b"X-Penstock-Deadline-Ms: %d" % (own_s * 1000))
        client.connection = HttpConnection(self.listener)
        client.connection.connection_made(client)  # type: ignore[arg-type]  # the part it uses
        client.connection.data_received(b"\r\n".join(lines) + b"\r\n\r\n" + body)
        if self.rng.random() < 0.1:
            self.loop.call_later(2 * self.rng.random(), client.leave)

    def _invocation(self, number: int, responder: Responder) -> Invocation:
        now = self.loop.time()
        body = b"mark-%d;" % number
        return Invocation("echo", b"[]", body, responder, received=now, deadline=now + 5.0)

    def assert_own(self, number: int, body: bytes) -> None:
        """An answer holds nothing of another request, but where the bytes themselves were torn."""
        marks = set(re.findall(rb"mark-(\d+);", body))
        byzantine = [one for one in self.instances.values() if isinstance(one, Byzantine)]
        if not any(TEARS.intersection(one.done) for one in byzantine):
            assert marks <= {b"%d" % number}, f"request {number} got the answer of {marks}"

    async def _ask_and_wait(self, number: int) -> None:
        """As a unary call over gRPC does."""
        until = self.loop.time() + 5.0 + SLACK_S
        waiter = AwaitedReply(self.dispatcher)
        invocation = self._invocation(number, waiter)
        try:
            reply = await waiter.get(invocation)
            self.assert_own(number, reply.body)
            self.dispatcher.written(invocation)
        except PenstockError:
            pass
        assert self.loop.time() <= until

    async def _ask_in_a_stream(self, number: int) -> None:
        until = self.loop.time() + 5.0 + 1.0 + SLACK_S
        answers: list[bytes] = []

        def begin(request: bytes, responder: Responder) -> tuple[Invocation, InferNames]:
            invocation = self._invocation(number, responder)
            invocation.stream = StreamObserved()
            return invocation, InferNames("echo", "", "x", wants_final=True)

        async def requests() -> AsyncIterator[bytes]:
            for at in range(3):
                yield b"%d" % at
                await asyncio.sleep(0.3)

        async def write(message: bytes) -> None:
            self.assert_own(number, message)
            answers.append(message)

        await InferStream(self.dispatcher, begin, lambda error: error.message).run(
            requests(), write
        )
        assert len(answers) >= 3
        assert self.loop.time() <= until


async def play(seed: int) -> None:
    rng = random.Random(seed)
    site = ByzantineSite(rng)
    await site.begin()
    site.listener._tick()
    for number in range(REQUESTS):
        site.ask(number)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random())
    await asyncio.sleep(STREAM_TIMEOUT_S + 1.0)
    done, pending = await asyncio.wait(site.awaited, timeout=0.1) if site.awaited else ((), ())
    assert not pending, "a call over gRPC is still open"
    for task in done:
        task.result()
    for client in site.clients:
        assert client.over_at, f"{client.url!r} was never answered"
        assert client.over_at <= client.until, f"{client.url!r} was answered late"
        assert client.answers <= 1, "a request was answered twice"
        assert b"Injected" not in client.body
        site.assert_own(client.number, client.body)
    await site_is_empty(site)


async def site_is_empty(site: ByzantineSite) -> None:
    dispatcher = site.dispatcher
    links: list[Any] = list(dispatcher._links.values())
    assert dispatcher.in_flight == 0
    assert set(site.outstanding().values()) == {0}, "a slot is lost"
    assert dispatcher._bodies_bytes == 0
    for link in links:
        assert (link._pending, link._waiting) == ({}, {}), "a link holds what is over"
    dispatcher.table.endpoints["echo"].router.check_invariants()
    if site.counting is not None:
        kinds = [entry[2] for entry in site.counting.told]
        assert kinds.count("started") == kinds.count("finished") + kinds.count("cancelled")
    timer = site.listener._timer
    assert timer is not None
    timer.cancel()
    await dispatcher.close()
    for client in site.clients:
        client.abort()
    await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def no_metrics_fail(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A door may fail on what an instance says; what counts and explains must not."""
    logging.getLogger("penstock").setLevel(logging.ERROR)
    yield
    logging.getLogger("penstock").setLevel(logging.NOTSET)
    bad = [record for record in caplog.records if "counting request" in record.getMessage()]
    assert not bad, bad[0].exc_text


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_each_request_ends_once_by_its_deadline(first: int) -> None:
    for seed in range(first, first + 20):
        try:
            run_virtual(lambda: play(seed))  # noqa: B023 - called at once
        except BaseException:
            print(f"seed {seed}")
            raise


def test_no_misdeed_by_itself_keeps_a_request_from_its_end() -> None:
    """Each of them by itself, to all requests, on all copies."""
    for name in MISDEEDS:

        async def main(name: str = name) -> None:
            site = ByzantineSite(random.Random(name))
            for instance_id in site.instances:
                only = Byzantine(instance_id, site.rng, honesty=0.0)
                misdeed = getattr(only, f"_{name}")
                only.on_invoke = _doing(misdeed)
                site.instances[instance_id] = only
            await site.begin()
            site.listener._tick()
            for number in range(6):
                site.ask(number)
                await asyncio.sleep(0.2)
            await asyncio.sleep(STREAM_TIMEOUT_S + 1.0)
            for client in site.clients:
                assert client.over_at, f"{name}: {client.url!r} was never answered"
                assert client.over_at <= client.until, f"{name}: {client.url!r} was late"
                assert client.answers <= 1
            await asyncio.gather(*site.awaited)
            await site_is_empty(site)

        run_virtual(main)


def _doing(misdeed: Any) -> Any:
    def on_invoke(_: VirtualInstance, ident: int, invoke: Any) -> None:
        misdeed(ident, invoke.body)

    return on_invoke
