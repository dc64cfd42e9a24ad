"""Counts every request: one recorder per variant, or per component.

The hot path only adds integers and appends floats to flat arrays. About once per second `take()`
turns them into a `VariantDelta`. Deltas can be added up: that is how several gateway processes give
one metric. A recorder knows no clock, no store and no metric names.

A gateway process takes a delta of all its recorders from its registry each second, and the process
with the store adds it to its own counts. Counts add up and sketches merge, so percentiles over
processes are those of all requests together, within a sketch's error. Gauges (requests in flight, a
loop's lag) are the source's last values. Times are wall times of one machine. On the way it is the
version of its form in a byte, and `MetricDelta` in MessagePack. A variant without news costs some
bytes and no sketch. Deltas have no numbers: if the connection that carries them breaks they are
lost, and never repeated.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import field

from penstock.errors import CallerError
from penstock.metrics.loop_lag import LagObserved
from penstock.metrics.series.sketch import Sketch

#: The status of a request whose client went away (nginx's convention).
STATUS_CANCELLED: Final = 499

MICROSECONDS: Final = 1e6

# What becomes of captured calls, with a reason where it has one.
CAPTURE_TAKEN: Final = "taken"  #: calls that were sampled and kept
CAPTURE_DROPPED: Final = "dropped"  #: calls of which no line was written
CAPTURE_WRITTEN_BYTES: Final = "written-bytes"
CAPTURE_WRITE_FAILED: Final = "write-failed"  #: tries to write a file

#: Skipped seconds that get the next sample's value; in a longer gap the load is unknown.
_SKIPPED_S_MAX: Final = 3

#: If the wall clock went back further, it was set. To wait until it catches up would blind
#: autoscaling.
CLOCK_BACK_S_MAX: Final = 60


class GenerationCounts(msgspec.Struct, eq=False, forbid_unknown_fields=True):
    """Counts of streamed and of generated answers, the same in deltas, windows and totals."""

    GENERATION_SKETCHES: ClassVar = (
        "first_chunk_us", "first_token_us", "token_us", "tokens_in", "tokens_out",
    )  # fmt: skip

    #: from a request to the first part of its streamed answer
    first_chunk_us: Sketch = field(default_factory=Sketch)
    first_token_us: Sketch = field(default_factory=Sketch)  #: of generated answers
    #: mean time per token of one answer, after its first token
    token_us: Sketch = field(default_factory=Sketch)
    tokens_in: Sketch = field(default_factory=Sketch)  #: of each generated answer
    tokens_out: Sketch = field(default_factory=Sketch)
    broken: int = 0  #: streamed answers that ended with an error after their first part

    def add_generation(self, other: GenerationCounts) -> None:
        """Adds what `other` counted."""
        for name in self.GENERATION_SKETCHES:
            getattr(self, name).merge(getattr(other, name))
        self.broken += other.broken


class VariantDelta(GenerationCounts):
    """What happened at one variant since the last delta."""

    SKETCHES: ClassVar = (
        "total_s", "queue_s", "run_s", "model_latency_us", "overhead_us",
        *GenerationCounts.GENERATION_SKETCHES,
    )  # fmt: skip

    #: (status, model status, door) -> requests that ended
    outcomes: dict[tuple[int, int, str], int] = field(default_factory=dict)
    #: (reason, status, door) -> requests refused before they were in flight
    refusals: dict[tuple[str, int, str], int] = field(default_factory=dict)
    no_capacity: int = 0  #: requests for which the variant had no copy at all
    #: reason -> number of times that routing excluded a copy for a while
    ejections: dict[str, int] = field(default_factory=dict)
    #: rows of the batch -> requests answered in such a batch
    batch_rows: dict[int, int] = field(default_factory=dict)
    #: rows of the batch -> (batches, s that lanes ran them): the sums of the requests' own shares
    runs: dict[int, tuple[float, float]] = field(default_factory=dict)
    answered_s: float = 0.0  #: the part of `total_s` that is of requests without an error
    #: (what became of captured calls, reason) -> calls, or bytes
    captures: dict[tuple[str, str], int] = field(default_factory=dict)
    #: of a shadow variant: mirrored, or why a sampled request was not copied to it -> requests
    mirrors: dict[str, int] = field(default_factory=dict)
    #: (number of a rollout, what became of a pair of answers) -> pairs
    compared: dict[tuple[int, str], int] = field(default_factory=dict)
    #: wall second -> requests in flight at its sample
    concurrency: dict[int, int] = field(default_factory=dict)
    total_s: Sketch = field(default_factory=Sketch)
    queue_s: Sketch = field(default_factory=Sketch)
    run_s: Sketch = field(default_factory=Sketch)
    model_latency_us: Sketch = field(default_factory=Sketch)  #: with `overhead_us`, CloudWatch's
    overhead_us: Sketch = field(default_factory=Sketch)  #: split of the total

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened. It may still hold samples of requests in flight."""
        return not (
            self.outcomes
            or self.refusals
            or self.no_capacity
            or self.ejections
            or self.broken
            or self.batch_rows
            or self.captures
            or self.mirrors
            or self.compared
            or any(getattr(self, name).count for name in self.SKETCHES)
        )


