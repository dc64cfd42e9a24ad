"""Inputs and outputs of asynchronous requests: files, and objects of an S3 server on loopback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.kit.object_server import ObjectServer

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.errors import CallerError
from penstock.jobs.asynchronous.objects import Objects

MANY = 1 << 20


@pytest.fixture
def files(tmp_path: Path) -> Objects:
    return Objects(ArtifactSettings(s3_local={"here": str(tmp_path)}))


def refused(call: object, *args: object, **more: object) -> str:
    with pytest.raises(CallerError) as raised:
        call(*args, **more)  # type: ignore[operator]
    return raised.value.code


def test_a_file_is_read_whole_and_its_size_is_told_before(files: Objects, tmp_path: Path) -> None:
    (tmp_path / "in.json").write_bytes(b"12345")
    for uri in ((tmp_path / "in.json").as_uri(), "s3://here/in.json"):
        assert files.size(uri, bytes_max=5) == 5
        assert files.read(uri, bytes_max=5) == (b"12345", "")


def test_inputs_that_can_not_be_used_say_why(files: Objects, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "large").write_bytes(b"x" * 11)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "one").write_bytes(b"x")
    for name, code in (
        ("none", "input-not-found"),
        ("empty", "input-empty"),
        ("large", "input-too-large"),
        ("folder", "input-not-found"),
    ):
        assert refused(files.read, (tmp_path / name).as_uri(), bytes_max=10) == code
    assert refused(files.read, "ftp://host/x", bytes_max=10) == "input-unreadable"


def test_an_output_is_there_whole_replaces_what_was_there_and_leaves_nothing_beside(
    files: Objects, tmp_path: Path
) -> None:
    uri = (tmp_path / "a" / "b" / "one.out").as_uri()
    files.write(uri, b"first", draft="1")
    files.write(uri, b"second", draft="2")
    assert (tmp_path / "a" / "b" / "one.out").read_bytes() == b"second"
    assert os.listdir(tmp_path / "a" / "b") == ["one.out"]


def test_what_a_killed_writer_left_is_written_over(files: Objects, tmp_path: Path) -> None:
    """The draft's name follows from the request: who does it again takes the same."""
    left = tmp_path / "._penstock-7-one.out"
    left.write_bytes(b"half of i")
    files.write((tmp_path / "one.out").as_uri(), b"whole", draft="7")
    assert os.listdir(tmp_path) == ["one.out"]


def test_a_place_that_can_not_be_written_is_told_before_any_work(
    files: Objects, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    below = (tmp_path / "file" / "out").as_uri()
    assert refused(files.check_writable, below) == "output-unwritable"
    assert refused(files.write, f"{below}/x", b"", draft="1") == "output-unwritable"
    assert refused(files.check_writable, "https://host/out") == "output-unwritable"
    files.check_writable((tmp_path / "new" / "folder").as_uri())
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_objects_of_s3_are_read_and_written(s3: ObjectServer) -> None:
    objects = Objects(ArtifactSettings(s3_endpoint=s3.url))
    s3.objects["/bucket/in/one"] = b"12345"
    assert objects.size("s3://bucket/in/one", bytes_max=MANY) == 5
    assert objects.read("s3://bucket/in/one", bytes_max=MANY).body == b"12345"
    assert refused(objects.read, "s3://bucket/in/two", bytes_max=MANY) == "input-not-found"
    assert refused(objects.read, "s3://bucket/in/one", bytes_max=4) == "input-too-large"
    objects.write("s3://bucket/out/1.out", b"answer", draft="1", content_type="text/csv")
    assert s3.objects["/bucket/out/1.out"] == b"answer"
    before = set(s3.objects)
    objects.check_writable("s3://bucket/out")
    assert set(s3.objects) == before


def test_a_store_that_denies_is_told_before_any_work(s3: ObjectServer) -> None:
    objects = Objects(ArtifactSettings(s3_endpoint=s3.url))
    s3.status = 403
    assert refused(objects.check_writable, "s3://bucket/out") == "output-unwritable"
    assert refused(objects.read, "s3://bucket/in", bytes_max=MANY) == "input-unreadable"
