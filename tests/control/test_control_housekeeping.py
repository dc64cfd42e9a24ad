"""What a server leaves on its disk stays within bounds, and what is in use is never removed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.clock import SystemClock
from penstock.control.housekeeping import (
    EMPTY_S_MIN,
    LOG_AGE_S_MAX,
    LOGS_MAX,
    MEMORY_RECORD_BYTES_MAX,
    Housekeeping,
    InUse,
)
from penstock.metrics import item_failures
from penstock.runtimes.container.settings import ContainerSettings

DAY_S = 86_400.0
NOTHING = InUse(digests=frozenset(), logs=frozenset(), loading=False)


def housekeeping(root: Path, *, cache_bytes_max: int = 1000) -> Housekeeping:
    return Housekeeping(
        cache_dir=root / "cache",
        cache_bytes_max=cache_bytes_max,
        log_dir=root / "logs",
        clock=SystemClock(),
        containers=ContainerSettings(),
    )


def aged(path: Path, age_s: float) -> None:
    then = SystemClock().wall() - age_s
    os.utime(path, (then, then))


def artifact(root: Path, digit: str, *, size: int, age_s: float) -> str:
    cache = ArtifactCache(root / "cache" / "artifacts")
    digest = digit * 64
    with cache.staging("a test") as staging:
        (staging / "files").mkdir()
        (staging / "files" / "model.onnx").write_bytes(bytes(size))
        cache.commit(staging / "files", digest, what="a test")
    aged(root / "cache" / "artifacts" / digest / "entry.json", age_s)
    return digest


def log(root: Path, name: str, *, age_s: float) -> Path:
    path = root / "logs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a line\n")
    aged(path, age_s)
    aged(path.parent, age_s)
    return path


def kept(root: Path) -> set[str]:
    return {digest for digest, _, _ in ArtifactCache(root / "cache" / "artifacts").entries()}


def test_the_least_recently_used_artifacts_go_until_the_cache_is_small_enough(
    tmp_path: Path,
) -> None:
    artifact(tmp_path, "a", size=600, age_s=3 * DAY_S)
    newer = artifact(tmp_path, "b", size=600, age_s=2 * DAY_S)
    housekeeping(tmp_path).tidy(NOTHING)
    assert kept(tmp_path) == {newer}


def test_an_artifact_that_a_copy_runs_on_stays(tmp_path: Path) -> None:
    used = artifact(tmp_path, "a", size=600, age_s=3 * DAY_S)
    artifact(tmp_path, "b", size=600, age_s=2 * DAY_S)
    in_use = InUse(digests=frozenset({used}), logs=frozenset(), loading=False)
    housekeeping(tmp_path).tidy(in_use)
    assert kept(tmp_path) == {used}


def test_while_a_model_loads_nothing_is_taken_from_the_cache(tmp_path: Path) -> None:
    """It may have found its artifact already, and nobody knows yet which one."""
    first = artifact(tmp_path, "a", size=600, age_s=3 * DAY_S)
    second = artifact(tmp_path, "b", size=600, age_s=2 * DAY_S)
    housekeeping(tmp_path).tidy(InUse(digests=frozenset(), logs=frozenset(), loading=True))
    assert kept(tmp_path) == {first, second}


def test_compiled_models_have_the_same_bound(tmp_path: Path) -> None:
    artifact(tmp_path, "a", size=1, age_s=0.0)
    compiled = tmp_path / "cache" / "compiled"
    compiled.mkdir()
    for name, age_s in (("old.blob", 2 * DAY_S), ("new.blob", DAY_S)):
        (compiled / name).write_bytes(bytes(700))
        aged(compiled / name, age_s)
    housekeeping(tmp_path).tidy(NOTHING)
    assert [path.name for path in compiled.iterdir()] == ["new.blob"]


def test_logs_of_what_is_gone_stay_a_week(tmp_path: Path) -> None:
    old = log(tmp_path, "gone/all-1-0.log", age_s=LOG_AGE_S_MAX + 10)
    recent = log(tmp_path, "deleted/all-1-0.log", age_s=DAY_S)
    housekeeping(tmp_path).tidy(NOTHING)
    assert not old.exists()
    assert recent.exists()


def test_the_log_of_a_running_instance_stays_however_long_it_has_been_silent(
    tmp_path: Path,
) -> None:
    running = log(tmp_path, "shop/all-2-0.log", age_s=30 * DAY_S)
    aside = log(tmp_path, "shop/all-2-0.log.1", age_s=30 * DAY_S)
    former = log(tmp_path, "shop/all-1-0.log", age_s=30 * DAY_S)
    in_use = InUse(digests=frozenset(), logs=frozenset({running}), loading=False)
    housekeeping(tmp_path).tidy(in_use)
    assert running.exists()
    assert aside.exists()
    assert not former.exists()


def test_a_disk_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "artifacts").write_text("a file where a folder should be")
    housekeeping(tmp_path).tidy(NOTHING)
    assert (tmp_path / "cache" / "artifacts").is_file()


def compiled_model(root: Path, digit: str, *, size: int, age_s: float) -> Path:
    entry = root / "cache" / "compiled-models" / f"{digit * 64}-0123456789ab"
    entry.mkdir(parents=True)
    (entry / "model.bin").write_bytes(bytes(size))
    aged(entry, age_s)
    return entry


def test_compiled_weights_go_oldest_use_first_and_never_while_they_are_served(
    tmp_path: Path,
) -> None:
    served = compiled_model(tmp_path, "a", size=600, age_s=9 * DAY_S)
    older = compiled_model(tmp_path, "b", size=600, age_s=3 * DAY_S)
    newer = compiled_model(tmp_path, "c", size=300, age_s=2 * DAY_S)
    (tmp_path / "cache" / "artifacts").mkdir()
    in_use = InUse(digests=frozenset({"a" * 64}), logs=frozenset(), loading=False)
    housekeeping(tmp_path).tidy(in_use)
    assert set((tmp_path / "cache" / "compiled-models").iterdir()) == {served, newer}
    assert not older.exists()


def test_the_oldest_records_of_memory_go_until_they_are_few(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "memory"
    folder.mkdir(parents=True)
    for number in range(3):
        path = folder / f"{number}.json"
        path.write_bytes(bytes(MEMORY_RECORD_BYTES_MAX // 2))
        aged(path, (3 - number) * DAY_S)
    housekeeping(tmp_path).tidy(NOTHING)
    assert sorted(path.name for path in folder.iterdir()) == ["1.json", "2.json"]


def test_a_file_that_can_not_be_removed_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest log is first; the others of that round go, and so does what comes after logs."""
    stays = log(tmp_path, "a/bad.log", age_s=LOG_AGE_S_MAX + 3 * DAY_S)
    goes = log(tmp_path, "b/old.log", age_s=LOG_AGE_S_MAX + DAY_S)
    record = tmp_path / "cache" / "memory" / "one"
    record.parent.mkdir(parents=True)
    record.write_bytes(bytes(MEMORY_RECORD_BYTES_MAX + 1))
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path == stays:
            raise PermissionError(1, "Operation not permitted", str(path))
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refused)
    before = item_failures.counts().get("housekeeping", 0)
    housekeeping(tmp_path).tidy(NOTHING)
    assert (stays.exists(), goes.exists(), record.exists()) == (True, False, False)
    assert item_failures.counts()["housekeeping"] == before + 1


def test_a_folder_of_logs_goes_soon_after_the_last_of_them(tmp_path: Path) -> None:
    old = log(tmp_path, "gone/all-1-0.log", age_s=LOG_AGE_S_MAX + 10)
    housekeeping(tmp_path).tidy(NOTHING)
    assert not old.exists()
    housekeeping(tmp_path).tidy(NOTHING)
    assert old.parent.exists()  # as if it had just been made for an instance that starts
    aged(old.parent, EMPTY_S_MIN + 10)
    housekeeping(tmp_path).tidy(NOTHING)
    assert not old.parent.exists()


def test_of_many_small_logs_the_oldest_go(tmp_path: Path) -> None:
    logs = [log(tmp_path, f"gone-{one}/a.log", age_s=1000.0 - one) for one in range(7)]
    for one in range(LOGS_MAX - 5):
        (tmp_path / "logs" / "gone-0" / f"more-{one}.log").write_text("")
    housekeeping(tmp_path).tidy(NOTHING)
    assert [path.exists() for path in logs] == [False, False, True, True, True, True, True]
