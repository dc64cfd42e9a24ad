"""Two servers on one PostgreSQL database: one leads, and the other takes over within seconds."""

from __future__ import annotations

import http.client
import signal
import socket
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError, ConnectionClosedError, EndpointConnectionError
from tests.kit.polling import wait_until
from tests.kit.postgres import PostgresServer
from tests.kit.python_models import ECHO, python_model
from tests.kit.repeating import Repeating
from tests.kit.servers import Server

from penstock.api.standby import HANDED_ON

pytestmark = pytest.mark.system


class Asking(Repeating):
    """Asks whether a server lives, again and again, each time over a connection of its own."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.answered = 0
        self.failed: list[str] = []
        self._port = port

    def step(self) -> None:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            connection.request("GET", "/ping")
            status = connection.getresponse().status
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            self.failed.append(repr(error))
            return
        if status != 200:
            self.failed.append(str(status))
        self.answered += 1


def leader_name(server: Server) -> str:
    return f"{socket.gethostname()}:{server.pid}"


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.remove()


@pytest.fixture
def servers(tmp_path: Path, postgres: PostgresServer) -> Iterator[tuple[Server, Server]]:
    """The leader, and who follows it."""
    postgres.empty()
    both = tuple(
        Server(tmp_path / name, "--database", postgres.url) for name in ("first", "second")
    )
    try:
        yield both[0].start(), both[1].start(word="penstock standby")
    finally:
        for server in both:
            if server.process is not None:
                server.go_on()
                server.kill()


def create_model(server: Server, name: str, *, by_itself: bool = False) -> None:
    """`by_itself`: it may not hand the request on to who leads."""
    client = server.client("sagemaker")
    if by_itself:
        client.meta.events.register(
            "before-call", lambda params, **_: params["headers"].update({HANDED_ON.decode(): "1"})
        )
    client.create_model(
        ModelName=name,
        PrimaryContainer={"Image": "penstock", "ModelDataUrl": f"file:///{name}"},
        ExecutionRoleArn="arn:aws:iam::123456789012:role/r",
    )


def models(server: Server) -> set[str]:
    return {one["ModelName"] for one in server.client("sagemaker").list_models()["Models"]}


def leads(server: Server, name: str) -> bool:
    """Whether it takes a change itself; False while nobody listens there, as between its two
    parts."""
    try:
        create_model(server, name, by_itself=True)
    except (EndpointConnectionError, ConnectionClosedError):
        return False
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] != 503:
            raise
        return False
    return True


def test_who_follows_hands_on_what_it_is_asked(servers: tuple[Server, Server]) -> None:
    """As long as the leader answers, it answers everything, whoever is asked."""
    leader, follower = servers
    create_model(leader, "shop")
    create_model(follower, "other")
    assert models(follower) == models(leader) == {"shop", "other"}
    status, body = follower.post("/endpoints/none/invocations", b"{}")
    assert (status, b"not-the-leader" in body) == (400, False), body


def test_while_nobody_leads_reads_are_answered_and_changes_are_told_to_come_back(
    servers: tuple[Server, Server], postgres: PostgresServer
) -> None:
    """The leader is gone, and who follows can't take over: somebody else holds the lock."""
    leader, follower = servers
    create_model(leader, "shop")
    with postgres.locked():
        leader.kill()
        assert models(follower) == {"shop"}
        with pytest.raises(ClientError) as raised:
            create_model(follower, "other")
        answer = raised.value.response
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 503
        assert "another server leads" in answer["Error"]["Message"]
        status, body = follower.post("/endpoints/shop/invocations", b"{}")
        assert (status, b"not-the-leader" in body) == (503, True)
    wait_until(lambda: leads(follower, "later"), seconds=60, what="a takeover")
    assert models(follower) == {"shop", "later"}


