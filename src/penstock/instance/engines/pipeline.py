"""Requests in a pipeline: each has a slot; typed events come out.

All else is as with a generating model, and so are the guarantees: see `sequences`.

A Triton ensemble is a pipeline with tensors at both ends. It computes nothing itself: its models
have queues, lanes and workers of their own, and each call reports what is lost there.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import orjson

from penstock.core.blame.poison_requests import DEATHS
from penstock.errors import ModelError, PenstockError
from penstock.instance import replies
from penstock.instance.codecs.base import CodecModel, Encode, Tensors
from penstock.instance.codecs.generation.calls import Event, Served
from penstock.instance.codecs.pipeline import decode, decode_ensemble, ensemble_call
from penstock.instance.copy import LOOP_BYTES_MAX
from penstock.instance.engines.sequences import Sequence, Sequences
from penstock.instance.request import Request
from penstock.runtimes.base import Asking
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.wire import frames

#: Most requests in `explain`: the oldest show what is stuck.
_SHOWN_MAX: Final = 20
#: Bound for an answer without streaming, including the overhead of each event: a step may never
#: end.
WHOLE_BYTES_MAX: Final = 64 << 20
_EVENT_BYTES: Final = 256
#: Errors of a step that had no process -> why the request is given back.
_GIVEN_BACK: Final = {
    "worker-down": "steps-restart",
    # Reasons with which a model of the artifact gives a request back
    **{
        reason: reason
        for reason in (
            *DEATHS, "worker-lost", "copy-lost", "copy-failed",
            "copy-closed", "another-is-tried-alone", "draining",
        )
    },
}  # fmt: skip


class PipelineSteps(Sequences):
    """`runtime`: a `PipelineRuntime`."""

    _read = staticmethod(decode)

    def __init__(self, runtime: Any, *, name: str, version: str) -> None:
        super().__init__(runtime, name=name, version=version)
        self._held: set[int] = set()  #: ids of answers that wait for the connection
        self._paced: set[int] = set()  #: ids of answers whose clients read slowly
        #: Id -> bytes collected so far, for answers without streaming
        self._gathered: dict[int, int] = {}

    def _start(self, sequence: Sequence) -> None:
        request: Any = sequence.request
        path = (*request.path, self._served.name)
        asked = Asking(
            alone=request.alone, path=path, calls=request.calls, spans=request.spans,
            metadata=request.data.metadata,
        )  # fmt: skip
        self._runtime.add(sequence.ident, request.data.request, request.deadline, asked)

    def _write(self, sequence: Sequence, event: Event, now: float) -> None:
        if "k" in event and not sequence.call.writer.stream:
            self._keep(sequence, event)
        super()._write(sequence, event, now)

    def _keep(self, sequence: Sequence, event: Event) -> None:
        """Raises ModelError where the whole answer is too large to be kept in memory."""
        gathered = self._gathered.get(sequence.ident, 0)
        gathered += _EVENT_BYTES + len(orjson.dumps(event["d"]))
        if gathered > WHOLE_BYTES_MAX:
            raise ModelError(
                "answer-too-large",
                f"The whole answer is larger than {WHOLE_BYTES_MAX} bytes.",
                hint="Ask for a stream.",
            )
        self._gathered[sequence.ident] = gathered
        sequence.answer.events.append(event)

    def _send_chunk(self, sequence: Sequence, chunk: bytes) -> None:
        """A step may write more than the client reads, and may never end: it waits for the
        client."""
        super()._send_chunk(sequence, chunk)
        ident, sink = sequence.ident, sequence.request.sink
        if not sink.full:
            return
        self._runtime.hold(ident, True)
        if ident not in self._held:
            self._held.add(ident)
            sink.when_taken(lambda: self._go_on(ident))

    def _go_on(self, ident: int) -> None:
        if ident in self._held:
            self._held.discard(ident)
            self._runtime.hold(ident, ident in self._paced)

    def paced(self, request: Request, *, waits: bool) -> None:
        sequence = self._of_request.get(request)
        if sequence is None:
            return
        ident = sequence.ident
        if waits:
            self._paced.add(ident)
        else:
            self._paced.discard(ident)
        self._runtime.hold(ident, waits or ident in self._held)

    def _leave(self, sequence: Sequence) -> None:
        self._held.discard(sequence.ident)
        self._paced.discard(sequence.ident)
        self._gathered.pop(sequence.ident, None)
        super()._leave(sequence)

    def explain(self) -> dict[str, Any]:
        """Also shows the state of each request: steps that run, wait, or hold events back."""
        runs = self._runtime.snapshot()
        shown = {f"{ident}": runs[ident] for ident in sorted(runs)[:_SHOWN_MAX]}
        told = {"requests": len(runs), "oldest": shown, "steps": self._runtime.times.told()}
        return super().explain() | {"pipeline": told}

    def _fail(self, sequence: Sequence, error: PenstockError) -> None:
        """A stream that has begun reports its error as one more event, before its front door does.

        If only a step's process was missing, and the client has got nothing, the request is given
        back: another copy has a working process. Failing it fast would also attract all other
        requests to this copy.
        """
        request = sequence.request
        reason = _GIVEN_BACK.get(error.code)
        if reason is not None and not sequence.streamed and not request.answered:
            self._copy.give_back(request, reason)
            self._leave(sequence)
            return
        if sequence.streamed and not request.answered:
            said = sequence.call.writer.broken(error)
            if said:
                self._send_chunk(sequence, said)
        super()._fail(sequence, error)


class EnsembleSteps(PipelineSteps):
    """`runtime`: a `PipelineRuntime` of an ensemble. `model`: the codec view of its tensors."""

    shares_worker = False  #: the model whose worker died computes a suspect alone
    loop_bytes_max = LOOP_BYTES_MAX

    def __init__(self, runtime: Any, model: CodecModel, *, name: str) -> None:
        """`name`: the ensemble's own, for nested calls between models."""
        super().__init__(runtime, name=name, version=model.version)
        self._model = model

    def _read(self, asked: frames.RequestMeta, body: bytes, served: Served) -> Any:
        return decode_ensemble(self._model, asked, body)

    def taken(self, tensors: Tensors, encode: Encode, metadata: InferMetadata | None = None) -> Any:
        """The value for `queue`, made of arrays from a model of the same artifact. Raises
        ModelError."""
        return ensemble_call(self._model, tensors, encode, metadata)

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
