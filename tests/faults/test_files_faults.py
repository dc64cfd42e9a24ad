"""Files that must outlive a fault: the disk is full, broken or forgets, a descriptor is missing.

Each writer is run with every call failing in turn, and cut off at every moment (`crash_disk`).
Afterwards the same thing works again, nothing that was acknowledged is lost, nothing half-written
is taken for whole, and the error told what to do.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.kit.crash_disk import ERRORS, FaultyDisk, crash_states

from penstock.artifacts.cache.cache import ArtifactCache
from penstock.artifacts.description import model_yaml
from penstock.artifacts.description.description import ModelDescription
from penstock.clock import ManualClock
from penstock.control.access.keys import AccessKeys
from penstock.control.state_dir import StateDirLock
from penstock.control.store.store import Store
from penstock.errors import PenstockError
from penstock.metrics.series.series import MetricKey
from penstock.metrics.series.snapshot import Snapshot, load
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore
from penstock.tune import search
from penstock.tune.search import Setting


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def nothing(_: Path) -> None:
    """Nothing to look at."""


def with_each_fault(
    tmp_path: Path,
    write: Callable[[Path], None],
    *,
    first: Callable[[Path], None] = nothing,
    behind: Callable[[Path], None] = nothing,
    done: Callable[[Path], None],
) -> None:
    """Fails every call of `write` in turn: then `behind` holds, `write` works again, `done` holds.

    A fault may also be survived. It is told as an error of ours with a hint, or as the OSError that
    the writer's docstring promises.
    """
    for error in ERRORS:
        number, failed = 0, True
        while failed:
            number += 1
            folder = tmp_path / f"{errno.errorcode[error]}-{number}"
            folder.mkdir()
            first(folder)
            before = descriptors()
            with FaultyDisk(folder, fail_at=number, error=error) as disk:
                failure = attempt(write, folder)
            failed = disk.failed
            if isinstance(failure, PenstockError):
                assert failure.hint, failure
                assert os.strerror(error) in failure.message, failure
            elif failure is not None:
                assert failure.errno == error
            assert descriptors() <= before, "a descriptor is lost"
            behind(folder)
            with FaultyDisk(folder):  # which does not wait for the real disk
                write(folder)
            done(folder)
        assert number > 2, "no call was seen at all"


def attempt(write: Callable[[Path], None], folder: Path) -> PenstockError | OSError | None:
    try:
        write(folder)
    except (PenstockError, OSError) as error:
        return error
    return None


# The key file


def key(folder: Path) -> tuple[str, str]:
    store = Store(folder)
    try:
        made = AccessKeys(store, folder).create_access_key("test", now=1.0)
        return made.key_id, made.secret
    finally:
        store.close()


def secret_of(folder: Path, key_id: str) -> str | None:
    store = Store(folder)
    try:
        return AccessKeys(store, folder).ring().secret(key_id)
    finally:
        store.close()


def test_a_key_that_was_made_is_there_behind_any_fault(tmp_path: Path) -> None:
    made: list[tuple[str, str]] = []

    def there(folder: Path) -> None:
        key_id, secret = made[-1]
        assert secret_of(folder, key_id) == secret

    with_each_fault(tmp_path, lambda folder: made.append(key(folder)), done=there)


def test_a_key_that_was_made_outlives_a_power_cut(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    Store(folder).close()
    empty = tmp_path / "empty.db"
    shutil.copy(folder / "penstock.db", empty)
    with FaultyDisk(folder) as disk:
        key_id, secret = key(folder)
        disk.mark("made")
    states = list(crash_states(disk))
    assert len(states) > 5
    for number, state in enumerate(states):
        with state.on(tmp_path / f"cut-{number}") as cut:
            # The row is the database's, which syncs its own files, and comes behind the key file.
            shutil.copy(
                folder / "penstock.db" if "made" in state.marks else empty, cut / "penstock.db"
            )
            if "made" in state.marks:
                assert secret_of(cut, key_id) == secret, state.story
            again, other = key(cut)
            assert secret_of(cut, again) == other, state.story


# Metrics


def metrics(value: float) -> MetricStore:
    store = MetricStore()
    for name in ("A", "B"):
        one = StatisticSet.from_values(1.0, value, value, value)
        store.put(MetricKey("N", name, (), "None"), 60.0, one, now=60.0)
    return store


def read_metrics(path: Path) -> list[float]:
    store = MetricStore()
    load(path, store, now=61.0)
    found = (store.read_merged(metric, 0.0, 120.0, 60) for metric in store.metrics())
    return [stats.total for buckets in found for stats in buckets.values()]


def write_metrics(folder: Path, value: float = 2.0) -> None:
    Snapshot.take(metrics(value)).write(folder / "metrics.jsonl")


def test_metrics_are_the_old_ones_or_the_new_ones_behind_any_fault(tmp_path: Path) -> None:
    def whole(folder: Path) -> None:
        assert read_metrics(folder / "metrics.jsonl") in ([1.0, 1.0], [2.0, 2.0])

    with_each_fault(
        tmp_path,
        write_metrics,
        first=lambda folder: write_metrics(folder, 1.0),
        behind=whole,
        done=lambda folder: read_metrics_are(folder / "metrics.jsonl", 2.0),
    )


def read_metrics_are(path: Path, value: float) -> None:
    assert read_metrics(path) == [value, value]


def test_metrics_are_the_old_ones_or_the_new_ones_behind_a_power_cut(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    Snapshot.take(metrics(1.0)).write(folder / "metrics.jsonl")
    with FaultyDisk(folder) as disk:
        Snapshot.take(metrics(2.0)).write(folder / "metrics.jsonl")
    seen = []
    for number, state in enumerate(crash_states(disk)):
        with state.on(tmp_path / f"cut-{number}") as cut:
            seen.append(read_metrics(cut / "metrics.jsonl"))
            assert seen[-1] in ([1.0, 1.0], [2.0, 2.0]), state.story
            Snapshot.take(metrics(3.0)).write(cut / "metrics.jsonl")
            read_metrics_are(cut / "metrics.jsonl", 3.0)
    assert [1.0, 1.0] in seen
    assert [2.0, 2.0] in seen


# model.yaml, as `penstock tune --write` leaves it

DESCRIPTION = ModelDescription(runtime="python", task="payload", file="code/inference.py")


def tuned(folder: Path, rows_max: int = 8) -> None:
    search.write(folder, DESCRIPTION, setting(rows_max))


def setting(rows_max: int) -> Setting:
    return Setting(rows_max=rows_max, wait_s_max=0.002, lanes=2, threads=1)


def rows_max_of(folder: Path) -> int:
    return model_yaml.load(folder).batching.rows_max


def test_model_yaml_is_whole_behind_any_fault(tmp_path: Path) -> None:
    def whole(folder: Path) -> None:
        assert rows_max_of(folder) in (4, 8)
        assert os.listdir(folder) == ["model.yaml"], "a draft is left beside it"

    def done(folder: Path) -> None:
        assert rows_max_of(folder) == 8

    with_each_fault(tmp_path, tuned, first=lambda folder: tuned(folder, 4), behind=whole, done=done)


def test_model_yaml_is_whole_behind_a_power_cut(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    tuned(folder, 4)
    with FaultyDisk(folder) as disk:
        tuned(folder, 8)
        disk.mark("written")
    seen = set()
    for number, state in enumerate(crash_states(disk)):
        with state.on(tmp_path / f"cut-{number}") as cut:
            found = rows_max_of(cut)
            assert found in ((8,) if "written" in state.marks else (4, 8)), state.story
            seen.add((found, "written" in state.marks))
    assert seen == {(4, False), (8, False), (8, True)}


# The artifact cache

FILES = {"model.onnx": b"weights" * 1000, "sub/labels.txt": b"yes\nno\n"}
DIGEST = "ab" * 32


def commit(root: Path) -> None:
    """As `prepare` does: files into staging, from there into the cache in one step."""
    cache = ArtifactCache(root, clock=ManualClock())
    with cache.staging("test") as staging:
        files = staging / "files"
        for name, content in FILES.items():
            (files / name).parent.mkdir(parents=True, exist_ok=True)
            (files / name).write_bytes(content)
        cache.commit(files, DIGEST, what="test")


def cached(root: Path) -> dict[str, bytes] | None:
    entry = ArtifactCache(root, clock=ManualClock()).find(DIGEST)
    if entry is None:
        return None
    return {
        path.relative_to(entry.root).as_posix(): path.read_bytes()
        for path in entry.root.rglob("*")
        if path.is_file()
    }


def test_what_the_cache_finds_is_whole_behind_any_fault(tmp_path: Path) -> None:
    def whole(folder: Path) -> None:
        assert cached(folder / "cache") in (None, FILES)

    def done(folder: Path) -> None:
        assert cached(folder / "cache") == FILES
        assert os.listdir(folder / "cache" / ".staging") == []

    with_each_fault(tmp_path, lambda folder: commit(folder / "cache"), behind=whole, done=done)


def test_what_the_cache_finds_is_whole_behind_a_power_cut(tmp_path: Path) -> None:
    """An entry may be lost, it is fetched again; it must not be found with other bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with FaultyDisk(folder) as disk:
        commit(folder / "cache")
    states = list(crash_states(disk))
    assert len(states) > 10
    for number, state in enumerate(states):
        with state.on(tmp_path / f"cut-{number}") as cut:
            assert cached(cut / "cache") in (None, FILES), state.story
            with FaultyDisk(cut):
                commit(cut / "cache")
            assert cached(cut / "cache") == FILES, state.story


# The lock of a state directory


def test_the_lock_is_taken_behind_any_fault(tmp_path: Path) -> None:
    def lock(folder: Path) -> None:
        StateDirLock(folder / "state").release()

    with_each_fault(tmp_path, lock, done=nothing)


def test_the_lock_is_taken_behind_a_power_cut(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir()
    with FaultyDisk(folder) as disk:
        StateDirLock(folder / "state").release()
    states = list(crash_states(disk))
    assert len(states) > 1
    for number, state in enumerate(states):
        with state.on(tmp_path / f"cut-{number}") as cut:
            StateDirLock(cut / "state").release()
