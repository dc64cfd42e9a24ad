"""What an instance may take, and what it may leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.kit import model_files
from tests.kit.instances import instance
from tests.kit.polling import wait_until

from penstock.instance.memory import use as account
from penstock.instance.memory.use import MemoryLimit, MemoryUse
from penstock.instance.session_reaper import session_pids
from penstock.runtimes.workers.memory import own_bytes, tree_pids

#: Starts a program and forks, says who they are, and ends when it is told to.
PARENT = """
import os, subprocess, time
def model_fn(model_dir):
    return None
def predict_fn(data, model):
    if data["do"] == "end":
        os._exit(0)
    program = subprocess.Popen(["sleep", "600"]).pid
    forked = os.fork()
    if not forked:
        time.sleep(600)
    return [os.getpid(), program, forked]
"""


def ended(pids: list[int]) -> bool:
    def state(pid: int) -> str:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return "X"

    return all(state(pid) in "ZX" for pid in pids)


def test_what_a_worker_started_ends_with_it(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = running.client()
        client.load(1, model_files.code(tmp_path / "m", PARENT))
        pids = client.invoke(1, b'{"do": "start"}').json
        client.send(1, b'{"do": "end"}')
        wait_until(lambda: ended(pids), "the worker and its children have ended")


def test_nothing_of_an_instance_outlives_its_sigkill(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = running.client()
        client.load(1, model_files.code(tmp_path / "m", PARENT))
        pids = client.invoke(1, b'{"do": "start"}').json
        running.process.send_signal(signal.SIGKILL)
        wait_until(lambda: ended(pids), "all of its session have ended")
        running.process.wait(10)


def test_a_session_is_its_leader_and_what_it_started() -> None:
    assert os.getpid() in session_pids(os.getsid(0))


def test_memory_is_that_of_the_whole_tree(tmp_path: Path) -> None:
    with instance(tmp_path) as running:
        client = running.client()
        client.load(1, model_files.code(tmp_path / "m", PARENT))
        worker = client.control(op="status")["copies"][0]["workers"][0]["pid"]
        assert {running.process.pid, worker} <= set(tree_pids(running.process.pid))
        assert own_bytes(worker) > 2**20


def test_what_an_ended_container_leaves_to_the_kernel_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its first process has given its memory back, and no group names its children any more."""
    first, child = 2**22 + 1, 2**22 + 2  # no process has such an id
    sizes = {child: 2**30, first: 4096}
    monkeypatch.setattr(account, "adopted", {first})
    monkeypatch.setattr(account, "own_bytes", lambda pid: sizes.get(pid, 0))
    monkeypatch.setattr(account, "tree_pids", lambda pid: [pid, child] if pid == first else [pid])
    assert MemoryUse().look() == 2**30 + 4096, "it is alive, in no group of its own"
    sizes[first] = 0
    assert MemoryUse().look() == 0


def test_memory_beyond_the_limit_is_told_once_it_has_stayed() -> None:
    """One look may meet a passing peak."""
    told: list[str] = []
    limit = MemoryLimit(1, told.append)
    limit.look()
    assert told == []
    limit.look()
    limit.look()
    assert len(told) == 1
    assert "its instance has 0.00 GiB" in told[0]


def test_processes_are_looked_for_at_every_fourth_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between these, sizes of those found are read again, and what they say is never held against
    an instance before its processes were looked for."""
    own, child = os.getpid(), 2**22 + 1
    sizes, tree = {own: 50}, [own]
    walks: list[int] = []
    told: list[str] = []

    def walk(pid: int) -> list[int]:
        walks.append(pid)
        return list(tree)

    monkeypatch.setattr(account, "own_bytes", lambda pid: sizes.get(pid, 0))
    monkeypatch.setattr(account, "tree_pids", walk)
    use = MemoryUse(exempt=tuple)
    limit = MemoryLimit(100, told.append, use)

    def look(*, finds: bool, takes: int) -> None:
        walks.clear()
        limit.look()
        assert (bool(walks), use.model_bytes) == (finds, takes)

    look(finds=True, takes=50)
    tree.append(child)
    sizes[child] = 30
    for _ in range(3):
        look(finds=False, takes=50)
    look(finds=True, takes=80)
    sizes[own] = 60
    look(finds=False, takes=90)
    tree.remove(child)
    sizes[child] = 1000  # another process has this id now
    look(finds=True, takes=60)
    look(finds=False, takes=60)
    tree.append(child)
    look(finds=True, takes=1060)
    assert told == []
    look(finds=True, takes=1060)
    assert len(told) == 1


def test_a_compile_on_deploy_does_not_count(tmp_path: Path) -> None:
    """It takes several times what the model will, and none of it is the model's."""
    hungry = "import sys; taken = b'x' * 2**28; print('taken', flush=True); sys.stdin.read()"
    argv = [sys.executable, "-c", hungry]
    before_bytes = MemoryUse(exempt=tuple).look()  # a server that other tests use is below us, too
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"taken\n"
        bytes_max = before_bytes + 2**27
        counted: list[str] = []
        exempted: list[str] = []
        for told, pids in ((counted, ()), (exempted, (child.pid,))):
            use = MemoryUse(exempt=lambda pids=pids: pids)
            limit = MemoryLimit(bytes_max, told.append, use)
            limit.look()
            limit.look()
            assert use.own_bytes > bytes_max  # for whoever places it counts all the same
        child.kill()
    assert len(counted) == 1
    assert exempted == []


def test_no_limit_is_never_exceeded() -> None:
    told: list[str] = []
    limit = MemoryLimit(0, told.append)
    limit.look()
    limit.look()
    assert told == []


def test_an_instance_that_takes_more_than_its_memory_ends_and_says_so(tmp_path: Path) -> None:
    with instance(tmp_path, memory_bytes=2**20) as running:
        assert running.process.wait(20) == 1
        words = running.log.read_text().strip().splitlines()[-1]
        assert words.startswith("error[memory-limit]: the model takes 0.")
        assert words.endswith("Choose a larger instance type.")
