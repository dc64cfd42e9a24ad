"""A model that runs: what serves it, tells of it and ends it, whichever runtime it has."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

from penstock.core.batching.batcher import BatchSpec
from penstock.core.models.idle_warm_up import LaneShape
from penstock.core.models.instruction_sets import BuildChoice, Proof
from penstock.instance.copy import Copy, Work
from penstock.instance.engines.lane_threads import LaneThreads, Pinning
from penstock.instance.engines.rows import RowsEngine
from penstock.instance.engines.seq2seq import DecodeThread
from penstock.instance.inner.models import InnerModels


class Warms(Protocol):
    """An engine whose shapes can be run ahead of callers."""

    @property
    def shapes(self) -> tuple[LaneShape, ...]: ...

    def run_shape(self, shape: LaneShape, done: Callable[[Any], None]) -> None: ...


@dataclasses.dataclass(slots=True, kw_only=True)
class Loaded:
    """A model that runs, and what is needed to serve and to end it."""

    runtime: Any
    work: Work  #: computes its requests
    spec: BatchSpec
    described: dict[str, Any]  #: what gateways are told of the model
    threads: LaneThreads | DecodeThread | None = None
    pinning: Pinning | None = None  #: where the lanes have cores of their own
    digest: str = ""  #: of the artifact in the cache
    proof: Proof | None = None  #: of a compiled artifact, on this processor
    build: BuildChoice | None = None  #: of an artifact with several
    #: (tensors, encode) -> what its work's queue takes; None: it has no calls from other models
    taken: Callable[..., Any] | None = None
    rows: RowsEngine | None = None  #: takes rows of large data sets, past the copy's queue
    warms: Warms | None = None  #: where it was not warmed up while it loaded
    warm_up_s: float = 0.0  #: that the artifact's own warm-up requests took
    inner: InnerModels | None = None  #: the artifact's other models, which this one calls

    async def close(self) -> None:
        if self.threads is not None:
            self.threads.close()
            await asyncio.to_thread(self.runtime.close)
        else:
            await self.runtime.close()
        if self.pinning is not None:
            self.pinning.close()
        if self.inner is not None:
            await self.inner.close()

    def kill(self) -> None:
        """Ends its processes at once: the instance itself is ending."""
        kill = getattr(self.runtime, "kill", None)
        if kill is not None:
            kill()
        if self.inner is not None:
            self.inner.kill()

    async def explain(self) -> dict[str, Any]:
        """How requests are joined, for whoever asks why: settings, and the state of a decode batch
        where there is one."""
        told: dict[str, Any] = {
            "batching": self.described["batching"],
            "seeds": [list(each) for each in self.spec.runs_measured],
        }
        if self.proof is not None:
            told["proof"] = self.proof.to_dict()
        if self.build is not None:
            told["build"] = self.build.to_dict()
        explain = getattr(self.runtime, "explain", None)
        if explain is not None:
            try:
                told["decoding"] = await explain()
            except TimeoutError:
                told["decoding"] = None  # the story of the queue in front is told all the same
        if self.inner is not None:
            told |= await self.inner.explain()
        return told

    def pids(self) -> list[int]:
        pids = list(getattr(self.runtime, "pids", ()))
        return pids + self.inner.pids if self.inner is not None else pids

    def copy(self, number: int, **driving: Any) -> Copy:
        """What takes requests for it. `driving`: clock, timers and listeners, as `Copy` has."""
        return Copy(number, self.work, self.spec, **driving)