def test_serving_goes_on_while_the_database_is_away(
    servers: tuple[Server, Server], postgres: PostgresServer, tmp_path: Path
) -> None:
    """Stopped, then restarted: nobody takes over, no instance is started anew, no answer fails;
    changes are told to come back, and then pass."""
    leader, _ = servers
    leader.deploy("echo", python_model(tmp_path / "echo", ECHO), wait=False)
    leader.wait_in_service("echo")
    before = leader.get("/admin/copies")["copies"]

    def serves() -> None:
        status, body = leader.post("/endpoints/echo/invocations", b"[1]")
        assert (status, body) == (200, b"[1]"), body

    for away, back in ((postgres.pause, postgres.go_on), (postgres.stop, postgres.start)):
        away()
        try:
            until = time.monotonic() + 4.0  # longer than a silent leader is left alone
            while time.monotonic() < until:
                serves()
                time.sleep(0.05)
            with pytest.raises(ClientError) as raised:
                create_model(leader, "not-now")
            assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503
        finally:
            back()
        wait_until(lambda: leads(leader, uuid4().hex), seconds=60, what="a change")
        serves()
    after = leader.get("/admin/copies")["copies"]
    assert [one["instance"] for one in after] == [one["instance"] for one in before]
    assert "penstock standby" not in leader.log()


def test_who_follows_shows_its_own_metrics_and_who_leads(servers: tuple[Server, Server]) -> None:
    """Both are scraped: what the leader counts is there once."""
    leader, _ = servers
    pages = []
    for server in servers:
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=30) as answer:
            pages.append(answer.read().decode())
    assert "penstock_requests_total" in pages[0]
    assert "penstock_standby" not in pages[0]
    rows = [line for line in pages[1].splitlines() if line.startswith("penstock_")]
    assert rows == [
        f'penstock_standby{{address="{leader.url}",leader="{leader_name(leader)}"}} 1.0'
    ]
    assert "process_resident_memory_bytes" in pages[1]


def test_a_server_with_the_leader_s_address_is_refused_and_names_both(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it would hand on to the leader could come back to itself. After a restart the record
    says the own address for a moment: that is no other server."""
    postgres.empty()
    leader, other = (Server(tmp_path / name, "--database", postgres.url) for name in ("a", "b"))
    try:
        leader.start()
        monkeypatch.setenv("PENSTOCK_CONTROL_ADVERTISE", leader.url)
        name = leader_name(leader)
        with pytest.raises(AssertionError, match="error\\[address-taken\\]") as raised:
            other.start(word="penstock ready")
        assert other.process is not None
        assert other.process.returncode == 1
        said = str(raised.value)
        assert name in said
        assert leader_name(other) in said
        assert leader.url in said
        leader.kill()
        leader.start()
    finally:
        for server in (leader, other):
            if server.process is not None:
                server.kill()


@pytest.mark.parametrize("gateways", ["1", "2"])
def test_nobody_who_connects_during_a_takeover_is_refused(
    tmp_path: Path, postgres: PostgresServer, gateways: str
) -> None:
    """A connection for each request, one after the other, from before the leader's death until
    the other leads: each is accepted and answered."""
    postgres.empty()
    flags = ("--database", postgres.url, "--gateways", gateways)
    first, second = (Server(tmp_path / name, *flags) for name in ("first", "second"))
    asked = Asking(second.port)
    try:
        first.start()
        second.start(word="penstock standby")
        with asked:
            wait_until(lambda: asked.answered > 20, seconds=60, what="answers before")
            first.kill()
            wait_until(lambda: "penstock ready" in second.log(), seconds=60, what="a takeover")
            after = asked.answered
            wait_until(lambda: asked.answered > after + 20, seconds=60, what="answers after")
    finally:
        for server in (first, second):
            if server.process is not None:
                server.kill()
    assert asked.failed == []


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_who_follows_takes_over(servers: tuple[Server, Server], how: signal.Signals) -> None:
    """What the former leader was asked for is there; when it goes on, it follows."""
    leader, follower = servers
    create_model(leader, "before")
    assert leader.process is not None
    leader.process.send_signal(how)
    began = time.monotonic()
    wait_until(lambda: leads(follower, uuid4().hex), seconds=60, what="a takeover")
    print(f"taken over after {time.monotonic() - began:.2f} s ({how.name})")
    assert "before" in models(follower)
    if how == signal.SIGSTOP:
        leader.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "penstock standby" in leader.log(), seconds=60, what="stepping down")
        assert not leads(leader, "too-late")
        assert "too-late" not in models(follower)
