"""Captured calls on disks and in stores: whole files, whole lines, within bounds."""

from __future__ import annotations

import json
import logging
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kit.gateway import run
from tests.kit.object_server import ObjectServer
from tests.kit.polling import until, wait_until

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import SystemClock
from penstock.config import LimitConfig
from penstock.core.backoff import Backoff
from penstock.core.capture.queue import CaptureQueueSpec
from penstock.core.deployment.deployment import CaptureSpec
from penstock.errors import NotNowError
from penstock.gateway.dispatch.capture_records import CaptureRecord
from penstock.jobs.asynchronous.objects import Objects
from penstock.jobs.capture.driver import CaptureDriver, queue_spec
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.wire import frames

pytestmark = pytest.mark.loop(by=run)

#: Each record is a file, tried twice.
SPEC = CaptureQueueSpec(
    bytes_max=1 << 20,
    endpoint_bytes_max=1 << 19,
    file_bytes_max=1,
    file_records_max=1,
    file_wait_s=0.05,
    tries_max=2,
    writes_max=4,
    backoff=Backoff(pause_s_first=0.01, pause_s_max=0.01),
)
META = frames.encode_request_meta(
    frames.RequestMeta("text/csv", custom_attributes="a=b", inference_id="mine")
)
ANSWER = frames.encode_reply_meta(frames.ReplyMeta("application/json"))


class Recorder(VariantRecorder):
    """Its counts of data capture."""

    def __init__(self) -> None:
        super().__init__("shop", "blue")

    @property
    def counts(self) -> Counter[tuple[str, str]]:
        return Counter(self._pending.captures)


def record(destination: str, recorder: VariantRecorder, request: bytes = b"1,2") -> CaptureRecord:
    spec = CaptureSpec(destination_uri=destination, percentage=100)
    return CaptureRecord(spec, "shop", "blue", recorder, META, ANSWER, request, (b"[", b"7]"))


def driver(spec: CaptureQueueSpec = SPEC, objects: Any = None) -> CaptureDriver:
    made = CaptureDriver(spec, objects or Objects(ArtifactSettings()), SystemClock())
    made.start()
    return made


def files_in(folder: Path, pattern: str = "*") -> list[Path]:
    return [path for path in folder.rglob(pattern) if path.is_file()]


def lines(folder: Path) -> list[dict[str, Any]]:
    """Of all files, each of which has to be whole."""
    texts = [path.read_text() for path in files_in(folder)]
    assert all(text.endswith("\n") for text in texts)
    return [json.loads(line) for text in texts for line in text.splitlines()]


async def test_calls_of_some_seconds_share_a_file_below_their_variant_and_hour(
    tmp_path: Path,
) -> None:
    made, recorder = driver(replace(SPEC, file_bytes_max=1 << 20, file_records_max=9)), Recorder()
    for request in (b"1,2", b"\xff"):
        made.put(record(tmp_path.as_uri() + "/", recorder, request))
    await until(lambda: recorder.counts["written-bytes", ""], "the file")
    [file] = files_in(tmp_path)
    name = r"shop/blue/\d{4}/\d\d/\d\d/\d\d/\d\d-\d\d-\d{3}-[0-9a-f-]{36}\.jsonl"
    assert re.fullmatch(name, str(file.relative_to(tmp_path)))
    first, second = lines(tmp_path)
    assert first["captureData"] == {
        "endpointInput": {
            "observedContentType": "text/csv",
            "mode": "INPUT",
            "data": "1,2",
            "encoding": "CSV",
        },
        "endpointOutput": {
            "observedContentType": "application/json",
            "mode": "OUTPUT",
            "data": "[7]",
            "encoding": "JSON",
        },
    }
    assert second["captureData"]["endpointInput"]["encoding"] == "BASE64"
    about = [one["eventMetadata"] for one in (first, second)]
    assert [(one["inferenceId"], one["customAttributes"]) for one in about] == 2 * [
        ("mine", ["a=b"])
    ]
    assert about[0]["eventId"] != about[1]["eventId"]
    size = file.stat().st_size
    assert recorder.counts == {("taken", ""): 2, ("written-bytes", ""): size}
    await made.close()


async def test_objects_of_s3_are_whole_too(s3: ObjectServer) -> None:
    recorder = Recorder()
    made = driver(objects=Objects(ArtifactSettings(s3_endpoint=s3.url)))
    made.put(record("s3://b/some/prefix", recorder))
    await until(lambda: recorder.counts["written-bytes", ""], "the object")
    [(key, body)] = s3.objects.items()
    assert key.startswith("/b/some/prefix/shop/blue/")
    assert json.loads(body)["eventVersion"] == "0"
    await made.close()


class AwayStore:
    """Fails for one destination as long as it is told to."""

    def __init__(self) -> None:
        self.away = True
        self.tried: list[str] = []
        self.written: list[bytes] = []

    def write(self, uri: str, data: bytes, *, draft: str, content_type: str = "") -> None:
        self.tried.append(uri)
        if self.away and uri.startswith("s3://away/"):
            raise NotNowError("output-unreachable", "No answer.")
        self.written.append(data)


