"""Server and instance over TLS: each shows who it is, and nothing is said to anybody else."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from penstock.control.instances.instance_client import InstanceClient
from penstock.core.blame.poison_requests import FRESH
from penstock.errors import CallerError, NotNowError
from penstock.fleet.identity import contexts, dial
from penstock.fleet.identity.authority import Authority, key_and_request
from penstock.fleet.identity.contexts import Identity
from penstock.fleet.identity.dial import Tls
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.link import FrameLink
from penstock.instance.server import InstanceServer
from penstock.instance.settings import InstanceSettings
from penstock.wire import frames

Run = Callable[[Coroutine[Any, Any, None]], None]
ID = "shop-all-1-0-7"


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on the loop of tests, and on the server's own."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_test(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(test)

    return run_test


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return authority_in(tmp_path / "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    """Another deployment's."""
    return authority_in(tmp_path / "theirs")


def authority_in(folder: Path) -> Authority:
    folder.mkdir(exist_ok=True)
    return Authority.open(folder, now=time.time())


def instance_identity(authority: Authority, instance_id: str = ID) -> Identity:
    key, request = key_and_request(instance_id)
    return authority.identity(key, request, contexts.of_instance(instance_id), now=time.time())


def dials_as(identity: Identity) -> Tls:
    return lambda: contexts.dialling(identity)


def server_of(authority: Authority) -> Tls:
    return dials_as(authority.server_identity(now=time.time()))


@dataclass
class ListeningInstance:
    server: InstanceServer
    address: str
    heard: list[bytes]  #: control calls that reached it

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])


@contextlib.asynccontextmanager
async def instance(tmp_path: Path, identity: Identity) -> AsyncIterator[ListeningInstance]:
    settings = InstanceSettings(
        instance_id=ID,
        address="tls:127.0.0.1:0",
        cores=1.0,
        memory_bytes=0,
        cache_dir=tmp_path / "cache",
        identity=identity,
    )
    server = InstanceServer(settings)
    heard: list[bytes] = []
    answer = server.control

    def control(connection: Any, ident: int, payload: bytes) -> None:
        heard.append(payload)
        answer(connection, ident, payload)

    server.control = control  # type: ignore[method-assign]  # still the real one
    try:
        yield ListeningInstance(server, await server.listen(), heard)
    finally:
        await server.drain()
        await server.close()


async def connected(address: str, tls: Tls) -> InstanceClient:
    return await InstanceClient.connect(
        ID, address, on_event=lambda event: None, on_close=lambda: None, tls=tls
    )


def test_a_server_calls_its_instance(run: Run, tmp_path: Path, ours: Authority) -> None:
    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours)) as there:
            client = await connected(there.address, server_of(ours))
            assert (await client.call({"op": "ping"}, timeout_s=20))["instance_id"] == ID
            transport = client._transport
            assert transport is not None
            assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
            option = transport.get_extra_info("socket").getsockopt(
                socket.IPPROTO_TCP, socket.TCP_NODELAY
            )
            assert option != 0
            client.close()

    run(test())


def test_frames_larger_than_any_buffer_come_whole(
    run: Run, tmp_path: Path, ours: Authority
) -> None:
    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours)) as there:
            client = await connected(there.address, server_of(ours))
            call = {"op": "ping", "padding": "x" * 9_000_000}
            assert (await client.call(call, timeout_s=30))["instance_id"] == ID
            assert len(there.heard[0]) > 9_000_000
            client.close()

    run(test())


def test_an_instance_of_another_deployment_hears_nothing(
    run: Run, tmp_path: Path, ours: Authority, theirs: Authority
) -> None:
    async def test() -> None:
        async with instance(tmp_path, instance_identity(theirs)) as there:
            with pytest.raises(NotNowError) as refused:
                await connected(there.address, server_of(ours))
            assert refused.value.code == "instance-untrusted"
            assert there.heard == []

    run(test())


def test_a_certificate_is_good_for_one_instance_alone(
    run: Run, tmp_path: Path, ours: Authority
) -> None:
    """Another instance of the same deployment listens where this one is looked for: after a restart
    of its node the same port may be anybody's."""

    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours, "another-one")) as there:
            with pytest.raises(NotNowError) as refused:
                await connected(there.address, server_of(ours))
            assert refused.value.code == "instance-untrusted"
            assert there.heard == []

    run(test())