class VariantRecorder:
    """Counts the requests of one variant, or of one component, in one process.

    Per request call either `started` and then one of `finished` and `cancelled`, or `refused`
    alone. Call `no_capacity` in addition if the variant had no copy that could have answered.
    """

    def __init__(self, endpoint: str, variant: str, component: str = "") -> None:
        self.endpoint = endpoint
        self.variant = variant
        self.component = component  #: empty: the variant's own model
        self.in_flight = 0  #: accepted requests whose last byte was not yet written
        self.retired = False  #: no new requests come, so it goes when its last one is counted
        #: for an adapter: the component on whose copies its requests run; empty: it is no adapter
        self.base = ""
        #: of a component that is a shadow: no caller's requests, so its variant counts none of them
        self.apart = False
        self._pending = VariantDelta()
        self._sampled_second = -1
        self._outcomes: dict[tuple[int, int, str], int] = {}
        self._refusals: dict[tuple[str, int, str], int] = {}
        self._batch_rows: dict[int, int] = {}
        self._runs: dict[int, tuple[float, float]] = {}
        self._answered_s = 0.0
        self._no_capacity = 0
        self._total_s = array("d")
        self._queue_s = array("d")
        self._run_s = array("d")
        # Looked up once: the arrays live as long as the recorder and are emptied in place.
        self._add_total_s = self._total_s.append
        self._add_queue_s = self._queue_s.append
        self._add_run_s = self._run_s.append

    def started(self) -> None:
        """A request was accepted and is in flight from now on."""
        self.in_flight += 1

    def finished(
        self,
        status: int,
        total_s: float,
        queue_s: float,
        run_s: float,
        batch_rows: int = 0,
        door: str = "runtime",
        model_status: int = 0,
        lane_s: float = 0.0,
    ) -> None:
        """The last byte of the answer was written.

        Args:
            status: HTTP status that the client got, or its equivalent.
            total_s: from the request's first byte to the answer's last.
            queue_s: waiting in the copy's queue; 0 if it never got there.
            run_s: in the model; 0 if the model never ran.
            batch_rows: rows of the batch in which it was answered; 0 if there was none.
            door: the front door of the request, as in `RequestMeta.door`.
            model_status: the status of a failed model, or its equivalent; 0 if it did not fail.
            lane_s: the request's own share of `run_s`, by its rows; 0 if that is not known, and
                then it is taken for one row.
        """
        self.in_flight -= 1
        key = (status, model_status, door)
        outcomes = self._outcomes
        outcomes[key] = outcomes.get(key, 0) + 1
        self._add_total_s(total_s)
        self._add_queue_s(queue_s)
        self._add_run_s(run_s)
        if batch_rows:
            rows = self._batch_rows
            rows[batch_rows] = rows.get(batch_rows, 0) + 1
        if status < 400 and not model_status:
            self._answered_s += total_s
            if batch_rows:
                known = lane_s > 0.0 < run_s
                share = lane_s / run_s if known else 1.0 / batch_rows
                batches, lanes_s = self._runs.get(batch_rows, (0.0, 0.0))
                self._runs[batch_rows] = batches + share, lanes_s + share * run_s

    def cancelled(self, door: str = "runtime") -> None:
        """The client went away while the request was in flight."""
        self.in_flight -= 1
        key = (STATUS_CANCELLED, 0, door)
        self._outcomes[key] = self._outcomes.get(key, 0) + 1

    def refused(self, reason: str, status: int = 503, door: str = "runtime") -> None:
        """A request was refused before it was in flight; `reason` is a kebab-case code."""
        key = (reason, status, door)
        self._refusals[key] = self._refusals.get(key, 0) + 1

    def no_capacity(self) -> None:
        """A variant had no copy when a request came, which was then held or refused."""
        self._no_capacity += 1

    def ejected(self, reason: str) -> None:
        """Routing excludes a copy for a while; `reason` as in `core/routing/outliers.py`."""
        ejections = self._pending.ejections
        ejections[reason] = ejections.get(reason, 0) + 1

    def streamed(self, first_chunk_s: float) -> None:
        """The first part of a streamed answer came `first_chunk_s` after the request."""
        self._pending.first_chunk_us.add(first_chunk_s * MICROSECONDS)

    def generated(
        self, tokens_in: int, tokens_out: int, first_token_s: float, per_token_s: float
    ) -> None:
        """A generated answer is complete.

        Args:
            first_token_s: from the request to its first token; 0 if unknown.
            per_token_s: mean time per token after the first; 0 if there was none.
        """
        pending = self._pending
        pending.tokens_in.add(tokens_in)
        pending.tokens_out.add(tokens_out)
        if first_token_s > 0:
            pending.first_token_us.add(first_token_s * MICROSECONDS)
        if per_token_s > 0:
            pending.token_us.add(per_token_s * MICROSECONDS)

    def captured(self, what: str, reason: str = "", times: int = 1) -> None:
        """Data capture; `what` is one of the words above."""
        captures = self._pending.captures
        captures[what, reason] = captures.get((what, reason), 0) + times

    def mirrored(self, outcome: str) -> None:
        """A request was sampled for this shadow variant; `outcome` as in
        `core/request/mirroring.py`, or a reason of routing."""
        mirrors = self._pending.mirrors
        mirrors[outcome] = mirrors.get(outcome, 0) + 1

    def compared(self, rollout: int, outcome: str) -> None:
        """The answers of two generations to one request; `outcome` as in
        `core/rollout/agreement.py`."""
        compared = self._pending.compared
        compared[rollout, outcome] = compared.get((rollout, outcome), 0) + 1

    def broken(self) -> None:
        """A streamed answer ended with an error after its first part."""
        self._pending.broken += 1

    def sample(self, now: float) -> None:
        """Records the requests in flight for the wall second `now`; later calls in that second do
        nothing.

        Seconds that a late call skipped get the same number. Processes are summed, so a second that
        one of them lacks would look like a drop in load.
        """
        second = int(now)
        skipped = second - self._sampled_second - 1
        if -CLOCK_BACK_S_MAX < skipped < 0:
            return
        first = second - skipped if 0 < skipped <= _SKIPPED_S_MAX else second
        for sampled in range(first, second + 1):
            self._pending.concurrency[sampled] = self.in_flight
        self._sampled_second = second

    def drain(self) -> None:
        """Moves buffered durations into sketches. Ten calls per second keep each below 1 ms."""
        if not self._total_s:
            return
        total_s, queue_s, run_s = (
            _emptied(buffer) for buffer in (self._total_s, self._queue_s, self._run_s)
        )
        pending = self._pending
        ran = run_s > 0
        if not ran.all():
            pending.overhead_us.add_many(total_s[~ran] * MICROSECONDS)
        pending.total_s.add_many(total_s)
        total_s, queue_s, run_s = total_s[ran], queue_s[ran], run_s[ran]
        model_s = queue_s + run_s
        pending.queue_s.add_many(queue_s)
        pending.run_s.add_many(run_s)
        pending.model_latency_us.add_many(model_s * MICROSECONDS)
        # Two processes measure the two durations, so the difference may be slightly negative.
        pending.overhead_us.add_many(np.maximum(total_s - model_s, 0.0) * MICROSECONDS)

    def take(self) -> VariantDelta:
        """All counts since the last call. The caller owns the result."""
        self.drain()
        delta, self._pending = self._pending, VariantDelta()
        delta.outcomes, self._outcomes = self._outcomes, {}
        delta.refusals, self._refusals = self._refusals, {}
        delta.batch_rows, self._batch_rows = self._batch_rows, {}
        delta.runs, self._runs = self._runs, {}
        delta.answered_s, self._answered_s = self._answered_s, 0.0
        delta.no_capacity, self._no_capacity = self._no_capacity, 0
        return delta