async def test_a_store_that_is_away_is_said_once_tried_again_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "penstock.jobs.capture.driver")
    store, ill, well = AwayStore(), Recorder(), Recorder()
    made = driver(objects=store)
    for _ in range(3):
        made.put(record("s3://away/p", ill))
    made.put(record("s3://here/p", well))
    await until(lambda: ill.counts["dropped", "not-written"] == 3, "the drops")
    assert ill.counts["write-failed", "output-unreachable"] == 6
    assert len({uri for uri in store.tried if "away" in uri}) == 3, "a try again has the same name"
    assert (well.counts["taken", ""], len(store.written)) == (1, 1)
    [failing] = made.snapshot()["failing"]
    assert (failing["endpoint"], failing["error"]["code"]) == ("shop", "output-unreachable")
    store.away = False
    made.put(record("s3://away/p", ill))
    await until(lambda: ill.counts["written-bytes", ""], "the file")
    assert made.snapshot() == {"bytes": 0, "endpoints": [], "failing": []}
    assert [one.levelname for one in caplog.records] == ["WARNING", "INFO"]
    await made.close()


async def test_a_disk_with_too_little_free_space_is_left_as_it_is(tmp_path: Path) -> None:
    recorder = Recorder()
    made = driver(objects=Objects(ArtifactSettings(), free_bytes_min=1 << 60))
    made.put(record(tmp_path.as_uri(), recorder))
    await until(lambda: recorder.counts["dropped", "not-written"], "the drop")
    assert recorder.counts["write-failed", "output-unreachable"] == 2
    assert files_in(tmp_path) == []
    await made.close()


class HangingStore:
    """Writes nothing until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def write(self, uri: str, data: bytes, *, draft: str, content_type: str = "") -> None:
        assert self.let_go.wait(30)


async def test_while_a_store_hangs_memory_is_bounded_and_nobody_waits() -> None:
    store, recorder = HangingStore(), Recorder()
    made = driver(objects=store)
    for _ in range(1000):
        made.put(record("s3://b/p", recorder, b"x" * 1000))
    held = made.snapshot()["bytes"]
    assert 0.9 * SPEC.endpoint_bytes_max < held <= SPEC.endpoint_bytes_max
    dropped = recorder.counts["dropped", "queue-full"]
    assert 1000 - 600 < dropped < 1000 - 300
    assert made.reserve(SPEC.bytes_max - held)
    assert not made.reserve(1)
    store.let_go.set()
    await made.close()


async def test_the_end_writes_what_waits(tmp_path: Path) -> None:
    made, recorder = driver(replace(SPEC, file_records_max=9, file_bytes_max=99999)), Recorder()
    made.put(record(tmp_path.as_uri(), recorder))
    await made.close()
    await made.close()
    assert len(lines(tmp_path)) == 1
    made.put(record(tmp_path.as_uri(), recorder))
    assert recorder.counts["dropped", "stopping"] == 1


async def test_a_record_that_can_not_be_read_costs_only_itself(tmp_path: Path) -> None:
    made, recorder = driver(replace(SPEC, file_records_max=2, file_bytes_max=99999)), Recorder()
    made.put(record(tmp_path.as_uri(), recorder)._replace(reply_meta=b"{"))
    made.put(record(tmp_path.as_uri(), recorder))
    await until(lambda: recorder.counts["written-bytes", ""], "the file")
    assert len(lines(tmp_path)) == 1
    assert recorder.counts["dropped", "unreadable"] == 1
    await made.close()


def test_the_bounds_of_a_process_are_its_limits() -> None:
    spec = queue_spec(LimitConfig(capture_bytes_max=1 << 20))
    assert (spec.bytes_max, spec.endpoint_bytes_max) == (1 << 20, 1 << 19)


WRITES = """
import asyncio, sys
from dataclasses import replace
from tests.jobs.test_capture_driver import SPEC, Recorder, driver, record

async def main():
    by_count = replace(SPEC, file_records_max=50, file_bytes_max=1 << 20, file_wait_s=3600.0)
    made, recorder = driver(by_count), Recorder()
    while True:
        made.put(record(sys.argv[1], recorder, b"x" * 3000))
        await asyncio.sleep(0)

asyncio.run(main())
"""


@pytest.mark.parametrize("files", [1, 7])
def test_a_process_that_is_killed_leaves_whole_lines(tmp_path: Path, files: int) -> None:
    def whole() -> list[Path]:  # drafts have names of another form
        return files_in(tmp_path, "[0-9]*.jsonl")

    process = subprocess.Popen([sys.executable, "-c", WRITES, tmp_path.as_uri()])
    try:
        wait_until(lambda: len(whole()) >= files, "files")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    for file in whole():
        text = file.read_text()
        assert text.endswith("\n")
        assert [json.loads(line)["eventVersion"] for line in text.splitlines()] == ["0"] * 50


async def test_what_must_not_be_kept_is_not_written(tmp_path: Path) -> None:
    patterns = (r"\d{4}-\d{4}", "a=")
    objects = Objects(ArtifactSettings())
    made, recorder = CaptureDriver(SPEC, objects, SystemClock(), patterns), Recorder()
    made.start()
    made.put(record(tmp_path.as_uri(), recorder, b"card 1234-5678, card 8765-4321"))
    await until(lambda: recorder.counts["written-bytes", ""], "the file")
    [found] = lines(tmp_path)
    assert found["captureData"]["endpointInput"]["data"] == "card [redacted], card [redacted]"
    assert found["eventMetadata"]["customAttributes"] == ["[redacted]b"]
    await made.close()
