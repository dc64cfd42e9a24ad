"""Several gateway processes behind one port: an endpoint is the same through each of them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.message import Message
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.kit.polling import wait_until
from tests.kit.processes import alive, runs, sockets_of
from tests.kit.python_models import python_model
from tests.kit.repeating import Repeating
from tests.kit.servers import EXAMPLES, Server, penstock, up

from penstock.wire.oip_messages import SERVICE, method_classes

pytestmark = pytest.mark.system

GATEWAYS = 2
#: Connections until each of two gateways has had one; the kernel draws, evenly.
TRIES_MAX = 200
SESSION = "X-Amzn-SageMaker-Session-Id"

#: Answers after `seconds`, with the process that answered.
SLOW = """
    import json, os, time

    def model_fn(folder):
        return None

    def predict_fn(data, model):
        time.sleep(data["seconds"])
        return {"pid": os.getpid()}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as folder, up(Path(folder), "--gateways", "2") as server:
        yield server


def asked(
    server: Server, name: str, body: bytes = b"[1,2]", headers: dict[str, str] | None = None
) -> tuple[str, bytes, Message]:
    """What the request ids of the gateway that answered begin with, the answer, its headers."""
    status, answer, told = server.ask(f"/endpoints/{name}/invocations", body, headers)
    if status != 200:
        raise RefusedError(status, answer, told["x-amzn-requestid"][:24])
    return told["x-amzn-requestid"][:24], answer, told


class RefusedError(Exception):
    """Another status than 200; the answer, and whose it was."""

    def __init__(self, status: int, answer: bytes, gateway: str) -> None:
        super().__init__(status, answer)
        self.status, self.gateway = status, gateway


def through_each(server: Server, name: str, **asks: Any) -> dict[str, bytes]:
    """An answer of every gateway; each call is a connection of its own."""
    answers: dict[str, bytes] = {}
    for _ in range(TRIES_MAX):
        gateway, answer, _ = asked(server, name, **asks)
        answers[gateway] = answer
        if len(answers) == GATEWAYS:
            return answers
    raise AssertionError(f"only {list(answers)} answered {TRIES_MAX} calls")


def gateways(server: Server) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in server.get("/admin/gateways")["gateways"]}


def all_serve(server: Server, *, not_pid: int = 0) -> bool:
    seen = gateways(server).values()
    return all(one["state"] == "serving" and one["pid"] != not_pid for one in seen)


class ConnectingLoad(Repeating):
    """Callers that each ask again and again, on a connection of their own every time."""

    def __init__(self, server: Server, name: str, *, callers: int = 6) -> None:
        super().__init__(threads=callers)
        self._server = server
        self._name = name
        self.answers = 0
        self.lost: Counter[str] = Counter()
        self.last_lost_began = 0.0
        self.wrong: list[str] = []

    def step(self) -> None:
        began = time.monotonic()
        try:
            _, answer, _ = asked(self._server, self._name)
        except RefusedError as error:
            self.wrong.append(str(error))
        except OSError as error:
            self.lost[type(error).__name__] += 1
            self.last_lost_began = max(self.last_lost_began, began)
        else:
            self.answers += 1
            if answer != b"[1,2]":
                self.wrong.append(repr(answer))

    def after(self, count: int) -> None:
        """Returns once so many more have been answered."""
        wanted = self.answers + count
        wait_until(lambda: self.answers >= wanted, f"{count} more answers", 60)


def test_an_endpoint_created_through_any_gateway_is_served_by_each(site: Server) -> None:
    """What is created is the control plane's, whichever process took the call; and when the
    endpoint is in service every gateway has it."""
    site.deploy("first", EXAMPLES / "echo" / "python", wait=False)
    site.deploy("second", EXAMPLES / "echo" / "python", wait=False)
    for name in ("first", "second"):
        site.wait_in_service(name)
        assert list(through_each(site, name).values()) == [b"[1,2]"] * GATEWAYS
    for name in ("first", "second"):
        site.client("sagemaker").delete_endpoint(EndpointName=name)


def test_requests_of_all_gateways_are_counted_as_one_servers(site: Server, echo: str) -> None:
    def counted() -> float:
        found = [
            row
            for row in site.page().splitlines()
            if row.startswith("penstock_requests_total{") and f'endpoint="{echo}"' in row
        ]
        return sum(float(row.rpartition(" ")[2]) for row in found)

    before = wait_until(lambda: counted() + 1, "metrics", 30) - 1
    asks = 0
    seen = set()
    while len(seen) < GATEWAYS:
        seen.add(asked(site, echo)[0])
        asks += 1
    wait_until(lambda: counted() == before + asks, "all counts", 30)


