"""Outputs on a disk that is full for a while: a small file system in memory, enlarged later.

To mount one takes a user who may (root, mostly). Without, `tests/jobs` has the same with a store
that answers 503 and with calls that fail, and this file is skipped with the system's own reason.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kit.asynchronous import AsyncSite
from tests.kit.polling import wait_until
from tests.kit.python_models import python_model
from tests.kit.servers import Server
from tests.kit.transform import TransformSite

pytestmark = pytest.mark.system

REQUESTS = 60
ANSWER_BYTES = 100_000


class SmallDisk:
    """A file system of 2 MiB that a test may enlarge, or mount read-only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def mount(self, options: str) -> None:
        words = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")

    def remount(self, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)

    def is_full(self) -> bool:
        facts = os.statvfs(self.folder)
        return facts.f_bavail * facts.f_frsize < ANSWER_BYTES

    def unmount(self) -> None:
        if os.path.ismount(self.folder):
            subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "disk")
    disk.mount("size=2m")
    yield disk
    disk.unmount()


def asked_for(site: AsyncSite) -> None:
    for number in range(REQUESTS):
        body = {"number": number, "padding": ANSWER_BYTES}
        assert site.ask("later", body, f"{number}.out")


def outcomes(site: AsyncSite) -> list[str]:
    """The name of each answer and of each failure that is there."""
    return sorted([*site.answers(), *site.failures()])


def queued(site: AsyncSite, *states: str) -> int:
    queues = site.server.get("/admin/asynchronous")["queues"]
    return sum(int(one[state]) for one in queues for state in states)


def nothing_is_lost(site: AsyncSite) -> None:
    """What has no outcome is on record."""
    wait_until(
        lambda: queued(site, "backlog") == REQUESTS - len(outcomes(site)),
        "a record of what has no outcome",
        30,
    )


@pytest.mark.parametrize("restarted", [False, True], ids=["goes-on", "restarted"])
def test_each_request_has_one_outcome_once_the_disk_has_room(
    fresh_server: Server, tmp_path: Path, small_disk: SmallDisk, restarted: bool
) -> None:
    """Answers and failure objects lie on the full disk; a server that ends meanwhile forgets none
    of them."""
    site = AsyncSite(fresh_server, tmp_path)
    site.out, site.bad = small_disk.folder / "out", small_disk.folder / "bad"
    site.model()
    site.endpoint("later")
    asked_for(site)
    wait_until(small_disk.is_full, "a full disk", 60)

    nothing_is_lost(site)
    if restarted:
        fresh_server.kill()
        fresh_server.start()
        fresh_server.wait_in_service("later")
        nothing_is_lost(site)
    small_disk.remount("size=64m")
    wait_until(lambda: queued(site, "backlog") == 0, "an empty queue", 120)
    assert outcomes(site) == sorted(f"{number}.out" for number in range(REQUESTS))
    assert len(site.answers()) == REQUESTS, site.failures()


def test_a_disk_that_is_mounted_read_only_is_waited_for(
    fresh_server: Server, tmp_path: Path, small_disk: SmallDisk
) -> None:
    site = AsyncSite(fresh_server, tmp_path)
    site.out, site.bad = small_disk.folder / "out", small_disk.folder / "bad"
    site.model()
    site.endpoint("later")
    small_disk.remount("ro")
    assert site.ask("later", {"number": 3}, "three.out")
    assert site.ask("later", {"nmber": 3}, "broken.out")
    wait_until(lambda: queued(site, "unwritten", "put-off") == 2, "two that can't be written", 30)
    small_disk.remount("rw")
    wait_until(lambda: len(outcomes(site)) == 2, "both outcomes", 60)
    assert (list(site.answers()), list(site.failures())) == (["three.out"], ["broken-error.out"])


#: Each answer is 300 kB.
LONG = """
def model_fn(model_dir): return None
def input_fn(body, content_type): return body
def predict_fn(body, model): return body
def output_fn(body, accept): return b"x" * 300_000
"""


@pytest.mark.timeout(600)  # instances of jobs run on what others leave of the machine
@pytest.mark.parametrize("place", ["outputs", "parts"])
def test_a_transform_job_waits_for_a_full_disk_and_goes_on(
    fresh_server: Server, tmp_path: Path, place: str
) -> None:
    """The disk of its outputs, or that of the parts that they are put together from."""
    parts = fresh_server.state_dir / "jobs"
    disk = SmallDisk(tmp_path / "out" if place == "outputs" else parts)
    disk.mount("size=2m")
    try:
        site = TransformSite(fresh_server, tmp_path)
        site.model("long", python_model(tmp_path / "long", LONG))
        for name in "abc":
            site.put(f"in/{name}.csv", ["1", "2", "3"])  # 0.9 MB each
        site.begin("j", "long", site.uri("in"), BatchStrategy="SingleRecord")

        def waits() -> str:
            described = site.describe("j")
            assert described["TransformJobStatus"] == "InProgress", described
            told = described["PenstockProgress"]
            return told["WaitingMessage"] if told.get("Waiting") == "storage" else ""

        said = wait_until(waits, "a job that says what it waits for", 300)
        assert os.strerror(28) in said
        disk.remount("size=64m")
        described = site.ended("j", seconds=200)
        assert described["TransformJobStatus"] == "Completed", described
        outputs = site.outputs("j")
        assert sorted(outputs) == ["a.csv.out", "b.csv.out", "c.csv.out"]
        assert {len(text) for text in outputs.values()} == {3 * 300_001}
    finally:
        disk.unmount()
