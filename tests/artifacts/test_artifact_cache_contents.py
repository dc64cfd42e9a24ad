"""What the cache writes down of an entry, and what of it is compared with the files again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from artifact_files import write

from penstock import durable_files
from penstock.artifacts.cache import cache_contents

ONE, TWO = hashlib.sha256(b"one").hexdigest(), hashlib.sha256(b"seven b").hexdigest()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return write(tmp_path / "files", {"b": b"one", "a/c": b"seven b"})


@pytest.fixture
def listed(files: Path) -> dict[str, Any]:
    return dict(cache_contents.record(files, {}))


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose bytes were read."""
    names: list[str] = []
    sha256 = cache_contents._sha256

    def noted(path: Path) -> str:
        names.append(path.name)
        return sha256(path)

    monkeypatch.setattr(cache_contents, "_sha256", noted)
    return names


def test_an_entry_lists_sizes_and_digests_by_path(files: Path) -> None:
    record = cache_contents.record(files, {})
    assert record == {"schema": 2, "size": 10, "files": {"a/c": [7, TWO], "b": [3, ONE]}}
    assert list(record["files"]) == ["a/c", "b"]  # type: ignore[call-overload]


def test_what_was_hashed_on_the_way_is_not_read_again(files: Path, hashed: list[str]) -> None:
    record = cache_contents.record(files, {"b": "known"})
    assert record["files"] == {"a/c": [7, TWO], "b": [3, "known"]}
    assert hashed == ["c"]


def test_a_large_file_is_hashed_to_its_end(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    write(tmp_path, {"f": content})
    [[size, digest]] = cache_contents.record(tmp_path, {})["files"].values()  # type: ignore[attr-defined]
    assert (size, digest) == (2_560_000, hashlib.sha256(content).hexdigest())


def test_a_stamp_is_what_changes_with_each_write(files: Path, listed: dict[str, Any]) -> None:
    facts = (files / "b").stat()
    stamps = cache_contents.stamps(files, listed)
    assert stamps["boot"] == cache_contents.boot() != ""
    assert stamps["files"]["b"] == [  # type: ignore[index]
        facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino, 3,
    ]  # fmt: skip


def test_bytes_with_the_stamps_of_this_boot_are_not_read(
    files: Path, listed: dict[str, Any], hashed: list[str]
) -> None:
    checked = cache_contents.stamps(files, listed)
    assert (cache_contents.damage(files, listed, checked), hashed) == ("", [])


@pytest.mark.parametrize(
    "spoil",
    [
        {"boot": "another"},
        {"files": []},
        {"files": {}},
        {"files": {"a/c": None, "b": None}},
    ],
)
def test_bytes_without_a_stamp_of_this_boot_are_read(
    files: Path, listed: dict[str, Any], hashed: list[str], spoil: dict[str, object]
) -> None:
    checked = {**cache_contents.stamps(files, listed), **spoil}
    assert cache_contents.damage(files, listed, checked) == ""
    assert sorted(hashed) == ["b", "c"]
    hashed.clear()
    assert cache_contents.damage(files, listed, None) == ""
    assert sorted(hashed) == ["b", "c"]


def test_only_the_file_whose_stamp_is_another_is_read(
    files: Path, listed: dict[str, Any], hashed: list[str]
) -> None:
    checked = cache_contents.stamps(files, listed)
    os.utime(files / "b", ns=(1, 1))
    assert (cache_contents.damage(files, listed, checked), hashed) == ("", ["b"])
    (files / "b").write_bytes(b"ONE")
    why = "the bytes of b are not those that were fetched"
    assert cache_contents.damage(files, listed, checked) == why


def test_a_size_is_compared_without_reading_a_byte(
    files: Path, listed: dict[str, Any], hashed: list[str]
) -> None:
    (files / "b").write_bytes(b"four")
    assert cache_contents.damage(files, listed, None) == "b has 4 bytes, not 3"
    assert hashed == ["c"]
    (files / "b").unlink()
    assert cache_contents.damage(files, listed, None) == "b: No such file or directory"


def test_a_list_of_sizes_alone_is_that_of_an_older_version(files: Path, hashed: list[str]) -> None:
    old = {"schema": 1, "files": {"b": 3}}
    assert (cache_contents.damage(files, old, None), hashed) == ("", [])
    old["files"] = {"b": 4}
    assert cache_contents.damage(files, old, None) == "b has 3 bytes, not 4"


@pytest.mark.parametrize(
    "listed", [{}, {"schema": 2}, {"schema": 2, "files": []}, {"schema": 3, "files": {}}]
)
def test_a_list_that_is_not_known_is_damage(files: Path, listed: dict[str, Any]) -> None:
    assert cache_contents.damage(files, listed, None) == "its list can't be read"


def test_what_is_not_listed_is_not_looked_at(files: Path, listed: dict[str, Any]) -> None:
    write(files, {"code/__pycache__/x.pyc": b"x"})
    assert cache_contents.damage(files, listed, None) == ""
    assert cache_contents.damage(files, {"schema": 2, "files": {}}, None) == ""


class Synced:
    """Which paths were synced one by one, and whether the file system was, as a whole."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, syncfs: int) -> None:
        self.paths: list[Path] = []
        self.whole = 0

        def library(*_: object, **__: object) -> Synced:
            return self

        self._result = syncfs
        monkeypatch.setattr(durable_files, "sync", self.paths.append)
        monkeypatch.setattr(cache_contents.ctypes, "CDLL", library)

    def syncfs(self, descriptor: int) -> int:
        os.fstat(descriptor)  # it is open
        self.whole += 1
        return self._result


@pytest.mark.parametrize(
    ("bound", "syncfs", "whole", "one_by_one"),
    [(2, 0, 0, True), (1, 0, 1, False), (1, -1, 1, True)],
)
def test_many_files_are_synced_with_their_file_system_and_few_one_by_one(
    files: Path, monkeypatch: pytest.MonkeyPatch, bound: int, syncfs: int, whole: int,
    one_by_one: bool,
) -> None:  # fmt: skip
    """Also where the kernel can't do the former."""
    monkeypatch.setattr(cache_contents, "_SYNCED_ONE_BY_ONE_MAX", bound)
    synced = Synced(monkeypatch, syncfs=syncfs)
    cache_contents.sync(files)
    assert synced.whole == whole
    all_of_it = [files / "b", files / "a/c", files, files / "a"]
    assert sorted(synced.paths) == (sorted(all_of_it) if one_by_one else [])