@pytest.fixture(scope="module")
def echo(site: Server) -> str:
    site.deploy("echo", EXAMPLES / "echo" / "python", count=2)
    return "echo"


def test_a_request_is_explained_whichever_gateway_had_it(site: Server, echo: str) -> None:
    told = set()
    while len(told) < GATEWAYS:
        _, _, headers = asked(site, echo)
        story = site.get(f"/admin/requests/{headers['x-amzn-requestid']}")
        assert story["endpoint"] == echo
        told.add(story["gateway"])
    assert told == {"gateway-1", "gateway-2"}


def test_the_request_id_of_a_control_call_is_one_wherever_it_is_answered(site: Server) -> None:
    """Its client knows it by the header of a gateway, and by the body of the control plane."""
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "x-penstock-request-id": "of-a-stranger",
    }
    form = b"Action=GetMetricStatistics&Version=2010-08-01"
    status, body, told = site.ask("", form, headers)
    assert status >= 400
    assert f"<RequestId>{told['x-amzn-requestid']}</RequestId>" in body.decode()


def test_what_nobody_serves_is_answered_as_by_one_process(site: Server) -> None:
    status, body, _ = site.ask("/nowhere")
    assert (status, json.loads(body)["code"]) == (404, "not-found")


def test_what_is_answered_later_is_taken_by_any_gateway(site: Server, tmp_path: Path) -> None:
    """InvokeEndpointAsync is the control plane's; a gateway hands it on."""
    site.model("later", EXAMPLES / "echo" / "python")
    output = {"OutputConfig": {"S3OutputPath": (tmp_path / "out").as_uri()}}
    site.endpoint("later", members={"AsyncInferenceConfig": output})
    outputs = []
    for _ in range(8):
        status, _, headers = site.ask("/endpoints/later/async-invocations", b"[7]")
        assert status == 202
        outputs.append(Path(headers["x-amzn-sagemaker-outputlocation"][7:]))
    for output in outputs:
        wait_until(output.exists, f"{output.name}", 60)
        assert output.read_bytes() == b"[7]"
    site.client("sagemaker").delete_endpoint(EndpointName="later")


def grpc_call(channel: grpc.Channel, method: str, **fields: Any) -> Any:
    request_class, response_class = method_classes(method)
    call = channel.unary_unary(
        f"/{SERVICE}/{method}",
        request_serializer=request_class.SerializeToString,
        response_deserializer=response_class.FromString,
    )
    return call(request_class(**fields), timeout=30)


def test_grpc_is_served_by_every_gateway_on_one_port(site: Server, echo: str) -> None:
    """What one gateway alone can't know is asked of the control plane: the counts of all."""
    before = through_each(site, echo)
    assert len(before) == GATEWAYS
    pids = {one["pid"] for one in gateways(site).values()}
    served: set[int] = set()
    for _ in range(TRIES_MAX):
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{site.grpc_port}", options) as channel:
            assert grpc_call(channel, "ModelReady", name=echo).ready
            index = grpc_call(channel, "RepositoryIndex").models
            assert echo in [one.name for one in index]
            [stats] = grpc_call(channel, "ModelStatistics", name=echo).model_stats
            assert stats.inference_count > 0
            served |= {pid for pid in pids if has_peer(pid, site.grpc_port)}
        if served == pids:
            break
    assert served == pids


def has_peer(pid: int, port: int) -> bool:
    """Whether a process has an established connection at a port of its own."""
    established = []
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        rows = [row.split() for row in table.read_text().splitlines()[1:]]
        established += [
            row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "01"
        ]
    return bool(sockets_of(pid) & set(established))


def test_a_session_is_kept_by_any_gateway_until_any_of_them_ends_it(
    site: Server, tmp_path: Path
) -> None:
    """It lives on one copy, whose gateway a later request may never meet."""
    site.deploy("talks", python_model(tmp_path / "m", SLOW), count=2)
    body = b'{"seconds": 0}'
    gateway, answer, headers = asked(site, "talks", body, {SESSION: "NEW_SESSION"})
    session = headers["x-amzn-sagemaker-new-session-id"].partition(";")[0]
    answers = through_each(site, "talks", body=body, headers={SESSION: session})
    assert set(answers.values()) == {answer}
    _, closed, _ = asked(site, "talks", b'{"requestType": "CLOSE"}', {SESSION: session})
    assert closed == b"{}"
    refusing: set[str] = set()

    def ended_everywhere() -> bool:
        """The one that ended it refuses at once; the others are told of it then."""
        try:
            refusing.discard(asked(site, "talks", body, {SESSION: session})[0])
        except RefusedError as unknown:
            if unknown.status == 400:
                refusing.add(unknown.gateway)
        return len(refusing) == GATEWAYS

    wait_until(ended_everywhere, "the end of the session at each gateway", 30)
    site.client("sagemaker").delete_endpoint(EndpointName="talks")
    assert gateway


