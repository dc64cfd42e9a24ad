"""Parts and outputs under kills, full disks and two writers: whole, or as they were."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from record_files import SETTINGS, error_of

from penstock.core.jobs.spec import InputObject, Span, TransformOutput
from penstock.records.output import assemble
from penstock.records.parts import PartWriter, part_summary

SPAN = Span(object=0, number=0, start=0, stop=10)
ANSWERS = [b"answer %d" % number for number in range(50_000)]
WHOLE = b"\n".join(ANSWERS) + b"\n"
ONE = InputObject(number=0, key="k", uri="file:///k", size=10, stamp="s")

#: Writes the same part and the same output for ever; a line for each that it says is done.
WRITER = """
import sys
sys.path.insert(0, {folder!r})
from test_records_kills import *
output = TransformOutput(uri={out!r}, assemble="Line")
while True:
    writer = PartWriter({parts!r}, SPAN, output)
    for at in range(0, len(ANSWERS), 1000):
        writer.write(ANSWERS[at : at + 1000])
    writer.refuse(len(ANSWERS), 7, {{"code": "bad"}})
    writer.commit()
    assemble(ONE, [SPAN], {parts!r}, output, SETTINGS)
    print("done", flush=True)
"""


def test_kills_at_any_moment_leave_parts_and_outputs_whole(tmp_path: Path) -> None:
    parts, out = (tmp_path / "parts").as_uri(), (tmp_path / "out").as_uri()
    code = WRITER.format(folder=str(Path(__file__).parent), parts=parts, out=out)
    seed = random.randrange(1000)
    print(f"seed {seed}")
    moments = random.Random(seed)
    for kill in range(8):
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            if kill == 0:
                process.stdout.readline()  # one at least is there
            # Any moment is a good one: what must hold does not depend on how far it came.
            time.sleep(moments.uniform(0, 0.6))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(30)
            process.stdout.close()
        summary = part_summary(parts, 0, 0)
        assert summary is not None
        assert (summary.records, summary.refused) == (len(ANSWERS) + 1, 1)
        assert (tmp_path / "out/k.out").read_bytes() == WHOLE
        assert (tmp_path / "out/k.errors").read_bytes().count(b"\n") == 1
        output = TransformOutput(uri=out, assemble="Line")
        assemble(ONE, [SPAN], parts, output, SETTINGS)  # also reads the part's checksum
        assert (tmp_path / "out/k.out").read_bytes() == WHOLE


FULL = """
import resource, sys
sys.path.insert(0, {folder!r})
from test_records_kills import *
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
output = TransformOutput(uri={out!r}, assemble="Line")
writer = PartWriter({parts!r}, SPAN, output)
try:
    for at in range(0, len(ANSWERS), 1000):
        writer.write(ANSWERS[at : at + 1000])
    writer.commit()
except Exception as error:
    print(error.code)
finally:
    writer.abandon()
"""


def test_a_disk_that_takes_no_more_is_told_and_nothing_stays(tmp_path: Path) -> None:
    parts = (tmp_path / "parts").as_uri()
    code = FULL.format(folder=str(Path(__file__).parent), parts=parts, out=parts)
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    assert said == b"artifact-disk-failed\n"
    assert os.listdir(tmp_path / "parts") == []


def test_two_writers_of_a_span_do_not_mix(tmp_path: Path) -> None:
    """One was thought to be dead, and was not."""
    parts, output = tmp_path.as_uri(), TransformOutput(uri=tmp_path.as_uri(), assemble="Line")
    first, second = (PartWriter(parts, SPAN, output) for _ in range(2))
    for at in range(0, 50_000, 1000):
        first.write(ANSWERS[at : at + 1000])
        second.write(ANSWERS[at : at + 1000])
    second.commit()
    assert first.commit() == part_summary(parts, 0, 0)
    assemble(ONE, [SPAN], parts, output, SETTINGS)
    assert (tmp_path / "k.out").read_bytes() == WHOLE


def test_parts_in_a_folder_that_is_gone_are_told(tmp_path: Path) -> None:
    """The job was forgotten while a worker still wrote for it."""
    parts, output = (tmp_path / "p").as_uri(), TransformOutput(uri=tmp_path.as_uri())
    writer = PartWriter(parts, SPAN, output)
    writer.write([b"a"])
    (path,) = (tmp_path / "p").iterdir()
    path.unlink()
    (tmp_path / "p").rmdir()
    assert error_of(writer.commit).code == "artifact-disk-failed"
    writer.abandon()
