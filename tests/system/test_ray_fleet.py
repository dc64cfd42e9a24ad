"""Instances on the nodes of a Ray cluster, which is Ray's own test cluster on this machine."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.kit.environments import python_of
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.processes import alive
from tests.kit.python_models import ECHO, python_model
from tests.kit.ray_nodes import (
    ROOT,
    RayCluster,
    actors_of,
    cluster_of,
    raylets_of,
    ready_copies,
    server_on,
)
from tests.kit.servers import EXAMPLES, Server
from tests.kit.transform import TransformSite

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

SCRIPTS = Path(__file__).parent / "scripts"

#: Longer than the alarm that Ray's own handler of SIGTERM sets.
SLOW = """
import time
def model_fn(model_dir):
    return None
def transform_fn(model, body, content_type, accept):
    time.sleep(6)
    return body, content_type
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """The head has room for nothing; each of the other nodes for two cores."""
    with cluster_of(tmp_path_factory.mktemp("cluster"), "0", "2", "2", "2") as made:
        yield made


@pytest.fixture(scope="module")
def server(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    state_dir = tmp_path_factory.mktemp("server") / "state"
    made = server_on(cluster, state_dir).start()
    yield made
    assert made.stop() == 0, made.log()


@pytest.fixture(scope="module")
def echo(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four instances of a core each, so that there is one at least on every node but one."""
    model = python_model(tmp_path_factory.mktemp("model") / "echo", ECHO)
    server.deploy("echo", model, count=4, wait=False)
    server.wait_in_service("echo", seconds=240)
    return "echo"


def test_instances_answer_from_several_nodes_and_their_logs_come_home(
    server: Server, echo: str
) -> None:
    ready_copies(server, echo, 4)
    assert len(set(raylets_of(server, echo).values())) >= 2
    status, answer = server.post("/endpoints/echo/invocations", b"[1.0]")
    assert (status, answer) == (200, b"[1.0]")
    os.kill(server.copies(echo)[0]["pid"], signal.SIGTERM)
    lines = wait_until(
        lambda: [
            line
            for log in (server.state_dir / "logs").rglob("*.log")
            for line in log.read_text().splitlines()
            if "the instance ended" in line
        ],
        "the end of an instance in the log that the server keeps",
        60,
    )
    assert "exit code 0" in lines[0]
    ready_copies(server, echo, 4)


def test_a_lost_node_loses_no_accepted_request_and_its_copies_come_back_elsewhere(
    server: Server, echo: str, cluster: RayCluster
) -> None:
    ready_copies(server, echo, 4)
    before = raylets_of(server, echo)
    number = cluster.raylets.index(next(iter(before.values())))
    lost = {copy for copy, raylet in before.items() if raylet == cluster.raylets[number]}
    pids = [copy["pid"] for copy in server.copies(echo) if copy["copy"] in lost]
    with Load(server.port, f"/endpoints/{echo}/invocations") as load:
        wait_until(lambda: load.answered > 100, "load", 60)
        cluster.kill(number)
        wait_until(
            lambda: lost.isdisjoint({copy["copy"] for copy in server.copies(echo)}),
            "the loss of the node seen",
            60,
        )
        ready_copies(server, echo, 4)
        answered = load.answered
        wait_until(lambda: load.answered > answered + 100, "answers afterwards", 60)
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    wait_until(lambda: not any(map(alive, pids)), "the end of what ran on the lost node", 60)


def test_without_room_the_endpoint_says_so_and_gets_it_when_a_node_comes(
    server: Server, echo: str, cluster: RayCluster
) -> None:
    """The two nodes that are left are full: the instance waits for a node."""
    server.deploy("more", EXAMPLES / "echo" / "python", wait=False)
    described = server.client("sagemaker").describe_endpoint(EndpointName="more")
    assert described["EndpointStatus"] == "Creating"
    cluster.add(1)
    server.wait_in_service("more", seconds=240)
    server.client("sagemaker").delete_endpoint(EndpointName="more")


def test_an_actor_that_is_told_to_end_loses_no_accepted_request(server: Server, echo: str) -> None:
    """Ray's process around an instance gets SIGTERM, as from who ends a node's processes."""
    ready_copies(server, echo, 4)
    copy, actor = next(iter(actors_of(server, echo).items()))
    with Load(server.port, f"/endpoints/{echo}/invocations") as load:
        wait_until(lambda: load.answered > 100, "load", 60)
        os.kill(actor, signal.SIGTERM)
        wait_until(
            lambda: copy not in {one["copy"] for one in server.copies(echo)},
            "the loss of the copy seen",
            60,
        )
        ready_copies(server, echo, 4)
        answered = load.answered
        wait_until(lambda: load.answered > answered + 100, "answers afterwards", 60)
    assert load.statuses == {200: load.answered}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    wait_until(lambda: not alive(actor), "the end of the actor's process", 60)


def test_a_job_runs_where_all_nodes_are_this_machine(
    server: Server, cluster: RayCluster, echo: str, tmp_path: Path
) -> None:
    site = TransformSite(server, tmp_path)
    source = site.put("in/a.csv", ["1", "2"])
    cluster.add(1)
    site.begin("here", echo, source)
    ended = site.ended("here")
    assert ended["TransformJobStatus"] == "Completed", ended
    assert site.outputs("here") == {"a.csv.out": "1\n2\n"}


def test_a_disk_is_shared_by_nodes_of_this_machine_alone(
    cluster: RayCluster, tmp_path: Path
) -> None:
    command = [
        str(python_of("ray")), str(SCRIPTS / "ray_disks.py"), cluster.address, str(tmp_path)
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        command, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=120
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "as it is": True,
        "another host": False,
        "another host that is gone": True,
        "another name": False,
        "another host of the same name": False,
        "one by IPv6": True,
    }


def test_a_server_that_is_killed_leaves_nothing_on_the_nodes(
    cluster: RayCluster, server: Server, echo: str
) -> None:
    pids = [copy["pid"] for copy in server.copies(echo)]
    assert pids
    server.kill()
    wait_until(lambda: not any(map(alive, pids)), "the end of its instances", 90)
    server.start()
    ready_copies(server, echo, 4, seconds=240)


def test_keys_are_in_no_log_and_no_command_line(server: Server, cluster: RayCluster) -> None:
    texts = [server.log(), cluster.log_path.read_text()]
    for commands in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            texts.append(commands.read_text(errors="replace"))
        except OSError:  # it has ended
            continue
    assert not any("PRIVATE KEY" in text for text in texts)


def test_a_server_on_no_node_reaches_the_cluster_by_rays_client(
    cluster: RayCluster, tmp_path: Path
) -> None:
    server = Server(tmp_path / "state", "--fleet", cluster.client, python=str(python_of("ray")))
    server.start()
    try:
        server.deploy("remote", python_model(tmp_path / "model", ECHO), wait=False)
        server.wait_in_service("remote", seconds=240)
        assert server.post("/endpoints/remote/invocations", b"[2.0]") == (200, b"[2.0]")
    finally:
        assert server.stop() == 0, server.log()


def test_a_server_that_is_told_to_end_answers_what_is_in_flight(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Ray's core has a handler of its own for SIGTERM, by which a process is aborted after 3 s."""
    server = server_on(cluster, tmp_path / "state").start()
    try:
        server.deploy("slow", python_model(tmp_path / "model", SLOW), wait=False)
        server.wait_in_service("slow", seconds=240)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(server.post, "/endpoints/slow/invocations", b"[3.0]")
            wait_until(
                lambda: any(copy["outstanding"] for copy in server.copies("slow")),
                "the request on its copy",
                60,
            )
            assert server.stop() == 0, server.log()
            assert asked.result() == (200, b"[3.0]")
    finally:
        server.kill()


def test_a_signal_is_ours_at_every_moment_of_a_connection(cluster: RayCluster) -> None:
    command = [str(python_of("ray")), str(SCRIPTS / "ray_signals.py"), cluster.address, "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    sent = 0
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        while not select.select([process.stdout], [], [], 0.2)[0]:
            process.send_signal(signal.SIGTERM)
            sent += 1
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert int(told) >= sent // 2, "signals of the same kind that wait are one"


def test_a_call_of_a_client_that_gave_up_fails_as_one_of_a_cluster_that_is_gone() -> None:
    """Ray raises a plain `Exception` then, in the middle of a server's end, too."""
    command = [str(python_of("ray")), str(SCRIPTS / "ray_given_up.py")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (told.stdout.strip(), told.returncode) == ("ConnectionError", 0), told.stderr


def test_a_server_that_is_told_to_end_while_its_cluster_goes_away_ends(tmp_path: Path) -> None:
    """Ray's client tries for half a minute to get back to a head that is gone, and no call of it
    starts a cluster of its own on the server's machine, as Ray's calls do by themselves."""
    with cluster_of(tmp_path, "2") as lost:
        server = Server(tmp_path / "state", "--fleet", lost.client, python=str(python_of("ray")))
        server.start()
        try:
            server.deploy("remote", python_model(tmp_path / "model", ECHO), wait=False)
            server.wait_in_service("remote", seconds=240)
            lost.close()
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(150) == 0, server.log()
            assert "Token authentication" not in server.log(), "it has begun a cluster"
        finally:
            server.kill()