def test_an_endpoint_is_replaced_and_deleted_under_load_through_all_gateways(
    site: Server,
) -> None:
    """Old copies are drained of every gateway's requests before they go: none fails."""
    site.deploy("changing", EXAMPLES / "echo" / "python")
    client = site.client("sagemaker")
    with ConnectingLoad(site, "changing", callers=4) as load:
        load.after(50)
        for number in (1, 2):
            site.config(f"changing-{number}", ModelName="changing")
            client.update_endpoint(EndpointName="changing", EndpointConfigName=f"changing-{number}")
            site.wait_in_service("changing")
            load.after(50)
    assert (load.wrong, load.lost) == ([], Counter())
    client.delete_endpoint(EndpointName="changing")

    def gone() -> bool:
        try:
            asked(site, "changing")
        except RefusedError as error:
            return error.status == 400
        return False

    # Every gateway has forgotten it: as many connections in a row as make a miss unlikely.
    wait_until(lambda: all(gone() for _ in range(20)), "its end everywhere", 60)


def test_a_gateway_that_is_killed_takes_its_own_connections_alone(site: Server, echo: str) -> None:
    """Callers of the others notice nothing; another gateway is there in a moment."""
    survivor, victim = gateways(site)["gateway-1"], gateways(site)["gateway-2"]
    kept = []  # connections of the survivor, with a request each before and after
    while len(kept) < 3:
        connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=60)
        connection.connect()
        local_port = connection.sock.getsockname()[1]
        if owns(survivor["pid"], site.port, local_port):
            kept.append(connection)
    with ConnectingLoad(site, echo) as load:
        load.after(50)
        os.kill(victim["pid"], signal.SIGKILL)
        # While it ends the kernel still hands it callers: they are its own, too.
        wait_until(lambda: not runs(victim["pid"]), "its end", 60)
        ended = time.monotonic()
        for _ in range(50):
            for connection in kept:
                headers = {"Content-Type": "application/json"}
                connection.request("POST", f"/endpoints/{echo}/invocations", b"[1,2]", headers)
                with connection.getresponse() as answer:
                    assert (answer.status, answer.read()) == (200, b"[1,2]")
        load.after(50)
        wait_until(lambda: all_serve(site, not_pid=victim["pid"]), "another gateway", 60)
        load.after(50)
    assert load.wrong == []
    assert load.last_lost_began <= ended, load.lost  # who came after its end lost nothing
    assert gateways(site)["gateway-1"] == survivor
    assert gateways(site)["gateway-2"]["starts"] == 2
    assert len(through_each(site, echo)) == GATEWAYS
    for connection in kept:
        connection.close()


def owns(pid: int, port: int, peer_port: int) -> bool:
    """Whether a process has accepted the connection from `peer_port`; asks until somebody has."""

    def holder() -> str | None:
        for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = row.split()
            ours = fields[1].endswith(f":{port:04X}") and fields[2].endswith(f":{peer_port:04X}")
            if ours and fields[9] != "0":
                return fields[9]
        return None

    return wait_until(holder, "an accepted connection") in sockets_of(pid)


def test_a_gateway_that_hangs_is_ended_and_another_one_takes_its_place(
    site: Server, echo: str
) -> None:
    """The kernel goes on giving it connections: it must not stay."""
    victim = gateways(site)["gateway-1"]
    os.kill(victim["pid"], signal.SIGSTOP)
    wait_until(lambda: not alive(victim["pid"]), "the end of a gateway that hangs", 60)
    # The control plane itself was asked through the other one, or not at all, meanwhile.
    wait_until(lambda: served(site, victim["pid"]), "another gateway", 60)
    assert len(through_each(site, echo)) == GATEWAYS


def served(server: Server, not_pid: int) -> bool:
    try:
        return all_serve(server, not_pid=not_pid)
    except OSError:  # of the one that hung
        return False


