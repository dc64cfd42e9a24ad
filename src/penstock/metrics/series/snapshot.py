"""The metric store on disk, so that history survives a restart, as far as possible.

A file of JSON lines: a head, then one line per series. It is written beside its place and then
moved, so a crash leaves the old file. A line that can't be read loses only its own series. `take`
is cheap and runs on the store's thread; `write` may run on another thread, as its data no longer
change.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from penstock.durable_files import replace_file
from penstock.errors import CallerError
from penstock.metrics.series.series import Series, SeriesPoint
from penstock.metrics.series.store import ArchivedRow, MetricStore

_HEAD: Final = {"format": "penstock-metrics", "version": 1}


class Snapshot:
    """The series of a store at one moment."""

    def __init__(
        self,
        series: list[tuple[Series, bytes | list[list[SeriesPoint]]]],
        archived: list[ArchivedRow],
    ) -> None:
        self._series = series  #: with the points of each tier, packed for a series at rest
        # The times of their last writes, since writes go on meanwhile.
        self._written_at = [one.written_at for one, _ in series]
        self._archived = archived

    @classmethod
    def take(cls, store: MetricStore) -> Snapshot:
        """Copies the lists. Sealed points are shared: the store replaces them and never changes
        them."""
        return cls(
            [
                (
                    series,
                    series.packed or [[*points[:-1], *_last(points)] for points in series.points()],
                )
                for series in store.series()
            ],
            list(store.archived()),
        )

    def lines(self, written: Mapping[str, float]) -> Iterator[tuple[str, float, bytes]]:
        """(digest of its key, time of its last write, line) of each series that is not in `written`
        with that time."""
        for row in self._archived:
            heads = [(_digest(head["key"]), head["written_at"]) for head in row.heads()]
            if any(written.get(digest) != at for digest, at in heads):
                for (digest, at), fields in zip(heads, row.fields(), strict=True):
                    if written.get(digest) != at:
                        yield digest, at, orjson.dumps(fields)
        for (series, tiers), at in zip(self._series, self._written_at, strict=True):
            digest = _digest(series.key)
            if written.get(digest) != at:
                yield digest, at, orjson.dumps(series.fields_with(tiers))

    def digests(self) -> set[str]:
        """The digests of all series."""
        found = {_digest(series.key) for series, _ in self._series}
        return found.union(_digest(head["key"]) for row in self._archived for head in row.heads())

    def write(self, path: Path) -> None:
        """Replaces the file at `path`. It is private: it shows who is called, and how often.

        Raises:
            OSError: disk full, no such folder; the old file is untouched.
        """
        archived = itertools.chain.from_iterable(row.fields() for row in self._archived)
        others = (series.fields_with(tiers) for series, tiers in self._series)
        rows = itertools.chain((_HEAD,), archived, others)
        replace_file(path, (orjson.dumps(row) + b"\n" for row in rows))


def load(path: Path, store: MetricStore, *, now: float) -> int:
    """Puts the series of a file into `store`; returns their number; 0 if there is no file.

    Raises:
        CallerError: `metrics-file-unreadable`: another format or version, or no permission.
    """
    try:
        lines = path.read_bytes().splitlines()
        if not lines or orjson.loads(lines[0]) != _HEAD:
            raise ValueError("it is not a metrics file of this version")
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise CallerError(
            "metrics-file-unreadable",
            f"Metrics can't be read from {path}: {error}.",
            hint="Remove the file to start with an empty history.",
        ) from error
    return restore(lines[1:], store, now=now)


def restore(lines: Iterable[bytes], store: MetricStore, *, now: float) -> int:
    """Puts series into `store`; returns their number."""
    loaded = 0
    for line in lines:
        try:
            series = Series.from_fields(orjson.loads(line))
        except (ValueError, KeyError, TypeError, IndexError, CallerError):
            continue  # a damaged or foreign line: this series starts anew, the others are intact
        store.restore(series)
        loaded += 1
    store.expire(now)
    return loaded


def _digest(key: Sequence[Any]) -> str:
    return hashlib.sha256(orjson.dumps(list(key))).hexdigest()


def _last(points: list[SeriesPoint]) -> list[SeriesPoint]:
    return [points[-1].sealed_copy()] if points else []
