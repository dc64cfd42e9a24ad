"""Sessions of InvokeEndpoint: opened, kept on their copy, closed; and what prefixes bind."""

from __future__ import annotations

import asyncio
import re

import orjson
from tests.api.door_site import DoorSite, at_door, door_site
from tests.gateway.gateway_fakes import RawClient, post, routes, run, silent, until

from penstock.core.deployment.deployment import (
    PREFIX_AWARE,
    CopyRoute,
    EndpointRoutes,
    VariantRoutes,
)
from penstock.core.routing.sessions import LOST
from penstock.errors import NotNowError, PenstockError
from penstock.gateway.dispatch import refusals
from penstock.wire import frames

PLAIN, STREAM = "/endpoints/echo/invocations", "/endpoints/echo/invocations-response-stream"
SESSION = "X-Amzn-SageMaker-Session-Id"
NEW = "x-amzn-sagemaker-new-session-id"
CLOSED = "x-amzn-sagemaker-closed-session-id"


def two_copies(served: DoorSite, strategy: str = "LEAST_OUTSTANDING_REQUESTS") -> None:
    """Copies 1 and 2 of the endpoint, both on the one instance."""
    copies = tuple(CopyRoute(copy=n, instance_id="i1", outstanding_max=100) for n in (1, 2))
    variant = VariantRoutes(
        name="AllTraffic", weight=1.0, strategy=strategy, copies=copies,
        prefix_length_max=1024, concurrency_threshold=8,
    )  # fmt: skip
    served.dispatcher.publish(EndpointRoutes(endpoint="echo", variants=(variant,)))


async def opened(client: RawClient, body: bytes = b"first") -> str:
    client.write(post(PLAIN, body, f"{SESSION}: NEW_SESSION"))
    status, headers, _ = await client.answer()
    found = re.fullmatch(
        r"([a-zA-Z0-9](?:-*[a-zA-Z0-9])*); Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", headers[NEW]
    )
    assert status == 200
    assert found is not None
    return found[1]


def copies_asked(served: DoorSite) -> list[int]:
    return [invoke.copy for invoke in served.instance.invokes]


async def refused(client: RawClient, request: bytes) -> str:
    client.write(request)
    status, headers, body = await client.answer()
    assert (status, headers["x-amzn-errortype"]) == (400, "ValidationError")
    return str(orjson.loads(body)["Message"])


@at_door()
async def test_a_session_stays_on_its_copy_whatever_the_others_do(served: DoorSite) -> None:
    two_copies(served)
    client = await served.client()
    session = await opened(client)
    [home] = copies_asked(served)
    for path in (PLAIN, STREAM, PLAIN, STREAM):
        client.write(post(path, b"more", f"{SESSION}: {session}"))
        status, headers, _ = await client.answer()
        assert status == 200
        assert NEW not in headers
    assert copies_asked(served) == [home] * 5
    metas = [frames.decode_request_meta(each.meta) for each in served.instance.invokes]
    assert {meta.session_id for meta in metas} == {session}


@at_door()
async def test_a_session_is_opened_and_closed_without_asking_the_model(served: DoorSite) -> None:
    client = await served.client()
    session = await opened(client, b'{"requestType":"NEW_SESSION"}')
    close = post(PLAIN, b'{"requestType":"CLOSE"}', f"{SESSION}: {session}")
    client.write(close)
    status, headers, body = await client.answer()
    assert (status, headers[CLOSED], body) == (200, session, b"{}")
    assert served.instance.invokes == []
    assert "is not known" in await refused(client, close)
    again = post(PLAIN, b"more", f"{SESSION}: {session}")
    assert "is not known" in await refused(client, again)
    assert served.dispatcher.in_flight == 0


@at_door()
async def test_a_body_that_only_looks_like_it_is_the_models(served: DoorSite) -> None:
    client = await served.client()
    session = await opened(client)
    for body in (b'{"requestType":"CLOSE","x":1}', b'{"requestType":7}', b"{torn"):
        client.write(post(PLAIN, body, f"{SESSION}: {session}"))
        _, headers, answer = await client.answer()
        assert (answer, CLOSED in headers) == (body, False)


@at_door()
async def test_a_session_whose_copy_is_gone_is_lost_and_says_so(served: DoorSite) -> None:
    two_copies(served)
    client = await served.client()
    session = await opened(client)
    [home] = copies_asked(served)
    event = b'{"event":"copy-lost","copy":%d}' % home
    served.instance.connections[0].write(frames.encode(frames.EVENT, 0, event))
    request = post(PLAIN, b"more", f"{SESSION}: {session}")
    await until(lambda: home not in served.dispatcher.table.healthy_copies("echo"))
    assert "is lost" in await refused(client, request)
    client.write(post(PLAIN, b'{"requestType":"CLOSE"}', f"{SESSION}: {session}"))
    assert (await client.answer())[1][CLOSED] == session


