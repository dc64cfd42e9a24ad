"""One copy of a pipeline: requests in, typed events out as frames.

A slot is one request on its way through the steps; the batcher in front holds what waits for one.
All else is as with a generating model: see `generation`, whose promises hold here, too.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.artifacts.description import Batching
from penstock.core.batching import BatchSpec, RunBatch
from penstock.errors import PenstockError
from penstock.instance.codecs.generation.calls import Event
from penstock.instance.codecs.pipeline import INPUTS, OUTPUTS, decode
from penstock.instance.engines.generation import Generating, GenerationCopy
from penstock.instance.request import Request
from penstock.runtimes.base import LoadContext
from penstock.runtimes.pipeline.runtime import PipelineRuntime

RUNTIME = "pipeline"

#: Requests that `explain` shows: the oldest tell what is stuck.
_SHOWN_MAX: Final = 20
#: How a step fails for want of the process that runs Python steps -> why the request is given back.
_GIVEN_BACK: Final = {"worker-died": "worker-died", "worker-down": "steps-restart"}


class PipelineCopy(GenerationCopy):
    """`runtime`: a `PipelineRuntime`."""

    _decode = staticmethod(decode)

    def _run(self, action: RunBatch, items: list[Request]) -> None:
        (request,) = items
        self.batches += 1
        ident = next(self._idents)
        generating = Generating(ident, request, request.data, action, self._clock.monotonic())
        self._generating[ident] = generating
        self._running[request] = generating
        self._runtime.add(ident, request.data.request, request.deadline)

    def _write(self, generating: Generating, event: Event, now: float) -> None:
        writer: Any = generating.call.writer
        if not writer.stream:
            writer.gather(event)
        super()._write(generating, event, now)

    def explain(self) -> dict[str, Any]:
        """With where each request stands: which steps run, wait, or hold events back."""
        runs = self._runtime.snapshot()
        shown = {f"{ident}": runs[ident] for ident in sorted(runs)[:_SHOWN_MAX]}
        return super().explain() | {"pipeline": {"requests": len(runs), "oldest": shown}}

    def _fail_running(self, generating: Generating, error: PenstockError) -> None:
        """A stream that has begun says why it ends, as one more event, before its door says so.

        Where only the process of the Python steps was missing, and the client has seen nothing, the
        request is given back: another copy has a process that is well. Failing it would also draw
        all other requests to this copy, which seems to be the quickest.
        """
        request = generating.request
        reason = _GIVEN_BACK.get(error.code)
        if reason is not None and not generating.streamed and not request.answered:
            self._return(request, reason)
            self._leave(generating)
            return
        if generating.streamed and not request.answered:
            writer: Any = generating.call.writer
            said = writer.broken(error)
            if said:
                self._send_chunk(generating, said)
        super()._fail_running(generating, error)


def slots_spec(batching: Batching, requests_max: int) -> BatchSpec:
    """One request a slot; here they only wait their turn."""
    return BatchSpec(
        rows_max=1,
        lanes=requests_max,
        queue_rows_max=max(1, batching.queue_rows_max),
        queue_wait_s_max=batching.queue_wait_s_max,
        priorities=batching.priorities,
    )


def described(context: LoadContext, runtime: PipelineRuntime, spec: BatchSpec) -> dict[str, Any]:
    """What gateways are told of the pipeline."""
    description = context.description

    def tensor(each: Any) -> dict[str, Any]:
        return {"name": each.name, "datatype": each.dtype, "shape": list(each.shape)}

    return {
        "runtime": RUNTIME,
        "task": description.task,
        "platform": RUNTIME,
        "name": description.name,
        "versions": [description.version],
        "inputs": [tensor(each) for each in INPUTS],
        "outputs": [tensor(each) for each in OUTPUTS],
        "labels": [],
        "rows_max": 1,
        "lanes": spec.lanes,
        "outstanding_max": spec.queue_rows_max + spec.lanes,
        "batching": {"requests_max": spec.lanes},
        "pipeline": dict(runtime.about),
        "decoupled": True,  # a request has many answers
    }
