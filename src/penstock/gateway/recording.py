"""What the dispatcher tells the metrics, as small interfaces of its own.

`penstock.metrics.registry.MetricRegistry` has these shapes; tests and the twin put their own in its
place.
"""

from __future__ import annotations

from typing import Protocol

from penstock.errors import ModelError
from penstock.gateway.invocation import Invocation


class Recorder(Protocol):
    """Counts of one variant; all calls are on the hot path."""

    def started(self) -> None:
        """Accepted: in flight from now on."""

    def finished(
        self,
        status: int,
        total_s: float,
        queue_s: float,
        run_s: float,
        batch_rows: int = 0,
        door: str = "runtime",
        model_status: int = 0,
    ) -> None:
        """The last byte is written."""

    def cancelled(self, door: str = "runtime") -> None:
        """The client went away while the request was in flight."""

    def refused(self, reason: str, status: int = 503, door: str = "runtime") -> None:
        """Turned away before it was in flight."""

    def no_capacity(self) -> None:
        """The variant has no copy at all that could answer."""

    def streamed(self, first_chunk_s: float) -> None:
        """The first piece of a streamed answer was made `first_chunk_s` after the request came."""

    def generated(
        self, tokens_in: int, tokens_out: int, first_token_s: float, per_token_s: float
    ) -> None:
        """An answer of tokens is complete; 0.0 for a time that is not known."""

    def broken(self) -> None:
        """A streamed answer ended with an error after its first piece."""


class Recorders(Protocol):
    def recorder(self, endpoint: str, variant: str) -> Recorder:
        """The recorder of a variant, made on first use."""


class NoRecorder:
    """Counts nothing; also the `Recorders` that hands itself out."""

    def recorder(self, endpoint: str, variant: str) -> Recorder:
        return self

    def started(self) -> None:
        return

    def finished(
        self,
        status: int,
        total_s: float,
        queue_s: float,
        run_s: float,
        batch_rows: int = 0,
        door: str = "runtime",
        model_status: int = 0,
    ) -> None:
        return

    def cancelled(self, door: str = "runtime") -> None:
        return

    def refused(self, reason: str, status: int = 503, door: str = "runtime") -> None:
        return

    def no_capacity(self) -> None:
        return

    def streamed(self, first_chunk_s: float) -> None:
        return

    def generated(
        self, tokens_in: int, tokens_out: int, first_token_s: float, per_token_s: float
    ) -> None:
        return

    def broken(self) -> None:
        return


def record_failure(invocation: Invocation, status: int, total_s: float) -> None:
    """Tells the recorder of a request that ended with an error."""
    error, reply = invocation.error, invocation.reply
    model_status = error.original_status if isinstance(error, ModelError) else 0
    if error is not None and invocation.stream is not None and invocation.stream.first_at:
        # The client saw a 200 and then a break, whatever the error: no refusal that can pass.
        model_status = max(model_status, 500)
    queue_s = run_s = 0.0
    batch_rows = 0
    if reply is not None:
        queue_s, run_s, batch_rows = reply.queue_us * 1e-6, reply.run_us * 1e-6, reply.batch_rows
    invocation.recorder.finished(
        status, total_s, queue_s, run_s, batch_rows, invocation.door, model_status
    )