@at_door()
async def test_a_session_of_an_endpoint_that_is_unknown_or_has_no_copy_can_not_begin(
    served: DoorSite,
) -> None:
    client = await served.client()
    body = b'{"requestType":"NEW_SESSION"}'
    nobody = post("/endpoints/nobody/invocations", body, f"{SESSION}: NEW_SESSION")
    assert "Endpoint nobody of account" in await refused(client, nobody)
    served.dispatcher.publish(routes())
    client.write(post(PLAIN, body, f"{SESSION}: NEW_SESSION"))
    assert (await client.answer())[0] == 503


@at_door()
async def test_prompts_that_begin_alike_go_to_one_copy_and_a_prefix_id_keeps_callers_apart(
    served: DoorSite,
) -> None:
    two_copies(served, PREFIX_AWARE)
    served.instance.on_invoke = silent
    client = await served.client()
    shared = b'{"inputs":"' + b"shared " * 200
    for ending in (b"one", b"two", b"three"):
        client.write(post(PLAIN, shared + ending + b'"}'))
    other = post(PLAIN, shared + b'"}', "X-Amzn-SageMaker-Prefix-Aware-Id: other")
    client.write(other)
    await until(lambda: len(served.instance.invokes) == 4)
    first, *rest = copies_asked(served)
    assert rest == [first, first, 3 - first]


class Others:
    """Other gateways: what they say of a session, once they may."""

    def __init__(self) -> None:
        self.served: DoorSite | None = None
        self.asked: list[tuple[str, str]] = []
        self.copy = 0  #: where it lives; 0: they do not know it
        self.refusal: PenstockError | None = None
        self.may = asyncio.Event()
        self.may.set()

    async def find(self, endpoint: str, session: str) -> None:
        self.asked.append((endpoint, session))
        await self.may.wait()
        if self.refusal is not None:
            raise self.refusal
        if self.copy:
            assert self.served is not None
            self.served.dispatcher.sessions.adopt(endpoint, session, self.copy)


def test_a_session_that_is_not_known_here_is_asked_for_elsewhere_once() -> None:
    async def main() -> None:
        others = Others()
        async with door_site(find_session=others.find) as served:
            others.served = served
            two_copies(served)
            client = await served.client()
            others.copy = 2
            for path in (PLAIN, STREAM, PLAIN):
                client.write(post(path, b"more", f"{SESSION}: elsewhere"))
                status, _, _ = await client.answer()
                assert status == 200
            assert copies_asked(served) == [2, 2, 2]
            assert others.asked == [("echo", "elsewhere")]
            client.write(post(PLAIN, b'{"requestType": "CLOSE"}', f"{SESSION}: elsewhere"))
            _, headers, _ = await client.answer()
            assert headers[CLOSED] == "elsewhere"
            await opened(client)  # what begins here is asked of nobody
            assert len(others.asked) == 1

    run(main)


def test_what_others_say_of_a_session_is_what_its_caller_is_told() -> None:
    async def main() -> None:
        others = Others()
        async with door_site(find_session=others.find) as served:
            two_copies(served)
            client = await served.client()
            request = post(PLAIN, b"more", f"{SESSION}: s")
            assert "is not known" in await refused(client, request)
            others.refusal = refusals.no_route("echo", None, LOST)
            assert "is lost" in await refused(client, request)
            others.refusal = NotNowError("process-silent", "nobody answers")
            client.write(request)
            assert (await client.answer())[0] == 503
            assert copies_asked(served) == []

    run(main)


def test_who_goes_away_while_others_are_asked_asks_no_model() -> None:
    async def main() -> None:
        others = Others()
        others.may.clear()
        async with door_site(find_session=others.find) as served:
            others.served = served
            two_copies(served)
            client = await served.client()
            client.write(post(PLAIN, b"more", f"{SESSION}: s"))
            await until(lambda: others.asked)
            client.close()
            await until(lambda: not served.server.listener.connections)
            others.copy = 1
            others.may.set()
            again = await served.client()
            again.write(post(PLAIN, b"last", f"{SESSION}: s"))
            assert (await again.answer())[0] == 200
            assert copies_asked(served) == [1]
            assert served.dispatcher.in_flight == 0

    run(main)
