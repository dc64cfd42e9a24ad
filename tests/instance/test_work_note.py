"""Who was at work when an instance died, as it left it written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from penstock.instance.models.work_note import WorkNote
from penstock.wire.work_note import SLOT_BYTES, NotedModel, at_work

A, B = NotedModel("team/a.tar.gz", "s1"), NotedModel("b", "")


def noted(path: Path) -> list[NotedModel]:
    return at_work(path.read_bytes())


def test_a_model_is_noted_while_it_works_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "work" / "i-1.1"
    note = WorkNote(path)
    assert not path.exists()  # an instance without native models leaves nothing
    a, b = note.mark(A), note.mark(B)
    assert noted(path) == [A, B]
    a.works(False)
    assert noted(path) == [B]
    a.works(True)
    b.remove()
    assert noted(path) == [A]
    b.works(True)  # it is another one's slot by now
    b.remove()
    assert noted(path) == [A]
    note.close()
    assert not path.exists()


def test_slots_are_used_again_and_there_is_no_bound(tmp_path: Path) -> None:
    note = WorkNote(tmp_path / "i")
    marks = [note.mark(NotedModel(f"m{at}", "")) for at in range(300)]
    assert {one.name for one in noted(tmp_path / "i")} == {f"m{at}" for at in range(300)}
    size = (tmp_path / "i").stat().st_size
    for mark in marks:
        mark.remove()
    for at in range(300):
        note.mark(NotedModel(f"n{at}", ""))
    assert (tmp_path / "i").stat().st_size == size
    assert len(noted(tmp_path / "i")) == 300


DIES = """
import os, signal, sys
from pathlib import Path
from penstock.instance.models.work_note import WorkNote
from penstock.wire.work_note import NotedModel

note = WorkNote(Path(sys.argv[1]))
note.mark(NotedModel("idle", "")).works(False)
note.mark(NotedModel("busy", "s"))
os.kill(os.getpid(), signal.SIGSEGV)
"""


def test_what_was_noted_outlives_the_process(tmp_path: Path) -> None:
    died = subprocess.run([sys.executable, "-c", DIES, str(tmp_path / "i")], check=False)
    assert died.returncode == -signal.SIGSEGV
    assert noted(tmp_path / "i") == [NotedModel("busy", "s")]


def test_damaged_slots_say_nothing_and_hide_no_others(tmp_path: Path) -> None:
    """Whoever crashes may have written anywhere before."""
    note = WorkNote(tmp_path / "i")
    for model in (A, B, NotedModel("c", "")):
        note.mark(model)
    written = bytearray((tmp_path / "i").read_bytes())
    written[1:9] = b"\xff" * 8
    assert at_work(bytes(written)) == [B, NotedModel("c", "")]
    written[SLOT_BYTES + 3 : SLOT_BYTES + 9] = b"[1, 2]"
    assert at_work(bytes(written)) == [NotedModel("c", "")]
    assert at_work(bytes(written)[: 2 * SLOT_BYTES + 100]) == []


def test_a_model_that_can_not_be_noted_works_all_the_same(tmp_path: Path) -> None:
    nowhere = WorkNote(None).mark(A)
    too_long = WorkNote(tmp_path / "i").mark(NotedModel("x" * 4096, ""))
    (tmp_path / "file").write_text("")
    no_folder = WorkNote(tmp_path / "file" / "i").mark(A)
    for mark in (nowhere, too_long, no_folder):
        mark.works(True)
        mark.works(False)
        mark.remove()
    assert os.listdir(tmp_path) == ["file"]
