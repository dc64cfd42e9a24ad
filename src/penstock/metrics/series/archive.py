"""Series that rest, packed together by whom they are of.

An endpoint that is gone leaves a dozen series with a few datapoints each. As objects of their own
they took seven times the memory of what they hold, so all series with one first dimension (the
name of an endpoint, mostly) become one row here once none of them is used. They are listed without
being unpacked; whoever reads or writes one of them takes the whole row back out.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import orjson

from penstock.metrics.series.series import MetricKey, Series, key_of_fields

#: Packed series that are larger, some 1,000 points together, stay as they are: unpacking them would
#: keep the event loop, and their objects are a small part of them.
_BYTES_MAX: Final = 64 * 1024

Group = tuple[tuple[str, str], ...]  #: the first dimension, name and value; empty: there is none


def may_go_in(group: Group, series: Sequence[Series]) -> bool:
    """Whether all of them, which is the whole group, are at rest and small."""
    return (
        bool(group)
        and all(one.packed for one in series)
        and sum(len(one.packed) for one in series) <= _BYTES_MAX
    )


class ArchivedRow:
    """The series of one group. It is never changed, so a thread may read it."""

    __slots__ = ("_heads", "_tiers", "count", "expires_at", "newest_at", "written_at")

    def __init__(self, series: Sequence[Series]) -> None:
        """All of them are at rest."""
        fields = [one.to_fields() for one in series]
        tiers = [one.pop("tiers") for one in fields]
        self._heads = zlib.compress(orjson.dumps(fields))
        self._tiers = zlib.compress(orjson.dumps(tiers))
        self.count = len(series)
        self.expires_at = min(one.expires_at for one in series)
        self.newest_at = max(one.newest_at for one in series)
        self.written_at = max(one.written_at for one in series)

    @property
    def bytes_used(self) -> int:
        return len(self._heads) + len(self._tiers)

    def heads(self) -> list[dict[str, Any]]:
        """The fields of each series but its points."""
        found: list[dict[str, Any]] = orjson.loads(zlib.decompress(self._heads))
        return found

    def fields(self) -> Iterator[dict[str, Any]]:
        """All fields of each series, as `Series.to_fields` gave them."""
        tiers = orjson.loads(zlib.decompress(self._tiers))
        for head, rows in zip(self.heads(), tiers, strict=True):
            yield head | {"tiers": rows}


class Archive:
    """Rows by group, in the order in which they came to rest."""

    def __init__(self) -> None:
        self._rows: dict[Group, ArchivedRow] = {}
        self.series_count = 0
        self.bytes_used = 0

    def rows(self) -> Iterable[ArchivedRow]:
        return self._rows.values()

    def add(self, group: Group, series: Sequence[Series]) -> None:
        """Takes all series of a group, which may go in; the caller forgets them."""
        row = self._rows[group] = ArchivedRow(series)
        self.series_count += row.count
        self.bytes_used += row.bytes_used

    def take(self, group: Group) -> list[Series]:
        """Gives the series of a group back; none where it is not here."""
        row = self._rows.pop(group, None)
        if row is None:
            return []
        self.series_count -= row.count
        self.bytes_used -= row.bytes_used
        return [Series.from_fields(fields) for fields in row.fields()]

    def due(self, now: float) -> list[Group]:
        """Groups with a point that is older than its retention."""
        return [group for group, row in self._rows.items() if now >= row.expires_at]

    def first(self) -> tuple[Group, float]:
        """What came to rest before all others, and when it was written last: `inf` for none."""
        for group, row in self._rows.items():
            return group, row.written_at
        return (), math.inf

    def keys(self, newest_since: float) -> Iterator[MetricKey]:
        """Of all series with a sample at or after `newest_since`."""
        for row in self._rows.values():
            if row.newest_at >= newest_since:
                for head in row.heads():
                    if head["newest_at"] >= newest_since:
                        yield key_of_fields(head)
