"""What is kept of finished requests: counts for metrics, and the last ones for people.

`penstock.metrics.counts.registry.MetricRegistry` makes a recorder per variant or component; tests
use their own. The last requests of a process are a ring of tuples: a request costs one tuple and
one store, and nothing is formatted until somebody asks. The tuples hold only numbers and texts, so
the garbage collector soon stops tracking them. Request numbers count up, so a number gives its
index in the ring.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.errors import ModelError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.request_id import RequestIds
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.wire.frames import BATCH_REASONS

SIZE = 16_384
#: What the number of a request's copy for a shadow variant has added to the request's own, so that
#: each can be found by the other's. The place in the ring is of a request half a ring ago.
_MIRROR = (1 << 47) + SIZE // 2
_NO_BATCH = (0, 0, 0, 0)


def mirror_number(number: int) -> int:
    """The number of the copy of a request for a shadow variant."""
    return number + _MIRROR


class Recorders(Protocol):
    def recorder(
        self, endpoint: str, variant: str, component: str = "", config: str = ""
    ) -> VariantRecorder:
        """The recorder of a variant, or of one of its components, made on first use. `config`: the
        endpoint configuration of its copies."""


class NoRecorder(VariantRecorder):
    """Counts nothing. It is also a `Recorders` that returns itself."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", "")

    def recorder(
        self, endpoint: str, variant: str, component: str = "", config: str = ""
    ) -> VariantRecorder:
        return self

    def _nothing(self, *_: object, **__: object) -> None:
        return

    started = finished = cancelled = refused = no_capacity = _nothing
    streamed = generated = broken = ejected = captured = mirrored = compared = _nothing


def record_failure(invocation: Invocation, status: int, total_s: float) -> None:
    """Records a request that ended with an error."""
    error, reply = invocation.error, invocation.reply
    model_status = error.original_status if isinstance(error, ModelError) else 0
    if error is not None and invocation.stream is not None and invocation.stream.first_at:
        # The client got a 200 and then a broken answer: this is no refusal that may pass later.
        model_status = max(model_status, 500)
    queue_s = run_s = 0.0
    batch_rows = 0
    if reply is not None:
        queue_s, run_s, batch_rows = reply.queue_us * 1e-6, reply.run_us * 1e-6, reply.batch_rows
    invocation.recorder.finished(
        status, total_s, queue_s, run_s, batch_rows, invocation.door, model_status
    )


class RequestRing(ABC):
    """The last `SIZE` requests of a process. Each row begins with the request's number."""

    def __init__(self, ids: RequestIds) -> None:
        self._ids = ids
        self._rows: list[tuple[Any, ...] | None] = [None] * SIZE
        self._trace_ids: dict[int, tuple[int, int]] = {}  #: index in the ring -> (number, trace id)

    @abstractmethod
    def record(self, invocation: Invocation, status: int, total_s: float) -> None:
        """Stores a finished request."""

    def put(self, row: tuple[Any, ...]) -> None:
        """Stores the row of a finished request."""
        self._rows[row[0] % SIZE] = row

    def traced(self, number: int, trace_id: int) -> None:
        """Stores the trace id of a request."""
        self._trace_ids[number % SIZE] = (number, trace_id)

    def find(self, request_id: str) -> tuple[tuple[Any, ...], dict[str, str]] | None:
        """The row, and its trace id as a field for people if it has one. None if the request is
        unknown, not finished, or too old."""
        number = self._ids.number(request_id)
        if number is None:
            return None
        row = self._rows[number % SIZE]
        if row is None or row[0] != number:
            return None
        known, trace_id = self._trace_ids.get(number % SIZE, (0, 0))
        return row, {"trace_id": f"{trace_id:032x}"} if known == number else {}


class ExplainRing(RequestRing):
    """What a gateway knows of its last requests."""

    def __init__(self, clock: Clock, ids: RequestIds) -> None:
        super().__init__(ids)
        self._clock = clock

    def record(self, invocation: Invocation, status: int, total_s: float) -> None:
        route = invocation.route
        reply = invocation.reply
        error = invocation.error
        if reply is None:
            batch: tuple[int, int, int, int] = _NO_BATCH
            code: str | None = error.code if error is not None else "cancelled"
        else:
            batch = (reply.batch_rows, reply.reason, reply.queue_us, reply.run_us)
            code = error.code if error is not None else None
        row = (
            invocation.number,
            invocation.endpoint,
            invocation.door,
            route
            and (
                route.variant,
                route.state.copy,
                route.state.instance_id,
                route.reason,
                route.outstanding,
            ),
            invocation.attempts,
            status,
            invocation.received,
            total_s,
            batch,
            code,
            invocation.stream,
        )
        self._rows[invocation.number % SIZE] = row  # inlined `put`: it saves a call

    def explain(self, request_id: str) -> dict[str, Any] | None:
        """Why this request went where it did; None if it is unknown, not finished, or too old."""
        found = self.find(request_id)
        if found is None:
            return None
        row, trace = found
        _, endpoint, door, route, attempts, status, received, total_s, batch, error, stream = row
        batch_rows, reason, queue_us, run_us = batch
        received_wall_s = self._clock.wall() - (self._clock.monotonic() - received)
        story: dict[str, Any] = {
            "request_id": request_id,
            "endpoint": endpoint,
            "door": door,
            "status": status,
            "error": error,
            "received": received_wall_s,
            "total_ms": round(total_s * 1e3, 3),
            "attempts": attempts,
            "route": None,
            "batch": None,
        }
        if route is not None:
            names = ("variant", "copy", "instance_id", "reason", "outstanding")
            story["route"] = dict(zip(names, route, strict=True))
        if batch_rows or queue_us or run_us:
            known = reason < len(BATCH_REASONS)
            story["batch"] = {
                "rows": batch_rows,
                "reason": BATCH_REASONS[reason] if known else "unknown",
                "queue_ms": queue_us / 1e3,
                "run_ms": run_us / 1e3,
            }
        if stream is not None:
            told = stream.story(received)
            if told is not None:
                story["stream"] = told
        return story | trace | self._other_of_two(row[0])

    def _other_of_two(self, number: int) -> dict[str, Any]:
        """Of a request that was copied to a shadow variant, the copy; of a copy, the request."""
        if number > _MIRROR:
            return {"mirror_of": self._ids.text(number - _MIRROR)}
        copy = self._ids.text(mirror_number(number))
        return {"mirrored_as": copy} if self.find(copy) is not None else {}
