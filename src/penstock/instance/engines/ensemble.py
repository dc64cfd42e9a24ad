"""Requests in a Triton ensemble: tensors in, tensors out.

Slots, cancellation and reports about steps are a pipeline's (`engines.pipeline`). The ensemble
computes nothing itself: its models have queues, lanes and workers of their own, and each call
reports what is lost there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.instance import replies
from penstock.instance.codecs import ensemble
from penstock.instance.codecs.base import CodecModel, Encode, Tensors
from penstock.instance.codecs.generation.calls import Event, Served
from penstock.instance.copy import LOOP_BYTES_MAX
from penstock.instance.engines.pipeline import PipelineSteps
from penstock.instance.engines.sequences import Sequence
from penstock.wire import frames


class EnsembleSteps(PipelineSteps):
    """`runtime`: a `PipelineRuntime` of an ensemble. `model`: the codec view of its tensors."""

    shares_worker = False  #: the model whose worker died computes a suspect alone
    loop_bytes_max = LOOP_BYTES_MAX

    def __init__(self, runtime: Any, model: CodecModel, *, name: str) -> None:
        """`name`: the ensemble's own, for nested calls between models."""
        super().__init__(runtime, name=name, version=model.version)
        self._model = model

    def _read(self, asked: frames.RequestMeta, body: bytes, served: Served) -> Any:
        return ensemble.decode(self._model, asked, body)

    def taken(self, tensors: Tensors, encode: Encode) -> Any:
        """The value for `queue`, made of arrays from a model of the same artifact. Raises
        ModelError."""
        return ensemble.taken(self._model, tensors, encode)

    def lost(self) -> None:
        """One of its models is lost: the calls that wait for it fail by themselves."""

    def _tells(self, sequence: Sequence, now: float) -> str | None:
        return None  # it has no text

    def _write(self, sequence: Sequence, event: Event, now: float) -> None:
        writer: Any = sequence.call.writer
        writer.gather(event)
        if "f" not in event:
            return
        elsewhere = self._copy.elsewhere
        if elsewhere is None or writer.size_bytes <= LOOP_BYTES_MAX:
            self._end(sequence, frames.REPLY, writer.whole(sequence.answer), now)
        else:
            elsewhere(
                lambda: writer.whole(sequence.answer), partial(self._written_elsewhere, sequence)
            )

    def _written_elsewhere(self, sequence: Sequence, written: Any) -> None:
        if self._running.get(sequence.ident) is not sequence:
            return  # cancelled meanwhile
        if isinstance(written, BaseException):
            self._fail(sequence, replies.as_error(written, "writing the answer"))
        else:
            self._end(sequence, frames.REPLY, written, self._copy.clock.monotonic())
