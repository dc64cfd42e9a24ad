"""What a runtime is to the instance: shapes, so that it never asks which runtime it has.

A *tensor runtime* runs in lane threads of the instance and maps named arrays to named arrays. A
*payload runtime* lives in a worker process of its own and maps bodies to bodies; it never shares
memory or a crash with the instance. Which shapes a runtime has is on its `record`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.errors import PenstockError
from penstock.wire.span_notes import SpanScope

Tensors = Mapping[str, np.ndarray]


class CallContext(Protocol):
    """What a call inherits from the request that it is made for."""

    @property
    def deadline(self) -> float | None:
        """Monotonic s."""

    @property
    def alone(self) -> bool:
        """Workers died under it: it is computed apart from others."""

    @property
    def path(self) -> tuple[str, ...]:
        """The models that it came through, the outermost first."""

    @property
    def calls(self) -> tuple[int, ...]:
        """The numbers of the calls that it is made for; none: it came through a door."""

    @property
    def spans(self) -> SpanScope | None:
        """Where what is called is noted; None: nobody traces the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """`CallContext`, written down."""

    deadline: float | None = None
    alone: bool = False
    path: tuple[str, ...] = ()
    calls: tuple[int, ...] = ()
    spans: SpanScope | None = None


class Pending(Protocol):
    """A call to another model, under way."""

    def cancel(self) -> None:
        """Nobody wants the answer; nothing is heard of it any more."""


class ModelCalls(Protocol):
    """The other models of an artifact, as one of them calls them. All on the event loop."""

    def call(
        self,
        name: str,
        tensors: Tensors,
        asked: CallContext,
        lane: Hashable,
        done: Callable[[dict[str, np.ndarray] | PenstockError | Returned], None],
        *,
        version: int = -1,
        outputs: Sequence[str] = (),
    ) -> Pending:
        """`asked.path` ends with the model that calls, and `lane` is the lane that waits meanwhile.

        `done` is called once, maybe before this returns: with the outputs (all, unless some are
        named), an error, or `Returned` where the model gave the request back.
        """

    @property
    def names(self) -> tuple[str, ...]:
        """The models that can be called."""

    def inputs(self, name: str) -> tuple[TensorSpec, ...]:
        """Of a model; none if it can't be called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """What a runtime may use of its instance."""

    model_dir: Path  #: root of the unpacked artifact, read-only by convention
    description: ModelDescription
    endpoint_name: str
    variant_name: str
    cores: float  #: cores this copy may use
    memory_bytes_max: int  #: the instance's memory; 0 = not limited
    accelerators: int = 0
    environment: Mapping[str, str] = field(
        default_factory=dict
    )  #: the model's Environment (CreateModel)
    cache_dir: Path | None = None  #: compiled blobs may be kept here, safe to delete
    #: The platform's own: keys, database, logs, sockets, artifacts of others.
    private_dirs: tuple[Path, ...] = ()
    isolated: bool = True  #: models' processes are confined where the kernel can (`confinement`)
    network_isolated: bool = False  #: its processes have no network
    startup_timeout_s: float = 600.0
    log: Callable[[str], None] = lambda line: None  #: one line of the model's own output
    offline: bool = False  #: of a job: the same rows give the same bytes whenever they are computed
    target_model: str = ""  #: as requests name it, in a host of target models
    #: Where Python models of this host may share processes; None: each has its own.
    shared_workers: SharedWorkers | None = None
    #: The foreign server that hosts all models of this host; None: each has its own.
    shared_server: SharedServer | None = None
    models: ModelCalls | None = None  #: the artifact's other models, where this one may call them

    @property
    def copy_name(self) -> str:
        """As errors name it."""
        name = f"{self.endpoint_name}/{self.variant_name}"
        return f"{name}/{self.target_model}" if self.target_model else name

    def of_host(self, **changes: Any) -> LoadContext:
        """Of a process that hosts this target model among others: it has the name of none."""
        endpoint = self.endpoint_name.partition(":")[0]
        return replace(self, endpoint_name=endpoint, target_model="", **changes)


class TensorRuntime(Protocol):
    """A loaded model that maps tensors to tensors.

    `run` blocks and is called on a lane's thread, never twice at once for one lane. All inputs have
    the batch as first dimension when `description.batching.rows_max` > 0; outputs have the same
    number of rows in the same order.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    lanes: int

    def run(self, lane: int, inputs: Tensors) -> dict[str, np.ndarray]:
        """Raises `ModelError` when the model fails on these inputs."""

    def close(self) -> None:
        """Frees the model. Idempotent; no `run` may be under way."""


@dataclass(slots=True)
class Payload:
    """One request to a payload runtime. `meta` is `wire.frames.RequestMeta`'s wire form."""

    meta: bytes
    body: bytes
    timeout_s: float | None = None
    asked: CallContext | None = None  #: for calls that the model makes


@dataclass(slots=True)
class PayloadReply:
    """One answer: either a body, or an error (then `error` is set and the rest is empty)."""

    body: bytes = b""
    content_type: str = "application/octet-stream"
    custom_attributes: str | None = None
    error: PenstockError | None = None


class Returned(NamedTuple):
    """Instead of an answer: the request was not computed to its end and may go to another copy."""

    reason: str  #: of the RETURNED frame; see `core.blame.poison_requests`


#: In the place of an answer: the request had not begun when its worker was lost.
NOT_BEGUN = Returned("worker-lost")


class LaneListener(Protocol):
    """What the instance wants to know of the lanes of a runtime with processes."""

    def lane_lost(self, lane: int, error: PenstockError) -> None: ...
    def lane_ready(self, lane: int) -> None: ...
    def lane_failed(self, lane: int, error: PenstockError) -> None:
        """It will not be started again."""


class PayloadRuntime(Protocol):
    """A loaded model behind a worker process, driven from the instance's event loop."""

    lanes: int

    def invoke(
        self,
        lane: int,
        batch: Sequence[Payload],
        done: Callable[[list[PayloadReply | Returned] | None], None],
    ) -> None:
        """Starts one batch; `done` is called once, on the loop, with a reply per payload, in order.

        `done(None)` means the worker died and had all of them: the instance gives the requests back
        to the gateway, as it does with each that is `Returned`. Per-request failures are replies
        with `error`.
        """

    def cancel(self, lane: int) -> None:
        """Best effort: the batch on this lane is wanted by nobody any more."""

    async def close(self) -> None:
        """Ends the worker process (terminate, then kill). Idempotent."""


class SharedWorkers(Protocol):
    """Worker processes that host several Python models each (`python.shared`)."""

    def may_share(self, context: LoadContext) -> bool:
        """Whether the model is loaded here, or in processes of its own."""

    async def load(self, context: LoadContext, listener: LaneListener) -> PayloadRuntime:
        """A runtime of one model. Raises PenstockError; nothing of the model is left then."""


class SharedServer(Protocol):
    """A foreign server that hosts several models (`foreign.multi_model`)."""

    async def load(self, context: LoadContext, listener: LaneListener) -> PayloadRuntime:
        """A runtime of one model. Raises PenstockError; nothing of the model is left then."""
