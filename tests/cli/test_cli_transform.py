"""`penstock transform` and `penstock jobs`: what is asked for, what is shown, the exit code."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.job_server import JobServer, progress, serving
from typer.testing import CliRunner, Result

from penstock.cli import main, transform_follow
from penstock.cli.jobs.transform_job import JobOptions, members_of
from penstock.cli.transform_follow import Progress, duration
from penstock.errors import CallerError, ModelError


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    monkeypatch.setattr(transform_follow, "LOOK_EVERY_S", 0.0)
    with serving() as one:
        yield one


def run(server: JobServer, *words: str) -> Result:
    return CliRunner().invoke(main.app, [*words, "--url", server.url])


def files(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("x\n")
    return folder


def test_a_job_is_asked_for_with_defaults_by_the_suffix(server: JobServer, tmp_path: Path) -> None:
    server.say("InProgress")
    server.say("Completed")
    data = files(tmp_path / "in", "a.jsonl", "b.jsonl")
    done = run(server, "transform", "m", str(data), str(tmp_path / "out"), "--name", "j")
    assert done.exit_code == 0, done.output
    assert server.operations() == [
        "DescribeModel",
        "CreateTransformJob",
        "DescribeTransformJob",
        "DescribeTransformJob",
    ]
    assert server.asked[1][1] == {
        "TransformJobName": "j",
        "ModelName": "m",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": data.as_uri()}},
            "ContentType": "application/jsonlines",
            "SplitType": "Line",
        },
        "TransformOutput": {
            "S3OutputPath": (tmp_path / "out").as_uri(),
            "AssembleWith": "Line",
        },
        "TransformResources": {"InstanceType": "ml.local.small", "InstanceCount": 1},
    }


def test_flags_are_members(tmp_path: Path) -> None:
    options = JobOptions(
        content_type="text/csv", split="Line",
        accept="application/json", strategy="SingleRecord", max_payload_mb=0, concurrency=4,
        compression="Gzip", assemble="None", input_filter="$[1:]", output_filter="$[0]", join=True,
        instance_type="ml.local.large", count=3, env=["A=b=c"], refused="skip:5", priority=-1,
        cores=1.5, columns="a,b",
    )  # fmt: skip
    assert members_of(options, "m", "s3://in/a", "s3://out/") == {
        "ModelName": "m",
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://in/a"}},
            "ContentType": "text/csv",
            "SplitType": "Line",
            "CompressionType": "Gzip",
        },
        "TransformOutput": {
            "S3OutputPath": "s3://out/",
            "Accept": "application/json",
            "AssembleWith": "None",
        },
        "TransformResources": {"InstanceType": "ml.local.large", "InstanceCount": 3},
        "BatchStrategy": "SingleRecord",
        "MaxPayloadInMB": 0,
        "MaxConcurrentTransforms": 4,
        "DataProcessing": {
            "InputFilter": "$[1:]",
            "OutputFilter": "$[0]",
            "JoinSource": "Input",
        },
        "Environment": {
            "A": "b=c",
            "PENSTOCK_TRANSFORM_REFUSED_RECORDS": "skip:5",
            "PENSTOCK_TRANSFORM_PRIORITY": "-1",
            "PENSTOCK_TRANSFORM_CORES_MAX": "1.5",
            "PENSTOCK_TRANSFORM_COLUMNS": "a,b",
        },
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.jsonl", ("application/jsonlines", "Line", None, None)),
        ("A.JSONL.GZ", ("application/jsonlines", "Line", "Gzip", None)),
        ("a.csv", ("text/csv", "Line", None, None)),
        ("a.txt", ("text/plain", "Line", None, "SingleRecord")),  # lines together are one text
        ("a.parquet", ("application/x-parquet", "None", None, None)),
        ("a.recordio", ("application/x-recordio-protobuf", "RecordIO", None, None)),
        ("a.jpg", ("image/jpeg", "None", None, None)),
    ],
)
def test_a_suffix_says_how_records_are_read(
    tmp_path: Path, name: str, expected: tuple[str | None, ...]
) -> None:
    folder = files(tmp_path, name)
    for given in (str(folder / name), str(folder), str(folder / name[:1])):  # file, folder, prefix
        members = members_of(JobOptions(), "m", given, "s3://o")
        read = members["TransformInput"]
        found = (read["ContentType"], read["SplitType"], read.get("CompressionType"))
        assert (*found, members.get("BatchStrategy")) == expected


def test_what_no_suffix_says_is_asked_for(tmp_path: Path) -> None:
    mixed = files(tmp_path / "mixed", "a.csv", "b.jsonl")
    bare = files(tmp_path / "bare", "data")
    for given in (str(mixed), str(bare), "s3://in/prefix"):
        with pytest.raises(CallerError) as refused:
            members_of(JobOptions(), "m", given, "s3://o")
        assert refused.value.code == "content-type-needed"
    members_of(JobOptions(content_type="text/csv"), "m", str(mixed), "s3://o")
    with pytest.raises(CallerError) as missing:
        members_of(JobOptions(), "m", str(tmp_path / "none"), "s3://o")
    assert missing.value.code == "input-not-found"


def test_an_artifact_becomes_a_model_named_after_its_content(
    server: JobServer, tmp_path: Path
) -> None:
    artifact = files(tmp_path / "pairs" / "artifact", "model.xml")
    data = files(tmp_path / "in", "a.csv")
    words = ("transform", str(artifact), str(data), str(tmp_path), "--no-follow")
    assert run(server, *words).exit_code == 0
    server.asked, first = [], server.asked
    assert run(server, *words).exit_code == 0
    (artifact / "model.xml").write_text("another one")
    server.asked, second = [], server.asked
    assert run(server, *words).exit_code == 0
    made = [asked[0][1]["ModelName"] for asked in (first, second, server.asked)]
    assert made[0] == made[1] != made[2]
    assert all(name.startswith("pairs-") for name in made)
    assert first[0][1]["PrimaryContainer"] == {"ModelDataUrl": artifact.as_uri()}
    assert first[1][1]["ModelName"] == made[0]
    assert first[1][1]["TransformJobName"].startswith("pairs-20")


def test_the_exit_code_says_how_the_job_ended(server: JobServer) -> None:
    server.say("Completed", RefusedRecords=3)
    server.looks[0] |= {"TransformStartTime": 100.0, "TransformEndTime": 104.0}
    done = run(server, "jobs", "follow", "j")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "5,000 records, 1,250/s, 3 refused, $0.0123, 2 instances" in done.stderr
    server.looks.clear()
    server.say("Stopped")
    assert run(server, "jobs", "follow", "j").exit_code == 3
    server.looks.clear()
    server.say("Failed", "the input is empty")
    failed = run(server, "jobs", "follow", "j").exception
    assert isinstance(failed, ModelError)
    assert (failed.code, failed.message) == (
        "transform-failed", "job j failed: the input is empty",
    )  # fmt: skip


def test_progress_in_words() -> None:
    told = Progress.of({"TransformJobStatus": "InProgress", "PenstockProgress": progress()})
    assert told == Progress(
        "InProgress",
        0.5,
        "5,000 records, 1,250/s, 1 min 5 s left, $0.0123 so far, 2 instances",
    )
    fresh = Progress.of({"TransformJobStatus": "InProgress"})
    assert fresh == Progress("InProgress", None, "0 records")
    waits = {"TransformJobStatus": "InProgress", "PenstockProgress": {"Waiting": "room"}}
    assert Progress.of(waits).words == "0 records, waits (room)"
    assert [duration(s) for s in (0, 8.4, 61, 3600, 7500)] == [
        "0 s", "8 s", "1 min 1 s", "1 h", "2 h 5 min",
    ]  # fmt: skip


def test_jobs_are_listed_and_stopped(server: JobServer) -> None:
    listed = run(server, "jobs", "list")
    assert "it broke" in listed.stdout
    assert server.asked[0][1] == {
        "MaxResults": 20, "SortBy": "CreationTime", "SortOrder": "Descending",
    }  # fmt: skip
    server.say("InProgress")
    assert "j is Stopping" in run(server, "jobs", "stop", "j").stderr


#: Whoever started the tests may ignore Ctrl-C, as a shell's background does, and that is inherited.
_PENSTOCK = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    " from penstock.cli.main import main; main()"
)


def _following(server: JobServer, **streams: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", _PENSTOCK, "jobs", "follow", "j", "--url", server.url]
    return subprocess.Popen(argv, start_new_session=True, **streams)


def _until_looked(server: JobServer) -> None:
    deadline = time.monotonic() + 60
    while len(server.asked) < 2 and time.monotonic() < deadline:  # what the first told is shown
        time.sleep(0.01)


def test_ctrl_c_without_a_terminal_leaves_the_job_running() -> None:
    with serving() as server:
        server.say("InProgress")
        process = _following(server, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _until_looked(server)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 130
        assert b"j: InProgress, 50%, 5,000 records" in said
        assert b"job j goes on; 'penstock jobs follow j'" in said
        assert "StopTransformJob" not in server.operations()


@pytest.mark.parametrize(("typed", "code", "stops"), [(b"y\n", 3, True), (b"n\n", 130, False)])
def test_ctrl_c_in_a_terminal_asks(typed: bytes, code: int, stops: bool) -> None:
    with serving() as server:
        server.say("InProgress")
        ours, theirs = pty.openpty()
        process = _following(server, stdin=theirs, stderr=theirs, stdout=theirs)
        os.close(theirs)
        _until_looked(server)
        process.send_signal(signal.SIGINT)
        said = b""
        while b"Stop job j?" not in said:
            said += os.read(ours, 4096)
        os.write(ours, typed)
        try:
            while True:  # what is not read would stop it
                said += os.read(ours, 4096)
        except OSError:  # its end of the terminal is closed
            pass
        assert process.wait(60) == code, said
        os.close(ours)
        assert ("StopTransformJob" in server.operations()) == stops
