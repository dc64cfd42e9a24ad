"""The database behind a disk that is full or broken: by the kernel's own limits, at every page.

SQLite is trusted with its journal; what is tried here is what we ask of it (a commit that was
answered is on the disk), how its failures are told, and that they pass with their cause.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.control.store.store import Store
from penstock.errors import PenstockError

#: Writes models until the file size limit is met, lifts the limit, and writes again. The kernel
#: fails each write beyond RLIMIT_FSIZE with EFBIG, which SQLite reports as an I/O error.
LIMITED = """
import json, resource, signal, sys
from pathlib import Path
from penstock.control.store.store import Store
from penstock.errors import PenstockError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
HARD = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
told = []
for size in range(*json.loads(sys.argv[2])):
    folder = Path(sys.argv[1]) / f"{size}"
    made, error = [], None
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, HARD))
    store = None
    try:
        store = Store(folder)
        for number in range(5):
            store.create_model(f"m{number}", {"x": "y" * 70}, arn="a", now=1.0)
            made.append(f"m{number}")
    except PenstockError as failed:
        error = [failed.code, failed.status, failed.hint]
    resource.setrlimit(resource.RLIMIT_FSIZE, (HARD, HARD))
    again = store if store is not None else Store(folder)
    again.create_model("afterwards", {}, arn="a", now=2.0)
    again.close()
    told.append({"size": size, "made": made, "error": error})
print(json.dumps(told))
"""

#: Opens the database with ever more descriptors to spare, until it can be opened and written.
FEW_DESCRIPTORS = """
import json, os, resource, sys
from pathlib import Path
from penstock.control.store.store import Store
from penstock.errors import PenstockError

Store(Path(sys.argv[1]) / "warm").close()
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
used = len(os.listdir("/proc/self/fd")) - 1
told = []
for spare in range(0, 12):
    folder = Path(sys.argv[1]) / f"{spare}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + spare, hard))
    error, store = None, None
    try:
        store = Store(folder)
        store.create_model("m", {}, arn="a", now=1.0)
    except PenstockError as failed:
        error = [failed.code, failed.status, failed.hint]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if store is not None:
        store.close()
    again = Store(folder)
    again.create_model("afterwards", {}, arn="a", now=2.0)
    again.close()
    told.append(error)
print(json.dumps(told))
"""

NOT_WRITABLE = ["state-not-writable", 503, "Free disk space, or correct the permissions."]


def run(code: str, *args: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def models(folder: Path) -> set[str]:
    """What is recorded, and that the file is sound."""
    with sqlite3.connect(folder / "penstock.db") as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return {name for (name,) in database.execute("SELECT name FROM models")}


def test_a_commit_that_was_answered_is_synced(tmp_path: Path) -> None:
    """WAL alone syncs at checkpoints only: FULL syncs the log with each commit."""
    store = Store(tmp_path)
    with store.read() as connection:
        pragmas = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    store.close()
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_whichever_page_can_not_be_written_nothing_answered_is_lost(tmp_path: Path) -> None:
    """From the first byte of the file to one that is never reached, five pages at a time."""
    told = run(LIMITED, str(tmp_path), json.dumps([0, 600_000, 20_000]))
    failed = [one for one in told if one["error"] is not None]
    assert len(failed) > 4
    assert failed != told, "the largest limit was met, too"
    for one in told:
        assert one["error"] in (None, NOT_WRITABLE), one
        assert models(tmp_path / str(one["size"])) == {*one["made"], "afterwards"}, one


def test_a_full_disk_is_told_and_passes(tmp_path: Path) -> None:
    """`database or disk is full`, and reading goes on meanwhile."""
    store = Store(tmp_path)
    store.create_model("first", {}, arn="a", now=1.0)
    with store.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
    with pytest.raises(PenstockError) as caught:
        store.create_model("large", {"x": "y" * 100_000}, arn="a", now=1.0)
    assert [caught.value.code, caught.value.status, caught.value.hint] == NOT_WRITABLE
    assert store.describe_model("first").name == "first"
    with store.read() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")
    store.create_model("large", {"x": "y" * 100_000}, arn="a", now=1.0)
    store.close()
    assert models(tmp_path) == {"first", "large"}


def test_without_descriptors_the_store_says_so_and_opens_once_there_are_some(
    tmp_path: Path,
) -> None:
    told = run(FEW_DESCRIPTORS, str(tmp_path))
    assert told[0] == NOT_WRITABLE
    assert told[-1] is None
    assert all(error in (None, NOT_WRITABLE) for error in told), told


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.7, 1.0])
def test_a_log_that_was_cut_costs_only_what_was_not_answered(tmp_path: Path, kept: float) -> None:
    """A copy of the files as a power cut may leave them: the log ends in the middle of a commit."""
    state, cut = tmp_path / "state", tmp_path / "cut"
    store = Store(state)
    for number in range(5):
        store.create_model(f"m{number}", {}, arn="a", now=1.0)
    log = state / "penstock.db-wal"
    answered = log.stat().st_size
    store.create_model("under way", {"x": "y" * 20_000}, arn="a", now=1.0)
    shutil.copytree(state, cut)
    size = log.stat().st_size
    store.close()
    with (cut / "penstock.db-wal").open("r+b") as file:
        file.truncate(answered + int((size - answered) * kept))
    again = Store(cut)
    again.create_model("afterwards", {}, arn="a", now=2.0)
    again.close()
    found = models(cut) - {"afterwards"}
    expected = {f"m{number}" for number in range(5)}
    assert found == (expected | {"under way"} if kept == 1.0 else expected)
