"""Sources on this machine: what is listed of them, what is refused, and what is copied."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from artifact_files import budget, error_of, write

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import CHUNK_BYTES, Listing, SourceFile
from penstock.artifacts.sources import fetch, local_files
from penstock.artifacts.sources.local_files import RACY_S, list_local
from penstock.clock import ManualClock, SystemClock
from penstock.errors import CallerError, NotNowError, PenstockError


def listed(path: Path, *, files_max: int = 100, wall_s: float = 4_000_000_000.0) -> Listing:
    clock = ManualClock(wall_s=wall_s)
    return list_local(path, budget=budget(), files_max=files_max, clock=clock)


def content(file: SourceFile) -> bytes:
    return b"".join(file.chunks())


def test_a_directory_is_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    write(tmp_path, {"b.bin": b"22", "a/z": b"1", "a/b/c": b"333", "run.sh": b""})
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "empty").mkdir()
    listing = listed(tmp_path)
    facts = [(file.name, file.size, file.executable, content(file)) for file in listing.files]
    assert facts == [
        ("a/b/c", 3, False, b"333"),
        ("a/z", 1, False, b"1"),
        ("b.bin", 2, False, b"22"),
        ("run.sh", 0, True, b""),
    ]
    assert (listing.single, listing.settled) == (False, True)


def test_a_file_is_a_listing_of_one(tmp_path: Path) -> None:
    write(tmp_path, {"m.onnx": b"x" * (CHUNK_BYTES + 1)})
    listing = listed(tmp_path / "m.onnx")
    [file] = listing.files
    assert (file.name, file.size, listing.single) == ("m.onnx", CHUNK_BYTES + 1, True)
    assert [len(chunk) for chunk in file.chunks()] == [CHUNK_BYTES, 1]


def test_what_desktop_systems_and_git_leave_is_left_out(tmp_path: Path) -> None:
    write(tmp_path, {"m.onnx": b"", ".DS_Store": b"", ".git/config": b"", "__pycache__/a": b"",
                     "x/._m.onnx": b"", "x/y": b""})  # fmt: skip
    assert [file.name for file in listed(tmp_path).files] == ["m.onnx", "x/y"]


def test_a_directory_of_nothing_else_is_empty(tmp_path: Path) -> None:
    write(tmp_path, {".git/config": b""})
    assert error_of(lambda: listed(tmp_path)).code == "artifact-empty"


def test_a_directory_may_have_as_many_files_as_the_bound(tmp_path: Path) -> None:
    write(tmp_path, {f"{n}": b"" for n in range(3)})
    assert len(listed(tmp_path, files_max=3).files) == 3
    assert error_of(lambda: listed(tmp_path, files_max=2)).code == "artifact-too-many-files"


def test_a_directory_that_nobody_wants_any_more_is_not_listed(tmp_path: Path) -> None:
    write(tmp_path, {"m": b""})
    cancelled = threading.Event()
    cancelled.set()
    given = Budget("m", bytes_max=1, seconds_max=60, cancelled=cancelled)
    with pytest.raises(NotNowError) as caught:
        list_local(tmp_path, budget=given, files_max=9, clock=ManualClock())
    assert caught.value.code == "artifact-cancelled"


def test_a_name_that_no_artifact_may_have_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a\\b": b""})
    assert error_of(lambda: listed(tmp_path)).code == "artifact-path-unsafe"
    assert error_of(lambda: listed(tmp_path / "a\\b")).code == "artifact-path-unsafe"


def test_a_link_inside_is_the_file_that_it_leads_to(tmp_path: Path) -> None:
    top = write(tmp_path / "m", {"blobs/1": b"content", "other": b""})
    (top / "model.onnx").symlink_to("blobs/1")
    files = {file.name: file for file in listed(top).files}
    assert sorted(files) == ["blobs/1", "model.onnx", "other"]
    assert (files["model.onnx"].size, content(files["model.onnx"])) == (7, b"content")
    linked = tmp_path / "link"
    linked.symlink_to(top)
    assert len(listed(linked).files) == 3, "the directory itself may be a link"


@pytest.mark.parametrize(
    "target", ["../m-of-others/secret", "/etc/hostname", "gone", "folder", "."]
)
def test_a_link_that_leads_elsewhere_is_refused(tmp_path: Path, target: str) -> None:
    """Also into a directory whose name begins alike, to nothing, and to a folder."""
    write(tmp_path, {"m-of-others/secret": b""})
    top = write(tmp_path / "m", {"folder/file": b""})
    (top / "link").symlink_to(target)
    error = error_of(lambda: listed(top))
    assert (type(error), error.code) == (CallerError, "artifact-link-refused")


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe"):
        assert error_of(lambda: listed(path)).code == "artifact-type-unsupported"  # noqa: B023


@pytest.mark.parametrize(("later_s", "settled"), [(RACY_S - 0.5, False), (RACY_S + 0.5, True)])
def test_a_listing_is_settled_once_its_newest_file_is_old_enough(
    tmp_path: Path, later_s: float, settled: bool
) -> None:
    """The time of its content can be set; that of its last change can not."""
    write(tmp_path, {"old": b"", "new": b""})
    os.utime(tmp_path / "old", (0, 0))
    os.utime(tmp_path / "new", (0, 0))
    changed_s = max((tmp_path / name).stat().st_ctime for name in ("old", "new"))
    assert listed(tmp_path, wall_s=changed_s + later_s).settled is settled
    os.utime(tmp_path / "new", (changed_s + 100.0, changed_s + 100.0))
    assert listed(tmp_path, wall_s=changed_s + 100.0 + later_s).settled is settled


def test_a_file_may_be_older_than_1970(tmp_path: Path) -> None:
    write(tmp_path, {"old": b"x"})
    os.utime(tmp_path / "old", (-5, -5))
    if (tmp_path / "old").stat().st_mtime != -5:
        pytest.skip("this file system keeps no time before 1970")
    [file] = listed(tmp_path).files
    assert content(file) == b"x"


@pytest.mark.parametrize("change", ["content", "time", "replaced", "pipe", "gone"])
def test_a_file_that_changes_while_it_is_read_is_not_taken(tmp_path: Path, change: str) -> None:
    path = write(tmp_path, {"m": b"12345"}) / "m"
    os.utime(path, (1_000_000, 1_000_000))
    [file] = listed(path).files
    chunks = file.chunks()
    if change == "content":
        path.write_bytes(b"54321")
    elif change == "time":
        os.utime(path, (2_000_000, 2_000_000))
    elif change == "replaced":
        (tmp_path / "other").write_bytes(b"12345")
        os.utime(tmp_path / "other", (1_000_000, 1_000_000))
        (tmp_path / "other").rename(path)
    else:
        path.unlink()
        if change == "pipe":
            os.mkfifo(path)
    error = error_of(lambda: list(chunks))
    if change == "gone":
        assert (type(error), error.code) == (CallerError, "artifact-not-found")
    else:
        assert (type(error), error.code) == (NotNowError, "artifact-changed")


@pytest.mark.parametrize(
    ("cause", "kind", "code"),
    [
        (FileNotFoundError(errno.ENOENT, "no"), CallerError, "artifact-not-found"),
        (NotADirectoryError(errno.ENOTDIR, "no"), CallerError, "artifact-not-found"),
        (PermissionError(errno.EACCES, "no"), CallerError, "artifact-access-denied"),
        (OSError(errno.ENAMETOOLONG, "no"), CallerError, "artifact-unreadable"),
        (OSError(errno.EIO, "no"), NotNowError, "artifact-unreadable"),
        (OSError(errno.ESTALE, "no"), NotNowError, "artifact-unreadable"),
    ],
)
def test_what_can_not_be_read_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: OSError, kind: type, code: str
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise cause

    monkeypatch.setattr(local_files.os, "open", fail)
    error = error_of(lambda: listed(tmp_path / "m"))
    assert (type(error), error.code) == (kind, code)
    assert str(tmp_path / "m") in error.message


# Copying


def source(*chunks: bytes) -> SourceFile:
    return SourceFile(name="m", size=1, stamp="s", chunks=lambda: iter(chunks))


def test_a_copy_is_its_bytes_and_their_digest(tmp_path: Path) -> None:
    to = tmp_path / "deep/er/m"
    assert (
        fetch.copy_file(source(b"ab", b"", b"c"), to, budget())
        == hashlib.sha256(b"abc").hexdigest()
    )
    assert to.read_bytes() == b"abc"
    assert stat.S_IMODE(to.stat().st_mode) & ~0o022 == 0o644 & ~0o022


def test_a_copy_takes_no_others_place_and_follows_no_link(tmp_path: Path) -> None:
    write(tmp_path, {"there": b"kept"})
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name in ("there", "link"):
        with pytest.raises(PenstockError) as caught:
            fetch.copy_file(source(b"x"), tmp_path / name, budget())
        assert caught.value.code == "artifact-disk-failed"
    assert (tmp_path / "there").read_bytes() == b"kept"
    assert not (tmp_path / "elsewhere").exists()


def test_bytes_count_as_they_come_whatever_was_announced(tmp_path: Path) -> None:
    seen: list[bytes] = []

    def chunks() -> Any:
        for chunk in (b"x" * 60, b"y" * 60, b"z"):
            seen.append(chunk)
            yield chunk

    file = SourceFile(name="m", size=1, stamp="s", chunks=chunks)
    error = error_of(lambda: fetch.copy_file(file, tmp_path / "m", budget(bytes_max=100)))
    assert error.code == "artifact-too-large"
    assert len(seen) == 2
    assert (tmp_path / "m").stat().st_size == 60


def test_a_write_that_is_cut_short_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = open

    class Short:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __enter__(self) -> Short:
            return self

        def __exit__(self, *_: object) -> None:
            self.inner.close()

        def write(self, view: Any) -> int:
            return int(self.inner.write(view[:3]))

    monkeypatch.setattr(
        fetch, "open", lambda *args, **more: Short(real_open(*args, **more)), raising=False
    )
    fetch.copy_file(source(b"0123456789"), tmp_path / "m", budget())
    assert (tmp_path / "m").read_bytes() == b"0123456789"


def test_the_digest_of_a_directory_is_of_these_lines() -> None:
    facts = [("b", 2, True, "22"), ("a", 1, False, "11")]
    lines = b"penstock directory 1\n11 1 0 a\n22 2 1 b\n"
    assert fetch.directory_digest(facts) == hashlib.sha256(lines).hexdigest()
    assert fetch.directory_digest(reversed(facts)) == fetch.directory_digest(facts)
    assert fetch.directory_digest([]) == hashlib.sha256(b"penstock directory 1\n").hexdigest()


def test_without_a_clock_the_systems_is_asked(tmp_path: Path) -> None:
    write(tmp_path, {"m": b""})
    now_s = SystemClock().wall()
    os.utime(tmp_path / "m", (now_s + 1000.0, now_s + 1000.0))
    assert not fetch.look(str(tmp_path), fetch.ArtifactSettings(), budget()).settled


def test_a_disk_that_fills_up_in_the_middle_of_a_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    monkeypatch.setattr(fetch.os, "open", lambda *_: full)
    error = error_of(lambda: fetch.copy_file(source(b"x"), tmp_path / "m", budget()))
    assert error.code == "artifact-disk-full"


@pytest.mark.parametrize(
    ("uri", "code", "told"),
    [
        ("https:///m.onnx", "artifact-uri-invalid", "no host"),
        ("https://h", "artifact-uri-invalid", "must name one file"),
        ("https://h/folder/", "artifact-uri-invalid", "must name one file"),
        ("http://example.com/m", "artifact-scheme-unsupported", "from this machine only"),
        ("gs://b/m", "artifact-scheme-unsupported", "the scheme gs:// is not supported"),
        ("models/m", "artifact-scheme-unsupported", "it is a relative path"),
        ("file:m", "artifact-uri-invalid", "needs an absolute path"),
        ("file://elsewhere/m", "artifact-uri-invalid", "three slashes"),
        ("s3:///m", "artifact-uri-invalid", "needs a bucket"),
        ("s3://../m", "artifact-uri-invalid", "needs a bucket"),
        ("s3://local/a/../b", "artifact-uri-invalid", "contains '..'"),
        ("/a\0b", "artifact-uri-invalid", "null byte"),
    ],
)
def test_a_uri_is_refused_for_what_it_is(tmp_path: Path, uri: str, code: str, told: str) -> None:
    settings = fetch.ArtifactSettings(s3_local={"local": str(tmp_path)})
    error = error_of(lambda: fetch.look(uri, settings, budget()))
    assert (type(error), error.code) == (CallerError, code)
    assert told in error.message
