"""Images that do harm: each ends as a clear reason, or as errors of its own endpoint, costs the
endpoint beside it no request, and leaves nothing behind."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.container_images import (
    ENGINE,
    containers,
    containers_of,
    engine,
    engine_says,
    image,
    image_for_another_machine,
)
from tests.kit.load import Load
from tests.kit.polling import wait_until
from tests.kit.servers import Server, up

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

#: The user of the neighbour and of all bad images: a kernel that counted the processes of a user
#: over all containers would let one take them from another.
USER = "1234"
MEMORY_MIB = 1024  #: of ml.local.small
#: Whether a place may be written to, and how much it may hold.
PLACES = {
    "in-memory": ("/tmp", "/var/tmp", "/run", "/dev/shm", "/data"),
    "closed": ("/", "/etc", "/servers", "/opt", "/opt/ml", "/opt/ml/model", "/mine"),
}
#: Of the error for a name of which the engine has no image.
HERE_IS_RUN = f"what `{ENGINE} images` lists here is run"
#: s for a start; the service's least.
START_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    engine()
    with up(tmp_path_factory.mktemp("bad")) as server:
        server.client("sagemaker").create_model(
            ModelName="neighbour", PrimaryContainer={"Image": image(USER)}
        )
        server.endpoint("neighbour")
        yield server


@pytest.fixture(autouse=True)
def beside(server: Server) -> Iterator[set[str]]:
    """An endpoint of the same server is called all the time, and must not notice. Ids of containers
    that a test adds must not be found anywhere afterwards."""
    volumes = engine_says("volume", "ls", "--quiet")
    ids: set[str] = set()
    with Load(server.port, "/endpoints/neighbour/invocations", workers=1) as load:
        yield ids
        seen = load.answered
        wait_until(lambda: load.answered > seen, "the neighbour answers", 60)
    assert load.statuses.keys() == {200}, load.errors
    assert (load.broken, load.wrong) == (0, [])
    [neighbour] = containers_of("neighbour")
    wait_until(lambda: not others_of(neighbour), "no container is left", 60)
    wait_until(lambda: not [each for each in ids if left_of(each)], "no trace is left", 60)
    assert engine_says("volume", "ls", "--quiet") == volumes


def others_of(container: str) -> set[str]:
    """The other containers of its server."""
    owners = containers("penstock.owner")
    return {name for name, owner in owners.items() if owner == owners[container]} - {container}


def left_of(container: str) -> list[str]:
    """Processes and mounts of a container, by its id."""
    found = []
    for place in (*Path("/proc").glob("[0-9]*/cgroup"), Path("/proc/self/mounts")):
        try:
            text = place.read_text()
        except OSError:
            continue
        if container in text:
            found.append(str(place))
    return found


def begin(server: Server, name: str, **container: Any) -> None:
    given = {"Image": image(USER, "bad_image_server.py", "VOLUME /data")} | container
    server.client("sagemaker").create_model(ModelName=name, PrimaryContainer=given)
    server.endpoint(name, wait=False, ContainerStartupHealthCheckTimeoutInSeconds=START_S)


def end(server: Server, name: str) -> None:
    server.delete(name)
    server.client("sagemaker").delete_model(ModelName=name)


def bad(name: str) -> dict[str, Any]:
    return {"Environment": {"BAD": name}}


#: What does not start: name -> (container, what the reason says).
NEVER_READY: dict[str, tuple[dict[str, Any], str]] = {
    "ends-at-once": (
        bad("exit"),
        r"ended with status 0 before /ping answered.*the bad server begins",
    ),
    "fills-memory": (bad("fill"), r"killed.* its limit of memory, \d+ MiB"),
    "fork-bomb": (bad("fork-bomb"), "killed.* its limit of memory|nothing answers on port 8080"),
    "ping-never": (bad("ping-never"), "/ping did not answer within 2 s.*the bad server begins"),
    "ping-slow": (bad("ping-slow"), "/ping did not answer within 2 s"),
    "ping-endless": (bad("ping-endless"), "/ping did not answer within 2 s"),
    "ping-huge": (bad("ping-huge"), "/ping answered 502: .*bytes"),
    "ping-garbage": (bad("ping-garbage"), "/ping answered 502: not HTTP"),
    "ping-closed": (bad("ping-close"), "nothing answers on port 8080 of the container yet"),
}
TAKE_ALL = ("fills-memory", "fork-bomb")


def test_what_never_gets_ready_says_why(server: Server) -> None:
    """Most take the whole time that they are given, so they are begun at once; but what takes all
    of its cores would keep others from showing their own fault within theirs."""
    alone = [[name] for name in TAKE_ALL]
    reasons = {}
    for group in ([name for name in NEVER_READY if name not in TAKE_ALL], *alone):
        for name in group:
            begin(server, name, **NEVER_READY[name][0])
        for name in group:
            reasons[name] = server.settled(name, seconds=START_S * 5)["FailureReason"]
            end(server, name)
    wrong = {
        name: reasons[name]
        for name, (_, words) in NEVER_READY.items()
        if not re.search(words, reasons[name], re.DOTALL)
    }
    assert not wrong


def images_that_are_none() -> dict[str, tuple[str, str]]:
    entryless = image(USER, "")
    return {
        "entryless": (entryless, "has no entry point, so `serve` itself was started"),
        "other-machine": (image_for_another_machine(), "it is made for linux/arm64"),
        "upper-case": ("UPPER/Case", HERE_IS_RUN),
        "no-name": (":::", HERE_IS_RUN),
        "an-option": ("--privileged", HERE_IS_RUN),
        "a-path": ("../../etc/passwd", HERE_IS_RUN),
        "other-digest": (f"{entryless.partition(':')[0]}@sha256:{'0' * 64}", HERE_IS_RUN),
        "no-digest": (f"{entryless}@sha256:12", HERE_IS_RUN),
    }


def test_names_that_are_no_images_are_the_reason(server: Server) -> None:
    named = images_that_are_none()
    for name, (image_name, _) in named.items():
        begin(server, name, Image=image_name)
    for name, (_, words) in named.items():
        reason = server.settled(name, seconds=120)["FailureReason"]
        assert words in reason, (name, reason)
        end(server, name)


#: What starts, and answers what can't be: name -> (status, what the error says).
ANSWERS_BADLY: dict[str, tuple[int, str]] = {
    "head": (424, "not HTTP: Invalid"),
    "two-lengths": (424, "not HTTP"),
    "head-endless": (424, "head|header|fields"),
    "endless": (424, "did not answer within 3 s"),
    "endless-slow": (424, "did not answer within 3 s"),
    "never": (424, "did not answer within 3 s"),
    "close": (424, "ended while it had this request|without an answer"),
}


@pytest.mark.parametrize("name", ANSWERS_BADLY)
def test_what_answers_badly_has_an_error_of_its_own(
    server: Server, beside: set[str], name: str
) -> None:
    status, words = ANSWERS_BADLY[name]
    environment = {"BAD": name, "SAGEMAKER_MODEL_SERVER_TIMEOUT": "3"}
    begin(server, "answers", Environment=environment)
    server.wait_in_service("answers")
    beside.update(ids_of("answers"))
    answered, body = server.post("/endpoints/answers/invocations", b"hello")
    end(server, "answers")
    assert answered == status, body
    assert re.search(words, body.decode()), body


def ids_of(endpoint: str) -> list[str]:
    return [
        engine_says("container", "inspect", "--format", "{{.Id}}", name)
        for name in containers_of(endpoint)
    ]


@pytest.mark.parametrize("name", ["spam", "deaf", "thread-bomb", "spin"])
def test_what_takes_without_measure_serves_and_ends(
    server: Server, beside: set[str], name: str
) -> None:
    """It has what its instance has; what it prints does not fill the disk either."""
    begin(server, "takes", **bad(name))
    server.wait_in_service("takes")
    beside.update(ids_of("takes"))
    for _ in range(20):
        assert server.post("/endpoints/takes/invocations", b"hello") == (200, b"hello")
    logs = sum(each.stat().st_size for each in server.state_dir.rglob("*.log*"))
    assert logs < 500 * 2**20
    end(server, "takes")


def test_no_place_inside_takes_more_than_memory(server: Server, beside: set[str]) -> None:
    begin(server, "writes")
    server.wait_in_service("writes")
    beside.update(ids_of("writes"))
    seen = dict(json.loads(server.post("/endpoints/writes/invocations", b"fill")[1]))
    end(server, "writes")
    for place in PLACES["in-memory"]:
        mib, error = seen[place]
        assert 0 < mib <= MEMORY_MIB / 2, (place, mib)
        assert error == "ENOSPC", (place, error)
    for place in PLACES["closed"]:
        assert seen[place][0] == 0, (place, seen[place])
        assert seen[place][1] in ("EROFS", "ENOENT", "EACCES"), (place, seen[place])
