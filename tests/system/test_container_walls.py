"""What a container may do, as it finds that itself, and what is measured of it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.container_images import containers_of, engine, image
from tests.kit.polling import wait_until
from tests.kit.servers import Server, up

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

MIB = 2**20
READ_ONLY = str(errno.EROFS)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    engine()
    with up(tmp_path_factory.mktemp("walls")) as server:
        yield server


def create(server: Server, name: str, **members: Any) -> None:
    server.client("sagemaker").create_model(
        ModelName=name, **({"PrimaryContainer": {"Image": image()}} | members)
    )
    server.endpoint(name)


def does(server: Server, endpoint: str, what: str) -> Any:
    return server.invoke(endpoint, f"!{what}".encode())


def test_what_a_container_finds_inside(server: Server) -> None:
    """Of an image whose user is root, which has the most to lose."""
    create(server, "inside")
    facts = does(server, "inside", "facts")
    status = facts["status"]
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status[kind], 16) == 0, kind
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert facts["limits"]["processes"] == "4096"
    memory = int(facts["limits"]["memory"])
    assert 0 < memory < 1024 * MIB, "its instance has 1 GiB, and needs some itself"
    mounts = {line.split()[1]: line.split() for line in facts["mounts"]}
    assert "ro" in mounts["/"][3].split(",")
    for place in ("/tmp", "/var/tmp", "/run", "/dev/shm"):
        assert mounts[place][0] in ("tmpfs", "shm"), place
        size = next(each for each in mounts[place][3].split(",") if each.startswith("size="))
        held = int(size.removeprefix("size=").removesuffix("k")) * 1024
        assert held <= memory / 2 + 4096, "whole pages"
        assert does(server, "inside", f"write {place}/mine") == "written"
    for place in ("/mine", "/etc/passwd", "/opt/ml/model/mine", "/proc/sys/kernel/hostname"):
        assert does(server, "inside", f"write {place}") != "written", place
    assert does(server, "inside", "write /mine") == READ_ONLY
    assert facts["environment"]["XDG_CACHE_HOME"] == "/tmp/.cache"
    for what in ("mount", "unshare", "device"):
        assert does(server, "inside", f"try {what}") in ("EPERM", "EACCES"), what
    server.delete("inside")


def test_a_root_that_is_read_only_is_the_reason_and_may_be_opened(
    server: Server, tmp_path: Path
) -> None:
    environment = {"WRITES_FIRST": "/etc/server.properties"}
    writes = {"PrimaryContainer": {"Image": image(), "Environment": environment}}
    server.client("sagemaker").create_model(ModelName="writes", **writes)
    server.endpoint("writes", wait=False)
    reason = server.settled("writes")["FailureReason"]
    assert "Read-only file system: '/etc/server.properties'" in reason
    assert 'containers.root = "writable"' in reason
    server.delete("writes")
    toml = tmp_path / "open.toml"
    toml.write_text('[containers]\nroot = "writable"\n')
    with up(tmp_path, "--config", str(toml)) as opened:
        create(opened, "writes", **writes)
        assert does(opened, "writes", "write /etc/mine") == "written"
        opened.delete("writes")


def test_a_bound_that_the_storage_cannot_keep_is_the_reason(tmp_path: Path) -> None:
    """Where it can, the container is bounded; most machines of tests have no quotas."""
    toml = tmp_path / "bounded.toml"
    toml.write_text('[containers]\nroot = "writable"\nroot_gib = 1\n')
    with up(tmp_path, "--config", str(toml)) as bounded:
        bounded.client("sagemaker").create_model(
            ModelName="bounded", PrimaryContainer={"Image": image()}
        )
        bounded.endpoint("bounded", wait=False)
        described = bounded.settled("bounded")
        if described["EndpointStatus"] == "Failed":
            assert "storage has no quotas" in described["FailureReason"]
        else:
            assert does(bounded, "bounded", "fill /") <= 1024
        bounded.delete("bounded")
        assert not containers_of("bounded")


def test_what_a_container_takes_is_its_instances(server: Server) -> None:
    """Memory that its processes share counts once, files in memory count, and so does the time of
    processes that have ended."""
    create(server, "measured")
    wait_until(lambda: used(server, "memory") > 0, "a first sample", 60)
    before = used(server, "memory")
    does(server, "measured", "hold 150")
    share = 300 / 1024  # twice 150 MiB, of 1 GiB
    wait_until(lambda: used(server, "memory") - before > share - 0.05, "what it holds", 90)
    assert used(server, "memory") - before < share + 0.1
    busy = lambda: does(server, "measured", "burn 3") and used(server, "cpu") > 0.1  # noqa: E731
    wait_until(busy, "the time of its children", 90)

    def highest() -> float:
        percents = server.datapoints(
            "MemoryUtilization", "Maximum", namespace="/aws/sagemaker/Endpoints",
            EndpointName="measured", VariantName="all",
        )  # fmt: skip
        return max(percents, default=0.0)

    wait_until(lambda: highest() > 100 * share, "it is in CloudWatch, too", 150)
    assert highest() < 100 * (before + share + 0.1)
    server.delete("measured")


def used(server: Server, what: str) -> float:
    """The share of the instance's memory, or of its cores, as /metrics has it."""
    rows = [
        line
        for line in server.page().splitlines()
        if line.startswith(f"penstock_instance_{what}_ratio{{") and 'endpoint="measured"' in line
    ]
    return sum(float(row.rpartition(" ")[2]) for row in rows)