def test_endpoints_are_changed_while_a_gateway_hangs(site: Server) -> None:
    """It is waited for until it is ended, and not for ever."""
    victim = gateways(site)["gateway-2"]
    site.prepare("meanwhile", EXAMPLES / "echo" / "python")
    os.kill(victim["pid"], signal.SIGSTOP)
    create = {
        "X-Amz-Target": "SageMaker.CreateEndpoint", "Content-Type": "application/x-amz-json-1.1",
    }  # fmt: skip
    body = json.dumps({"EndpointName": "meanwhile", "EndpointConfigName": "meanwhile"}).encode()

    def created() -> bool:
        try:
            status, answer, _ = site.ask("", body, create, timeout=2)
        except OSError:  # a connection may be the hanging one's, cut when it is ended
            return False
        # One that was waited for too shortly may have been answered all the same.
        return status == 200 or b"already existing" in answer

    wait_until(created, "an answer of the one that does not hang", 60)
    wait_until(lambda: served(site, victim["pid"]), "another gateway", 60)
    site.wait_in_service("meanwhile")
    assert len(through_each(site, "meanwhile")) == GATEWAYS
    site.client("sagemaker").delete_endpoint(EndpointName="meanwhile")


def test_requests_are_held_by_each_gateway_and_wanted_as_one(tmp_path: Path) -> None:
    """At no copies they wait where they came; whoever scales hears of all of them together."""
    server = Server(tmp_path / "state", "--gateways", "2").start()
    try:
        server.prepare("asleep", EXAMPLES / "echo" / "python")
        client = server.client("sagemaker")
        client.create_endpoint(EndpointName="asleep", EndpointConfigName="asleep")
        # Its copy takes a process start: what comes before waits, wherever it comes.
        wait_until(lambda: "asleep" in index_of(server), "routes everywhere", 30)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: asked(server, "asleep"), range(16)))
        assert {answer for _, answer, _ in answers} == {b"[1,2]"}
    finally:
        server.stop()


def index_of(server: Server) -> set[str]:
    """Endpoints that several connections in a row know of."""
    found = []
    for _ in range(12):
        status, body = server.post("/v2/repository/index", b"{}")
        assert status == 200
        found.append({one["name"] for one in json.loads(body)})
    return set.intersection(*found)


def test_a_key_that_is_deleted_opens_no_gateway_any_more(tmp_path: Path) -> None:
    def keys(*words: str) -> str:
        return penstock("keys", *words, "--state-dir", str(state)).stdout

    state = tmp_path / "state"
    server = Server(state, "--gateways", "2", "--auth").start()
    try:
        made = json.loads(keys("create", "--bearer", "--json"))
        key = {"Authorization": f"Bearer {made['secret']}"}

        def answers() -> set[int]:
            """What as many connections as meet both gateways are told."""
            return {server.ask("/v2", headers=key)[0] for _ in range(24)}

        wait_until(lambda: answers() == {200}, "the key everywhere", 60)
        _, seen, _ = server.ask("/admin/gateways", headers=key)  # handed on, and asked again
        assert len(json.loads(seen)["gateways"]) == 2
        keys("delete", made["key_id"])
        wait_until(lambda: answers() == {403}, "its end everywhere", 60)
    finally:
        server.stop()


def test_gateways_end_with_their_server_even_where_one_is_stopped(tmp_path: Path) -> None:
    """Its instances have ended with it: a gateway that stayed would only keep the port."""
    server = Server(tmp_path / "state", "--gateways", "2").start()
    pids = [one["pid"] for one in gateways(server).values()]
    os.kill(pids[0], signal.SIGSTOP)
    server.kill()
    for pid in pids:
        wait_until(lambda pid=pid: not alive(pid), f"the end of {pid}", 30)
    again = Server(tmp_path / "state", "--gateways", "2")
    again.port, again.grpc_port = server.port, server.grpc_port
    again.url = server.url
    again.start()
    assert again.stop() == 0


def test_a_second_server_does_not_join_the_ports_of_the_first(site: Server, tmp_path: Path) -> None:
    """The kernel would let it, and each would answer half of the other's requests."""
    second = Server(tmp_path / "state", "--gateways", "2")
    second.port, second.grpc_port = site.port, site.grpc_port
    with pytest.raises(AssertionError, match="port-in-use"):
        second.start()


def test_what_is_in_flight_is_answered_before_a_server_stops(tmp_path: Path) -> None:
    server = Server(tmp_path / "state", "--gateways", "2").start()
    server.deploy("slow", python_model(tmp_path / "m", SLOW), count=1)
    with ThreadPoolExecutor(6) as pool:
        asks = [pool.submit(asked, server, "slow", b'{"seconds": 1}') for _ in range(6)]
        wait_until(lambda: server.in_flight() >= 6, "six in flight", 30)
        assert server.stop() == 0
        assert len({one.result()[1] for one in asks}) == 1
