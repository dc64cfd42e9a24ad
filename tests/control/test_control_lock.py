"""`control/state_dir.py`: one server per state directory, and no stale locks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.control.state_dir import StateDirLock
from penstock.errors import CallerError, NotNowError

HOLDER = """
import sys
from pathlib import Path
from penstock.control.state_dir import StateDirLock
lock = StateDirLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_second_server_is_told_who_the_first_is(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "s")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(CallerError) as raised:
        StateDirLock(tmp_path / "s")
    assert raised.value.code == "state-dir-in-use"
    assert f"(pid {holder.pid})" in raised.value.message
    holder.kill()  # the operating system frees it
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    lock = StateDirLock(tmp_path / "s")
    assert (tmp_path / "s" / "lock").read_text() == f"{os.getpid()}\n"
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    lock.release()
    lock.release()
    StateDirLock(tmp_path / "s").release()


def test_a_directory_of_others_keeps_its_mode(tmp_path: Path) -> None:
    """`--state-dir /tmp`, run by root, must not lock everybody out of /tmp."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    (shared / "somebody's").touch()
    StateDirLock(shared).release()
    assert shared.stat().st_mode & 0o777 == 0o755
    empty = tmp_path / "empty"
    empty.mkdir()
    empty.chmod(0o755)
    StateDirLock(empty).release()
    assert empty.stat().st_mode & 0o777 == 0o700
    empty.chmod(0o755)  # ours by now: made private again
    StateDirLock(empty).release()
    assert empty.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_can_not_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotNowError) as raised:
        StateDirLock(tmp_path / "file" / "below")
    assert raised.value.code == "state-not-writable"