def test_a_server_of_another_deployment_is_not_let_in(
    run: Run, tmp_path: Path, ours: Authority, theirs: Authority
) -> None:
    """It believes the instance, whose authority it has somehow got, but shows a certificate that
    the instance does not believe."""

    async def test() -> None:
        stranger = theirs.server_identity(now=time.time())
        believes = Identity(
            certificate=stranger.certificate, key=stranger.key, authority=ours.certificate
        )
        async with instance(tmp_path, instance_identity(ours)) as there:
            with pytest.raises(NotNowError) as refused:
                await connected(there.address, dials_as(believes))
            assert refused.value.code in ("instance-untrusted", "instance-unreachable")
            assert there.heard == []

    run(test())


def test_an_instance_is_no_server_to_other_instances(
    run: Run, tmp_path: Path, ours: Authority
) -> None:
    """A model that broke out of its process may hold its instance's key."""

    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours)) as there:
            with pytest.raises(NotNowError):
                await connected(there.address, dials_as(instance_identity(ours, "neighbour")))
            assert there.heard == []

    run(test())


def test_without_tls_nobody_is_heard(run: Run, tmp_path: Path, ours: Authority) -> None:
    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours)) as there:
            reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
            writer.write(frames.encode(frames.CONTROL, 1, b'{"op": "ping"}'))
            # The end of TLS, as an alert or as a reset; never an answer of ours.
            with contextlib.suppress(ConnectionError):
                assert b"instance_id" not in await reader.read()
            writer.close()
            assert there.heard == []

    run(test())


def test_without_a_certificate_nobody_is_heard(run: Run, tmp_path: Path, ours: Authority) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=ours.certificate)

    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours)) as there:
            with pytest.raises(NotNowError) as refused:
                await connected(there.address, lambda: context)
            assert refused.value.code in ("instance-untrusted", "instance-unreachable")
            assert there.heard == []

    run(test())


def test_an_instance_of_another_version_is_told_from_its_greeting(
    run: Run, tmp_path: Path, ours: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that was away comes back with what was installed on it then."""

    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours)) as there:
            there.server.greeting = there.server.greeting.replace(
                frames.LAYOUT.encode(), b"0" * len(frames.LAYOUT)
            )
            with pytest.raises(NotNowError) as refused:
                await connected(there.address, server_of(ours))
            assert refused.value.code == "instance-version"
            assert "00000000" in refused.value.message
            assert there.heard == []

    run(test())


class TlsEvents:
    """Writes down what the link reports."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.returned: asyncio.Queue[str] = asyncio.Queue()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.told.append(name)

    def on_returned(self, invocation: Invocation, reason: str) -> None:
        self.returned.put_nowait(reason)


def request() -> Invocation:
    one = Invocation("shop", b"[]", b"body", cast(Any, None), received=0.0, deadline=None, number=1)
    one.past = FRESH
    return one


def test_a_gateway_sends_its_requests(run: Run, tmp_path: Path, ours: Authority) -> None:
    async def test() -> None:
        async with instance(tmp_path, instance_identity(ours)) as there:
            events = TlsEvents()
            link = FrameLink(ID, there.address, cast(Any, events), tls=server_of(ours))
            await link.open(20)
            link.send(request(), 5, 10_000)
            assert await asyncio.wait_for(events.returned.get(), 20) == "unknown-copy"
            await link.close()

    run(test())


def test_a_gateway_sends_nothing_to_who_is_not_its_instance(
    run: Run, tmp_path: Path, ours: Authority, theirs: Authority
) -> None:
    """The link says so at once, goes on trying, and is never usable."""

    async def test() -> None:
        async with instance(tmp_path, instance_identity(theirs)) as there:
            events = TlsEvents()
            link = FrameLink(ID, there.address, cast(Any, events), tls=server_of(ours))
            with pytest.raises(NotNowError) as refused:
                await link.open(60)
            assert refused.value.code == "instance-untrusted"
            assert not link.usable
            assert events.told == []
            await link.close()

    run(test())


def test_the_greeting_is_the_first_word_of_this_very_instance() -> None:
    [frame] = frames.FrameDecoder().feed(dial.hello(ID))
    dial.check(frame, ID)
    with pytest.raises(NotNowError, match="does not greet"):
        dial.check(frame, "another")
    for payload in (b"[]", b"{", b'{"event": "copy-lost"}', b"7"):
        with pytest.raises(NotNowError, match="does not greet"):
            dial.check(frame._replace(payload=payload), ID)


def test_an_instance_with_tls_needs_an_identity(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        with pytest.raises(CallerError, match="needs an identity"):
            async with instance(tmp_path, None):  # type: ignore[arg-type]  # that is the point
                raise AssertionError

    run(test())
