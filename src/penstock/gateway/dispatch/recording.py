"""The dispatcher's interface to the metrics: one recorder per variant or component.

`penstock.metrics.counts.registry.MetricRegistry` makes them; tests use their own.
"""

from __future__ import annotations

from typing import Protocol

from penstock.errors import ModelError
from penstock.gateway.dispatch.invocation import Invocation
from penstock.metrics.counts.recorder import VariantRecorder


class Recorders(Protocol):
    def recorder(self, endpoint: str, variant: str, component: str = "") -> VariantRecorder:
        """The recorder of a variant, or of one of its components, made on first use."""


class NoRecorder(VariantRecorder):
    """Counts nothing. It is also a `Recorders` that returns itself."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("", "")

    def recorder(self, endpoint: str, variant: str, component: str = "") -> VariantRecorder:
        return self

    def _nothing(self, *_: object, **__: object) -> None:
        return

    started = finished = cancelled = refused = no_capacity = _nothing
    streamed = generated = broken = ejected = _nothing


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
