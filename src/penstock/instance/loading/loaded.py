"""A running model with its work, reports and end, whichever runtime it has."""

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
from penstock.instance.loading.environments import Environments
from penstock.instance.rate_limits import LaneLimits


class Warms(Protocol):
    """An engine that can run its shapes ahead of callers."""

    @property
    def shapes(self) -> tuple[LaneShape, ...]: ...

    def run_shape(self, shape: LaneShape, done: Callable[[Any], None]) -> None: ...


@dataclasses.dataclass(slots=True, kw_only=True)
class Loaded:
    """A running model, with all that is needed to serve and to end it."""

    runtime: Any
    work: Work  #: computes its requests
    spec: BatchSpec
    described: dict[str, Any]  #: the description for gateways
    threads: LaneThreads | DecodeThread | None = None
    pinning: Pinning | None = None  #: set where the lanes have cores of their own
    proof: Proof | None = None  #: for a compiled artifact: its test on this processor
    build: BuildChoice | None = None  #: for an artifact with several builds: the chosen one
    #: (tensors, encode) -> the value for its work's queue; None: other models can't call it.
    taken: Callable[..., Any] | None = None
    rows: RowsEngine | None = None  #: runs rows of large data sets, past the copy's queue
    warms: Warms | None = None  #: set where it was not warmed up while it loaded
    warm_up_s: float = 0.0  #: duration of the artifact's own warm-up requests, s
    limits: LaneLimits | None = None  #: set where its lanes wait for resources
    versions: list[Loaded] = dataclasses.field(default_factory=list)  #: its other versions
    inner: InnerModels | None = None  #: the artifact's other models, which this one calls
    environments: Environments = dataclasses.field(default_factory=Environments)

    async def close(self) -> None:
        for version in self.versions:
            await version.close()
        if self.limits is not None:
            self.limits.close()
        if self.threads is not None:
            self.threads.close()
            await asyncio.to_thread(self.runtime.close)
        else:
            await self.runtime.close()
        if self.pinning is not None:
            self.pinning.close()
        if self.inner is not None:
            await self.inner.close()
        self.environments.close()

    def kill(self) -> None:
        """Ends its processes at once: the instance itself is ending."""
        kill = getattr(self.runtime, "kill", None)
        if kill is not None:
            kill()
        for version in self.versions:
            version.kill()
        if self.inner is not None:
            self.inner.kill()

    async def explain(self) -> dict[str, Any]:
        """How requests are joined, and why: settings, and the state of a decode batch if there is
        one."""
        told: dict[str, Any] = {
            "batching": self.described["batching"],
            "seeds": [list(each) for each in self.spec.runs_measured],
        }
        if self.proof is not None:
            told["proof"] = self.proof.to_dict()
        if self.build is not None:
            told["build"] = self.build.to_dict()
        if self.environments.leases:
            told["environments"] = self.environments.to_dict()
        decode_batch = getattr(self.runtime, "decode_batch", None)
        if decode_batch is not None:
            try:
                told["decoding"] = await decode_batch()
            except TimeoutError:
                told["decoding"] = None  # the state of the queue is reported in any case
        if self.inner is not None:
            told |= await self.inner.explain()
        return told

    def pids(self) -> list[int]:
        pids = list(getattr(self.runtime, "pids", ()))
        pids += [pid for version in self.versions for pid in version.pids()]
        return pids + self.inner.pids if self.inner is not None else pids

    def copy(self, number: int, **driving: Any) -> Copy:
        """The copy that takes requests for it. `driving`: clock, timers and listeners, as in
        `Copy`."""
        return Copy(number, self.work, self.spec, limits=self.limits, **driving)
