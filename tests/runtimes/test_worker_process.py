"""A worker process seen from the instance, and how one that died is started again."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from tests.kit.cancelling import cancelled_after
from tests.kit.polling import until

from penstock.artifacts.description.description import ModelDescription
from penstock.errors import ModelError, PenstockError
from penstock.runtimes.base import LoadContext
from penstock.runtimes.workers.process import WorkerProcess
from penstock.runtimes.workers.supervised import Supervised

#: A worker that answers INIT, sends one message more, and ends.
READY_AND_GONE = """
import os, socket, sys
from penstock.runtimes.workers import wire
channel = socket.socket(fileno=int(sys.argv[1]))
next(wire.read_messages(channel.makefile("rb")))
channel.sendall(wire.message(wire.READY, b"{}") + wire.message(99, b""))
os._exit(3)
"""


def context_of(folder: Path) -> LoadContext:
    return LoadContext(
        model_dir=folder, description=ModelDescription(runtime="python"), endpoint_name="e",
        variant_name="v", cores=1.0, memory_bytes_max=0, startup_timeout_s=60.0,
    )  # fmt: skip


async def test_a_worker_that_is_ready_and_gone_at_once_has_not_started(tmp_path: Path) -> None:
    """Its end is seen before `start` goes on: a lane must not be given a worker that is dead."""
    (tmp_path / "ready_and_gone.py").write_text(READY_AND_GONE)
    gone: list[PenstockError] = []

    def hear(kind: int, count: int, payload: bytes) -> None:
        assert worker.pid is not None
        os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)

    worker = WorkerProcess(context_of(tmp_path), hear, gone.append)
    with pytest.raises(ModelError, match="e/v: the model's process exited with status 3"):
        await worker.start("ready_and_gone", {}, {"PYTHONPATH": str(tmp_path)}, None)
    assert not worker.write(b"")
    assert gone == []


#: A worker that answers INIT and reads on until the end.
SERVES = """
import socket, sys
from penstock.runtimes.workers import wire
channel = socket.socket(fileno=int(sys.argv[1]))
messages = wire.read_messages(channel.makefile("rb"))
next(messages)
channel.sendall(wire.message(wire.READY, b"{}"))
for message in messages:
    pass
"""


async def test_a_worker_that_was_stopped_is_ended_as_if_it_had_died(tmp_path: Path) -> None:
    """SIGSTOP: it lives, its socket stands, and whatever it is sent is answered by nobody."""
    (tmp_path / "serves.py").write_text(SERVES)
    gone: list[PenstockError] = []
    worker = WorkerProcess(context_of(tmp_path), lambda *message: None, gone.append)
    await worker.start("serves", {}, {"PYTHONPATH": str(tmp_path)}, None)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    await until(lambda: bool(gone))
    assert gone[0].code == "worker-died"
    assert not worker.write(b"")


class ServedWorker:
    """Something that serves and has an end."""

    pid = 1

    def __init__(self) -> None:
        self.ended: list[str] = []

    def kill(self) -> None:
        self.ended.append("killed")

    async def close(self) -> None:
        self.ended.append("closed")


class ListeningWorker(Supervised[ServedWorker]):
    """`spawned` holds each that was started; a start waits for `may_start`."""

    def __init__(self, context: LoadContext) -> None:
        self.told: list[str] = []
        super().__init__(context, self, serves=(2, 3))
        self.spawned: list[ServedWorker] = []
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.starting = asyncio.Event()

    async def spawn(self) -> ServedWorker:
        self.starting.set()
        await self.may_start.wait()
        self.spawned.append(ServedWorker())
        return self.spawned[-1]

    def lane_lost(self, lane: int, error: PenstockError) -> None:
        self.told.append(f"lost {lane}")

    def lane_ready(self, lane: int) -> None:
        self.told.append(f"ready {lane}")

    def lane_failed(self, lane: int, error: PenstockError) -> None:
        self.told.append(f"failed {lane}: {error.message}")


async def test_its_lanes_hear_that_it_was_lost_and_that_another_serves(tmp_path: Path) -> None:
    kept = ListeningWorker(context_of(tmp_path))
    await kept.begin()
    assert (kept.process, kept.told) == (kept.spawned[0], [])
    kept.gone(ModelError("worker-died", "it died"))
    assert kept.process is None
    await until(lambda: kept.process is not None)
    assert kept.process is kept.spawned[1]
    assert kept.told == ["lost 2", "lost 3", "ready 2", "ready 3"]
    await kept.close()
    assert kept.spawned[1].ended == ["closed"]


async def test_one_that_dies_five_times_without_serving_is_given_up(tmp_path: Path) -> None:
    kept = ListeningWorker(context_of(tmp_path))
    await kept.begin()
    for death in range(5):
        await until(lambda: kept.process is not None)
        kept.gone(ModelError("worker-died", f"death {death}"))
    assert kept.told[-2:] == ["failed 2: death 4", "failed 3: death 4"]
    assert len(kept.spawned) == 5


@pytest.mark.parametrize("end", ["close", "kill"])
async def test_a_start_that_comes_too_late_leaves_nothing_behind(tmp_path: Path, end: str) -> None:
    kept = ListeningWorker(context_of(tmp_path))
    await kept.begin()
    kept.gone(ModelError("worker-died", "it died"))
    kept.may_start.clear()
    kept.starting.clear()
    await kept.starting.wait()
    if end == "close":
        await kept.close()
    else:
        kept.kill()
    kept.may_start.set()
    await until(lambda: kept._restart is not None and kept._restart.done())
    assert [each.ended for each in kept.spawned[1:]] == ([["closed"]] if end == "kill" else [])
    assert (kept.process, kept.told) == (None, ["lost 2", "lost 3"])


#: A worker that answers nothing and does not end when its socket is closed.
MUTE = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(600)
"""


async def test_a_start_that_is_cancelled_on_and_on_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text(MUTE)
    worker = WorkerProcess(context_of(tmp_path), lambda *message: None, lambda error: None)
    start = worker.start("mute", {}, {"PYTHONPATH": str(tmp_path)}, None)
    assert await cancelled_after(8, start)
    assert worker.pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)
