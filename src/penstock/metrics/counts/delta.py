"""What a process has counted since its last report, as bytes, to add up several processes.

A gateway process takes a delta from its registry each second, and the process with the store adds
it to its own counts. Counts add up and sketches merge, so percentiles over processes are those of
all requests together, within a sketch's error. Gauges (requests in flight, a loop's lag) are the
source's last values. Times are wall times of one machine.

    format u8 | head_bytes u32 | head (JSON) | the sketches that the head names, one after another

A variant without news costs a row of the head and no sketch. Deltas have no numbers: if the
connection that carries them breaks they are lost, and never repeated.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import orjson

from penstock.errors import CallerError
from penstock.metrics.counts.recorder import VariantDelta
from penstock.metrics.loop_lag import LagObserved
from penstock.metrics.series.sketch import Sketch

FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BI")

PoolId = tuple[str, str, str]  #: (endpoint, variant, component; "" = none)


@dataclass(frozen=True, slots=True)
class PoolDelta:
    """The counts of a variant's own model, or of one component."""

    pool: PoolId
    #: for an adapter: the component on whose copies its requests run; "" = it is no adapter
    base: str
    in_flight: int  #: requests in flight now
    concurrency: dict[int, int]  #: wall second -> requests in flight at its sample
    counted: VariantDelta | None  #: None: nothing happened


@dataclass(frozen=True, slots=True)
class MetricDelta:
    """The counts of one process."""

    since: float  #: wall time at which its counts began
    lag: LagObserved | None  #: of its event loop since its start; None: unreadable
    pools: list[PoolDelta]


def encode(delta: MetricDelta) -> bytes:
    """Inverse of `decode`."""
    blobs: list[bytes] = []
    head = {
        "since": delta.since,
        "lag": None if delta.lag is None else delta.lag.to_dict(),
        "pools": [_row(one, blobs) for one in delta.pools],
    }
    packed = orjson.dumps(head)
    return b"".join((_HEAD.pack(FORMAT, len(packed)), packed, *blobs))


def decode(data: bytes) -> MetricDelta:
    """Decodes a whole delta.

    Raises:
        CallerError: `metrics-delta-unreadable`: torn, or of another version of the format.
    """
    try:
        version, head_bytes = _HEAD.unpack_from(data)
        if version != FORMAT:
            raise ValueError(f"it has format {version}, known is {FORMAT}")
        cut = _HEAD.size + head_bytes
        head: dict[str, Any] = orjson.loads(data[_HEAD.size : cut])
        blobs = _Blobs(data, cut)
        pools = [_pool_delta(row, blobs) for row in head["pools"]]
        lag = head["lag"]
        found = MetricDelta(
            float(head["since"]), None if lag is None else LagObserved.from_dict(lag), pools
        )
        blobs.close()
    except (struct.error, ValueError, LookupError, TypeError, AttributeError, CallerError) as error:
        raise CallerError(
            "metrics-delta-unreadable", f"A metrics delta can't be read: {error}."
        ) from error
    return found


class _Blobs:
    """The sketches after the head, in the order in which it names them."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def next(self, size: int) -> Sketch:
        begin, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise ValueError("it ends inside a sketch")
        return Sketch.from_bytes(self._data[begin : self._at])

    def close(self) -> None:
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are behind its end")


def _row(one: PoolDelta, blobs: list[bytes]) -> list[Any]:
    counted = one.counted
    concurrency = list(one.concurrency.items())
    row: list[Any] = [*one.pool, one.base, one.in_flight, concurrency]
    if counted is None:
        return row
    sizes = {}
    for name in VariantDelta.SKETCHES:
        sketch: Sketch = getattr(counted, name)
        if sketch.count:
            blobs.append(sketch.to_bytes())
            sizes[name] = len(blobs[-1])
    row.append(
        {
            "outcomes": _rows(counted.outcomes.items()),
            "refusals": _rows(counted.refusals.items()),
            "no_capacity": counted.no_capacity,
            "ejections": counted.ejections,
            "broken": counted.broken,
            "batch_rows": list(counted.batch_rows.items()),
            "sketches": sizes,
        }
    )
    return row


def _pool_delta(row: list[Any], blobs: _Blobs) -> PoolDelta:
    endpoint, variant, component, base, in_flight, samples, *rest = row
    concurrency = {int(second): int(count) for second, count in samples}
    counted = None
    if rest:
        (fields,) = rest
        counted = VariantDelta()
        counted.concurrency = concurrency
        counted.outcomes = {
            (int(status), int(model_status), str(door)): int(count)
            for status, model_status, door, count in fields["outcomes"]
        }
        counted.refusals = {
            (str(reason), int(status), str(door)): int(count)
            for reason, status, door, count in fields["refusals"]
        }
        counted.no_capacity = int(fields["no_capacity"])
        counted.ejections = {
            str(reason): int(count) for reason, count in fields["ejections"].items()
        }
        counted.broken = int(fields["broken"])
        counted.batch_rows = {int(rows): int(count) for rows, count in fields["batch_rows"]}
        for name, size in fields["sketches"].items():
            if name not in VariantDelta.SKETCHES:
                raise ValueError(f"it names a sketch {name!r}")
            setattr(counted, name, blobs.next(int(size)))
    pool = str(endpoint), str(variant), str(component)
    return PoolDelta(pool, str(base), int(in_flight), concurrency, counted)


def _rows(items: Iterable[tuple[tuple[Any, ...], int]]) -> list[list[Any]]:
    return [[*key, count] for key, count in items]
