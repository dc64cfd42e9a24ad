"""Objects of a bucket: lists a prefix, and reads an object from any position, ahead."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.paths import is_clutter, safe_path
from penstock.artifacts.sources.fetch import s3_parts
from penstock.artifacts.sources.object_store import objects_below, remote_error, s3_store, stamp_of
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.core.jobs.spec import InputObject
from penstock.errors import PenstockError
from penstock.records.objects.local_objects import FoundObject
from penstock.records.refusals import changed, key_unsafe, not_found, of_data, too_many

#: Bytes of one request. Two requests are in memory: one is read, one is under way.
_RANGE_BYTES: Final = 4 * 1024 * 1024
#: Bytes that the first request reads beyond the certain part: the end of a line is near.
_BEHIND_BYTES: Final = 32 * 1024
_CHUNK_BYTES: Final = 256 * 1024


def below(
    uri: str, settings: ArtifactSettings, budget: Budget, *, objects_max: int
) -> list[FoundObject]:
    """All objects whose keys begin with the prefix, except markers of folders."""
    bucket, prefix = s3_parts(uri, budget)
    store = s3_store(bucket, endpoint=settings.s3_endpoint, budget=budget)
    folder, _, start = prefix.rpartition("/")
    items = _named(store, folder, start, budget, objects_max)
    if not items:
        raise not_found(f"{budget.what}: no key begins with that prefix")
    if start and all(name.startswith(f"{start}/") for name in items):
        items = {name.removeprefix(f"{start}/"): item for name, item in items.items()}
    return [_found(bucket, name, item, budget) for name, item in items.items()]


def one(bucket: str, key: str, name: str, store: Any, budget: Budget) -> FoundObject:
    """The object of this key, named `name`. Raises `CallerError` (`artifact-not-found`)."""
    obstore = importlib.import_module("obstore")
    try:
        item = obstore.head(store, key)
    except Exception as error:
        raise remote_error(f"{budget.what} ({key})", error) from error
    return _found(bucket, name, item, budget)


def _found(bucket: str, name: str, item: Any, budget: Budget) -> FoundObject:
    key = safe_path(name, where=budget.what)
    return FoundObject(key, f"s3://{bucket}/{item['path']}", int(item["size"]), stamp_of(item))


def _named(store: Any, folder: str, start: str, budget: Budget, objects_max: int) -> dict[str, Any]:
    """The objects by their names below the folder."""
    exceptions = importlib.import_module("obstore.exceptions")
    before = f"{folder}/" if folder else ""
    # Only a hint where to begin: that very key, and stores that ignore it, are handled too.
    after = before + start[:-1] if len(start) > 1 else ""
    items: dict[str, Any] = {}
    try:
        for name, item in objects_below(store, folder, budget=budget, after=after):
            if name.startswith(start):
                items[name] = item
            elif items and name > start:
                break  # keys are sorted, so no further one matches
            if len(items) > objects_max:
                raise too_many(f"{budget.what}: more than {objects_max} objects below the prefix")
    except PenstockError as error:
        if isinstance(error.__cause__, exceptions.InvalidPathError):
            raise key_unsafe(
                f"{budget.what}: a key below the prefix has an empty, '.' or '..' part"
            ) from error
        raise
    # Consoles mark a folder by an empty object of its name.
    folders = {name[:end] for name in items for end, char in enumerate(name) if char == "/"}
    return {
        name: item
        for name, item in items.items()
        if not (name in folders and item["size"] == 0) and not is_clutter(name)
    }


@contextmanager
def opened(one: InputObject, settings: ArtifactSettings, budget: Budget) -> Iterator[S3Bytes]:
    bucket, key = s3_parts(one.uri, budget)
    store = s3_store(bucket, endpoint=settings.s3_endpoint, budget=budget)
    with ThreadPoolExecutor(1, "read-ahead") as pool:
        yield S3Bytes(one, store, key, pool, budget.what)


class S3Bytes:
    """An object by ranged reads. Each answer is of the listed version, or raises an error."""

    def __init__(
        self, one: InputObject, store: Any, key: str, pool: ThreadPoolExecutor, what: str
    ) -> None:
        self.size = one.size
        self._stamp = one.stamp
        self._store = store
        self._key = key
        self._pool = pool
        self._what = what
        self._obstore = importlib.import_module("obstore")

    def chunks(self, start: int, stop: int, *, sure: int | None = None) -> Iterator[bytes]:
        """As `ObjectBytes.chunks`; bytes up to `sure` are requested ahead."""
        stop = min(stop, self.size)
        ranges = _ranges(start, stop, stop if sure is None else min(sure, stop))
        waiting: Future[bytes] | None = None
        for begin, end, ahead in ranges:
            asked = self._pool.submit(self._range, begin, end) if ahead else None
            if waiting is not None:
                yield from _pieces(waiting.result())
            waiting = asked
            if asked is None:
                yield from _pieces(self._range(begin, end))
        if waiting is not None:
            yield from _pieces(waiting.result())

    def _range(self, start: int, stop: int) -> bytes:
        try:
            result = self._obstore.get(self._store, self._key, options={"range": (start, stop)})
            data = bytes(result.bytes())
        except Exception as error:
            raise of_data(remote_error(self._what, error)) from error
        if stamp_of(result.meta) != self._stamp or len(data) != stop - start:
            raise changed(f"{self._what}: it is another one than when the job began")
        return data


def _ranges(start: int, stop: int, sure: int) -> Iterator[tuple[int, int, bool]]:
    """(from, to, whether it is certainly read); the rest comes in sizes that double."""
    at = start
    while at < sure:
        end = min(at + _RANGE_BYTES, sure)
        yield at, end, True
        at = end
    size = _BEHIND_BYTES
    while at < stop:
        end = min(at + size, stop)
        yield at, end, False
        at, size = end, min(2 * size, _RANGE_BYTES)


def _pieces(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), _CHUNK_BYTES):
        yield data[at : at + _CHUNK_BYTES]