def _emptied(buffer: array[float]) -> npt.NDArray[np.float64]:
    values = np.array(buffer, dtype=np.float64)
    del buffer[:]
    return values


FORMAT: Final = 6
PoolId = tuple[str, str, str]  #: (endpoint, variant, component; "" = none)


@dataclass(frozen=True, slots=True)
class PoolDelta:
    """The counts of a variant's own model, or of one component."""

    pool: PoolId
    #: for an adapter: the component on whose copies its requests run; "" = it is no adapter
    base: str
    config: str  #: endpoint configuration of the copies that were asked; "" = not known
    in_flight: int  #: requests in flight now
    concurrency: dict[int, int]  #: wall second -> requests in flight at its sample
    counted: VariantDelta | None  #: None: nothing happened
    #: of a component that is a shadow: no caller's requests, so its variant counts none of them
    apart: bool = False


@dataclass(frozen=True, slots=True)
class MetricDelta:
    """The counts of one process."""

    since: float  #: wall time at which its counts began
    lag: LagObserved | None  #: of its event loop since its start; None: unreadable
    pools: list[PoolDelta]


def encode(delta: MetricDelta) -> bytes:
    """Inverse of `decode`."""
    return bytes((FORMAT,)) + msgspec.msgpack.encode(delta, enc_hook=_packed)


def decode(data: bytes) -> MetricDelta:
    """Decodes a whole delta.

    Raises:
        CallerError: `metrics-delta-unreadable`: torn, or of another version of the format.
    """
    try:
        if data[:1] != bytes((FORMAT,)):
            raise ValueError(f"it does not begin with format {FORMAT}")
        return msgspec.msgpack.decode(data[1:], type=MetricDelta, dec_hook=_unpacked)
    except (ValueError, CallerError) as error:
        raise CallerError(
            "metrics-delta-unreadable", f"A metrics delta can't be read: {error}."
        ) from error


def _packed(sketch: Any) -> bytes:
    """An empty sketch has no bytes."""
    packed: bytes = sketch.to_bytes() if sketch.count else b""
    return packed


def _unpacked(_kind: type, packed: Any) -> Sketch:
    if not isinstance(packed, bytes):
        raise ValueError("a sketch is no bytes")
    return Sketch.from_bytes(packed) if packed else Sketch()
