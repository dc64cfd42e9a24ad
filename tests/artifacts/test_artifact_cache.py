"""The cache on disk: whole entries only, safe between processes, least recently used out first."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from artifact_files import budget, error_of, write
from tests.kit.crash_disk import FailingDisk

from penstock.artifacts.cache import cache_contents
from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.files.budget import Budget
from penstock.clock import ManualClock
from penstock.errors import NotNowError

A, B, C = ("a" * 64, "b" * 64, "c" * 64)


def commit(cache: ArtifactCache, digest: str, content: bytes = b"weights") -> Path:
    with cache.staging("test") as staging:
        write(staging / "files", {"sub/model.onnx": content})
        return cache.commit(staging / "files", digest, what="test").root


def test_a_committed_entry_is_found_by_its_digest(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path / "artifacts")
    assert cache.find(A) is None
    root = commit(cache, A)
    entry = ArtifactCache(tmp_path / "artifacts").find(A)
    assert entry is not None
    assert entry.root == root == tmp_path / "artifacts" / A / "files"
    assert entry.size == 7
    assert (root / "sub/model.onnx").read_bytes() == b"weights"
    assert list((tmp_path / "artifacts/.staging").iterdir()) == []


def test_the_second_to_commit_uses_the_entry_of_the_first(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    assert commit(cache, A, b"first").joinpath("sub/model.onnx").read_bytes() == b"first"
    assert commit(cache, A, b"second").joinpath("sub/model.onnx").read_bytes() == b"first"


@pytest.mark.parametrize(
    "damage",
    [
        "other-bytes",
        "other-bytes-old-time",
        "replaced",
        "shorter",
        "missing",
        "no-list",
        "bad-list",
    ],
)
def test_an_entry_that_is_not_whole_is_dropped(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a power failure leaves, or somebody who writes where nobody should."""
    cache = ArtifactCache(tmp_path)
    root = commit(cache, A)
    file = root / "sub/model.onnx"
    facts = file.stat()
    if damage == "replaced":
        write(root, {"sub/other": b"WEIGHTS"})
        (root / "sub/other").rename(file)
    elif damage.startswith("other-bytes"):
        file.chmod(0o644)
        file.write_bytes(b"WEIGHTS")
        if damage.endswith("old-time"):
            os.utime(file, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    elif damage == "shorter":
        os.truncate(root / "sub/model.onnx", 3)
    elif damage == "missing":
        (root / "sub/model.onnx").unlink()
    elif damage == "no-list":
        (root.parent / "entry.json").unlink()
    else:
        (root.parent / "entry.json").write_bytes(b"\0\0")
    assert cache.find(A) is None
    assert f"artifact {A} is damaged and is fetched again" in caplog.text
    assert not (tmp_path / A).exists()
    assert commit(cache, A).joinpath("sub/model.onnx").read_bytes() == b"weights"


def test_files_that_a_running_model_adds_do_not_spoil_its_entry(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    root = commit(cache, A)
    write(root, {"code/__pycache__/inference.pyc": b"x"})
    assert cache.find(A) is not None


def test_a_source_is_known_until_its_fingerprint_changes(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    commit(cache, A)
    cache.remember("key", "print-1", A, uri="s3://b/k")
    found = cache.find_source("key", "print-1")
    assert found is not None
    assert found.digest == A
    assert cache.find_source("key", "print-2") is None
    assert cache.find_source("other", "print-1") is None


def test_without_a_fingerprint_nothing_is_remembered(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    commit(cache, A)
    cache.remember("key", "", A, uri="https://h/m")
    assert cache.find_source("key", "") is None


def test_eviction_takes_the_least_recently_used_and_spares_what_is_kept_or_fresh(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    cache = ArtifactCache(tmp_path, clock=clock)
    for digest in (A, B, C):
        commit(cache, digest)
        cache.find(digest)
        clock.advance(1000)
    cache.find(A)
    assert [digest for digest, _, _ in cache.entries()] == [B, C, A]
    assert cache.evict({B}, 8) == [C]  # B is kept, and A was used just now
    clock.advance(1000)
    assert cache.evict({B}, 8) == [A]
    assert cache.evict({B}, 0) == []
    assert {entry[0] for entry in cache.entries()} == {B}


def test_a_cache_within_its_bound_is_left_alone(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path, clock=ManualClock())
    commit(cache, A)
    assert cache.evict((), 7, idle_s_min=0) == []


def test_what_dead_processes_left_is_removed_at_start_and_what_lives_is_not(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    write(tmp_path / ".staging", {"0123456789abcdef/files/half": b"x"})
    with cache.staging("test") as living:
        write(living, {"half": b"x"})
        ArtifactCache(tmp_path)
        assert list((tmp_path / ".staging").iterdir()) == [living]
        assert (living / "half").read_bytes() == b"x"


def test_one_source_is_fetched_by_one_thread_at_a_time(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with cache.source_lock("key", budget()):
            order.append("second")

    with cache.source_lock("key", budget()):
        thread = threading.Thread(target=second)
        thread.start()
        assert entered.wait(10)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]


def test_waiting_for_a_source_ends_when_nobody_wants_it_any_more(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cancelled = threading.Event()
    cancelled.set()
    unwanted = Budget("m", bytes_max=1, seconds_max=60, cancelled=cancelled)
    with (
        cache.source_lock("key", budget()),
        pytest.raises(NotNowError) as caught,
        cache.source_lock("key", unwanted),
    ):
        pass
    assert caught.value.code == "artifact-cancelled"


_WORKER = """
import json, sys
from pathlib import Path
from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.prepare import obtain
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource
root, uri = sys.argv[1:]
sys.stdin.readline()  # both start at once
digests = []
for _ in range(20):
    cache = ArtifactCache(Path(root))
    entry = obtain(ArtifactSource(uri=uri), cache, ArtifactSettings())
    digests.append(entry.digest)
    assert (entry.root / "model.onnx").read_bytes() == b"w" * 300_000
    cache.evict((), 0, idle_s_min=3600)
    cache.find("0" * 64)
print(json.dumps(sorted(set(digests))))
"""


def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    source = write(tmp_path / "source", {"model.onnx": b"w" * 300_000})
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", _WORKER, str(tmp_path / "cache"), str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    answers = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 1
    cache = tmp_path / "cache"
    assert list((cache / ".staging").iterdir()) == []
    assert [path.name for path in cache.iterdir() if not path.name.startswith(".")] == answers[0]


def test_a_cache_that_cannot_be_made_says_where_and_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    error = error_of(lambda: ArtifactCache(tmp_path / "file" / "artifacts"))
    assert error.code == "artifact-disk-failed"
    assert str(tmp_path / "file") in error.message


@pytest.mark.parametrize("digest", ["", "..", "../" + A, A.upper(), A + "0", ".staging"])
def test_only_a_digest_is_looked_up(tmp_path: Path, digest: str) -> None:
    cache = ArtifactCache(tmp_path)
    commit(cache, A)
    assert cache.find(digest) is None
    assert cache.find(A) is not None


def test_bytes_are_compared_once_in_a_boot_and_when_a_stamp_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten gigabytes are not read at every load."""
    cache = ArtifactCache(tmp_path)
    root = commit(cache, A)
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return sha256(path)

    sha256 = cache_contents._sha256
    monkeypatch.setattr(cache_contents, "_sha256", counted)
    assert cache.find(A) is not None
    assert read == []  # its stamps are those of the commit
    os.utime(root / "sub/model.onnx")
    assert cache.find(A) is not None
    assert cache.find(A) is not None
    assert read == [root / "sub/model.onnx"]
    monkeypatch.setattr(cache_contents, "boot", lambda: "the next one")
    assert cache.find(A) is not None
    assert cache.find(A) is not None
    assert read == [root / "sub/model.onnx"] * 2


def test_an_entry_of_an_older_version_is_known_by_its_sizes(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    root = commit(cache, A)
    (root.parent / "checked.json").unlink()
    old = {"schema": 1, "size": 7, "files": {"sub/model.onnx": 7}}
    (root.parent / "entry.json").write_text(json.dumps(old))
    assert cache.find(A) is not None
    os.truncate(root / "sub/model.onnx", 3)
    assert cache.find(A) is None


def test_all_of_an_entry_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure at any moment leaves a whole entry, or none."""
    cache = ArtifactCache(tmp_path)
    synced: set[str] = set()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        assert not (tmp_path / A).exists() or os.readlink(f"/proc/self/fd/{descriptor}") == str(
            tmp_path
        )
        synced.add(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    commit(cache, A)
    assert {"model.onnx", "sub", "files", "entry.json", f"entry-{A}", tmp_path.name} <= synced


def test_eviction_ends_at_its_bound_and_takes_what_has_been_idle_long_enough(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    cache = ArtifactCache(tmp_path, clock=clock)
    for digest in (A, B, C):
        commit(cache, digest)
        cache.find(digest)
    assert cache.evict((), 21, idle_s_min=0) == []
    clock.advance(299)
    assert cache.evict((), 0) == []
    clock.advance(1)
    assert cache.evict((), 14) == [A], "of equal age by name; two of seven bytes are enough"
    assert cache.evict((), 13) == [B]
    assert cache.evict((), 6, idle_s_min=301) == []


def test_what_is_no_entry_is_not_listed(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    commit(cache, A)
    for name in (".hidden", B):
        write(tmp_path / name, {"entry.json": '{"size": 1}'})
    write(tmp_path / C, {"entry.json": "[]"})
    write(tmp_path, {"file": b"x"})
    assert sorted(row[:2] for row in cache.entries()) == [(A, 7), (B, 1)]
    write(tmp_path / C, {"entry.json": '{"size": "7"}'})
    assert sorted(row[:2] for row in cache.entries()) == [(A, 7), (B, 1), (C, 0)]


def test_a_source_is_what_it_last_was_whatever_its_fingerprint(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    assert cache.find_last("key") is None
    commit(cache, A)
    cache.remember("key", "print-1", A, uri="s3://b/k")
    found = cache.find_last("key")
    assert found is not None
    assert (found.digest, found.size) == (A, 7)
    assert json.loads((tmp_path / ".sources/key.json").read_text()) == {
        "fingerprint": "print-1", "digest": A, "uri": "s3://b/k",
    }  # fmt: skip
    cache.remember("key", "", B, uri="s3://b/k")
    assert cache.find_last("key") == found


def test_a_lookup_is_a_use(tmp_path: Path) -> None:
    clock = ManualClock(wall_s=5_000.0)
    cache = ArtifactCache(tmp_path, clock=clock)
    commit(cache, A)
    cache.find(A)
    clock.advance(7)
    cache.find(A)
    assert cache.entries() == [(A, 7, 5_007.0)]


def test_what_is_already_known_of_the_bytes_is_written_down_as_it_is(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    with cache.staging("test") as staging:
        write(staging / "files", {"f": b"weights"})
        entry = cache.commit(staging / "files", A, what="test", digests={"f": "d" * 64})
        assert (entry.size, entry.root) == (7, tmp_path / A / "files")
    listed = json.loads((tmp_path / A / "entry.json").read_text())
    assert listed == {"schema": 2, "size": 7, "files": {"f": [7, "d" * 64]}}
    assert sorted(path.name for path in (tmp_path / A).iterdir()) == [
        "checked.json", "entry.json", "files",
    ]  # fmt: skip


def test_a_broken_entry_in_the_way_is_replaced(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    write(tmp_path / A, {"entry.json": "{}", "files/sub/model.onnx": b"half"})
    assert (commit(cache, A) / "sub/model.onnx").read_bytes() == b"weights"


def test_who_waits_for_a_source_waits_no_longer_than_its_time(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    hurried = Budget("m", bytes_max=1, seconds_max=0.05)
    with (
        cache.source_lock("key", budget()),
        pytest.raises(NotNowError) as caught,
        cache.source_lock("key", hurried),
    ):
        pass
    assert caught.value.code == "artifact-timeout"
    with cache.source_lock("key", budget()), cache.source_lock("other", budget()):
        pass


def test_folders_above_a_cache_are_made_with_it(tmp_path: Path) -> None:
    commit(ArtifactCache(tmp_path / "a/b/c"), A)
    assert ArtifactCache(tmp_path / "a/b/c").find(A) is not None


def test_a_whole_entry_under_another_name_is_none(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    commit(cache, A)
    (tmp_path / A).rename(tmp_path / "backup")
    assert cache.find("backup") is None
    assert (tmp_path / "backup/files/sub/model.onnx").exists()


def descriptors() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


def test_work_in_a_cache_leaves_no_folder_and_no_descriptor_open(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    before = descriptors()
    commit(cache, A)
    with cache.staging("test") as staging:
        staging.joinpath("file").write_text("left")
        assert len(descriptors()) == len(before) + 1
    with cache.staging("test") as staging:
        staging.rmdir()  # somebody else was tidy
    assert list((tmp_path / ".staging").iterdir()) == []
    (tmp_path / ".staging/of-a-dead-process").mkdir()
    ArtifactCache(tmp_path)
    assert list((tmp_path / ".staging").iterdir()) == []
    assert descriptors() == before


@pytest.mark.parametrize("name", ["EMFILE", "ENOMEM", "ESTALE"])
def test_an_entry_that_can_not_be_read_for_a_moment_is_not_thrown_away(
    tmp_path: Path, name: str
) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    commit(cache, A)
    entry = cache.find(A)
    assert entry is not None
    with FailingDisk(tmp_path / "cache", error=getattr(errno, name)):
        error = error_of(lambda: cache.find(A))
    assert (type(error), error.code) == (NotNowError, "artifact-disk-failed")
    assert cache.find(A) == entry
