"""Interfaces between runtimes and the instance, so that it never asks which runtime it has.

A *tensor runtime* runs in lane threads of the instance and maps named arrays to named arrays. A
*payload runtime* lives in a worker process of its own and maps bodies to bodies; it never shares
memory or a crash with the instance. A runtime's `record` says which interfaces it has.

Workers import this module in other environments than the server's, so when it runs it imports the
standard library, numpy and modules of ours that import no more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from penstock.core.machine.containers import ContainerWallsSpec
from penstock.errors import PenstockError
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.runtimes.packed_rows import Layout, PlacedTexts

if TYPE_CHECKING:
    from penstock.artifacts.description.description import ModelDescription, TensorSpec
    from penstock.wire.span_notes import SpanScope

Tensors = Mapping[str, np.ndarray]

#: Phase of a load: the packages of the model's environment are put there.
INSTALLING: Final = "installing"


class CallContext(Protocol):
    """What a call inherits from the request for which it is made."""

    @property
    def deadline(self) -> float | None:
        """When the request's time is over, monotonic s; None: it has no limit."""

    @property
    def alone(self) -> bool:
        """True: workers died while they computed it, so it runs in no batch with others."""

    @property
    def path(self) -> tuple[str, ...]:
        """The models that the request came through, the outermost first."""

    @property
    def calls(self) -> tuple[int, ...]:
        """The numbers of the calls that led to this one; empty: it came through a front door."""

    @property
    def spans(self) -> SpanScope | None:
        """Where nested calls are recorded; None: the request is not traced."""

    @property
    def metadata(self) -> InferMetadata | None:
        """What the request says beside its tensors; None: its form has no place for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A `CallContext` as plain values."""

    deadline: float | None = None
    alone: bool = False
    path: tuple[str, ...] = ()
    calls: tuple[int, ...] = ()
    spans: SpanScope | None = None
    metadata: InferMetadata | None = None


class Pending(Protocol):
    """A running call to another model."""

    def cancel(self) -> None:
        """Ends the call; `done` is not called any more."""


class StreamedCall(Protocol):
    """Who reads the responses of a call one by one."""

    @property
    def full(self) -> bool:
        """Whether the next response should wait until some were read."""

    def hear(self, outputs: dict[str, np.ndarray], last: bool) -> None: ...

    def when_taken(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on` once it is not full any more."""


class ModelCalls(Protocol):
    """The other models of an artifact or of a host, for one that calls them. All methods on the
    event loop."""

    explicit: bool  #: whether a model may load and unload others

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
        streamed: StreamedCall | None = None,
    ) -> Pending:
        """`asked.path` ends with the calling model, and `lane` is the lane that waits meanwhile.

        `done` is called once, maybe before this returns: with the outputs (all, unless some are
        named), an error, or `Returned` where the model gave the request back. `streamed` gets each
        response before that; then the outputs of `done` are empty.
        """

    async def is_ready(self, name: str, version: str, asked: CallContext) -> bool:
        """Whether the model is loaded, in this version; "" = any."""

    async def load(self, name: str, asked: CallContext) -> None:
        """Returns when it is loaded. Raises PenstockError."""

    async def unload(self, name: str, asked: CallContext, *, dependents: bool) -> None:
        """Returns at once: it is unloaded when it has answered. `dependents`: what its steps call,
        too. Raises PenstockError."""

    def inputs(self, name: str) -> tuple[TensorSpec, ...]:
        """The inputs of a model; empty if it can't be called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentPython:
    """The Python of the environment that was made for a model."""

    interpreter: str = ""  #: "" = the server's own
    #: The folders that this Python consists of, which its processes may read
    interpreter_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadContext:
    """What an instance gives to a runtime that loads a model."""

    model_dir: Path  #: root of the unpacked artifact; runtimes do not write to it
    description: ModelDescription
    endpoint_name: str
    variant_name: str
    cores: float  #: cores that this copy may use
    memory_bytes_max: int  #: the instance's memory; 0 = not limited
    accelerators: int = 0
    environment: Mapping[str, str] = field(
        default_factory=dict
    )  #: the model's Environment (CreateModel)
    cache_dir: Path | None = None  #: for compiled blobs, which may be deleted at any time
    #: The platform's own folders: keys, database, logs, sockets, artifacts of others.
    private_dirs: tuple[Path, ...] = ()
    #: The model's processes are sandboxed where the kernel can (`confinement`)
    isolated: bool = True
    network_isolated: bool = False  #: the model's processes have no network
    #: The Python of the environment that was made for the model; "" = the server's own
    interpreter: str = ""
    interpreter_dirs: tuple[Path, ...] = ()  #: as in `EnvironmentPython`
    #: Models of the artifact that this one calls -> the Pythons of their own environments
    inner_pythons: Mapping[str, EnvironmentPython] = field(default_factory=dict)
    startup_timeout_s: float = 600.0
    log: Callable[[str], None] = lambda line: None  #: gets each line of the model's output
    #: Called on any thread with what the load does now (`instance.loading.phases`)
    phase: Callable[[str], None] = lambda name: None
    #: The copy does a job: the same rows must give the same bytes at any time
    offline: bool = False
    response_cache_bytes: int = 0  #: of its process's response cache; 0 = there is none
    #: As in `ArtifactSettings`; None: its lanes wait for no resources
    rate_limit: tuple[tuple[str, int], ...] | None = None
    #: Its name in requests, where a host of target models loads it; "" = it is none
    target_model: str = ""
    #: Where Python models of this host may share processes; None: each has its own.
    shared_workers: SharedWorkers | None = None
    #: The foreign server that hosts all models of this host; None: each has its own.
    shared_server: SharedServer | None = None
    #: The other models of the artifact, or of the host, if this one may call them
    models: ModelCalls | None = None
    called_as: str = ""  #: its name among these; "" = its own
    #: Stands for the server in the labels of its containers, as `container.settings` says
    container_owner: str = ""
    container_walls: ContainerWallsSpec = field(default_factory=ContainerWallsSpec)
    hostname: str = ""  #: its name among several containers of a model; "" = it is none

    @property
    def variables(self) -> dict[str, str]:
        """The model's own variables: the artifact's, then those of its Environment."""
        return {**self.description.environment, **self.environment}

    @property
    def caller_name(self) -> str:
        """Its name among models that call one another."""
        return self.called_as or self.description.name

    @property
    def copy_name(self) -> str:
        """The copy's name in errors."""
        name = f"{self.endpoint_name}/{self.variant_name}"
        inside = self.target_model or self.hostname
        return f"{name}/{inside}" if inside else name

    def of_host(self, **changes: Any) -> LoadContext:
        """The context of a process that hosts this target model among others: it has no model's
        name."""
        endpoint = self.endpoint_name.partition(":")[0]
        return replace(self, endpoint_name=endpoint, target_model="", **changes)


class OperatorsMissingError(Exception):
    """Raised where a file is tried (`RuntimeRecord.trial`): the library lacks these operators, or
    this use of them."""

    def __init__(self, operators: tuple[str, ...]) -> None:
        super().__init__(f"it can't convert {', '.join(operators)}")
        self.operators = operators  #: as domain.name, or the name alone


class NativeRun(Protocol):
    """A run of a tensor runtime that any thread may do, also one that never takes the interpreter:
    `function(argument)` in C returns 0 once its outputs are there. Runtimes that have such runs
    have `native_run(shape)`; whoever takes one calls `give_back` when it does not run any more."""

    @property
    def function(self) -> int:
        """The address of an `int (*)(void *)`."""

    @property
    def argument(self) -> int:
        """The pointer that it gets."""

    def set(self, inputs: Sequence[np.ndarray]) -> None:
        """Arrays of the shape that was asked for, in the order of the runtime's inputs."""

    def outputs(self) -> dict[str, np.ndarray]: ...
    def give_back(self) -> None: ...


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


class PackedTexts(Protocol):
    """Texts side by side in rows of tokens (`packed_rows.py`). Runtimes that may have them have
    `packed_texts()`, which gives them or None."""

    @property
    def layout(self) -> Layout | None:
        """None: texts are padded, as yet or for ever."""

    @property
    def refused(self) -> str:
        """Why they are padded for ever; "" where that is not known, or not so."""

    def take(self, placed: PlacedTexts) -> NativeRun | None:
        """A run, to be given back; `placed` gets its size. None: pad these texts."""

    def inputs(
        self,
        placed: PlacedTexts,
        ids: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]] | None,
    ) -> list[np.ndarray]:
        """What the run's `set` takes."""

    def answer(self, run: NativeRun, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Runs it on this thread, and gives it back. Raises ModelError."""

    def outputs(
        self, placed: PlacedTexts, outputs: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        """The run's outputs, one row per text; of tokens: [texts, longest, ...]."""

    def mask(self, placed: PlacedTexts) -> np.ndarray:
        """The attention mask as for padded texts; [texts, 0] where no output is of tokens."""


class AnswerStream(Protocol):
    """Where the answer to a request goes as it is written, if its caller asks for that."""

    def begin(self, content_type: str, custom_attributes: str | None) -> None:
        """Called once, before the first piece."""

    def send(self, piece: bytes) -> None: ...

    @property
    def full(self) -> bool:
        """The reader takes no more for now."""

    def when_taken(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on` once it is not full any more; never, if the reader has gone by then."""


@dataclass(slots=True)
class Payload:
    """One request to a payload runtime. `meta` is `wire.frames.RequestMeta`'s wire form."""

    meta: bytes
    body: bytes
    timeout_s: float | None = None
    asked: CallContext | None = None  #: for nested calls that the model makes
    #: A runtime may answer here instead; then its reply is `streamed`. None: one whole answer
    stream: AnswerStream | None = None


@dataclass(slots=True)
class PayloadReply:
    """One answer: either a body, or an error (then `error` is set and the rest is empty)."""

    body: bytes = b""
    content_type: str = "application/octet-stream"
    custom_attributes: str | None = None
    error: PenstockError | None = None
    streamed: bool = False  #: the body went to `Payload.stream`; this is its end


class Returned(NamedTuple):
    """Replaces an answer: the request was not computed to its end and may go to another copy."""

    reason: str  #: reason of the RETURNED frame; see `core.blame.poison_requests`


#: Replaces an answer: the request had not begun when its worker was lost.
NOT_BEGUN = Returned("worker-lost")


class LaneListener(Protocol):
    """Gets events about the lanes of a runtime with processes. The instance implements it."""

    def lane_lost(self, lane: int, error: PenstockError) -> None: ...
    def lane_ready(self, lane: int) -> None: ...
    def lane_failed(self, lane: int, error: PenstockError) -> None:
        """The lane will not be started again."""


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

        `done(None)` means that the worker died with the whole batch: the instance gives the
        requests back to the gateway, as it does with each that is `Returned`. Failures of single
        requests are replies with `error`.
        """

    def cancel(self, lane: int) -> None:
        """Best effort: all requests of the lane's batch were cancelled."""

    async def close(self) -> None:
        """Ends the worker process (terminate, then kill). Idempotent."""


class SharedServer(Protocol):
    """A foreign server that hosts several models (`foreign.multi_model`)."""

    async def load(self, context: LoadContext, listener: LaneListener) -> PayloadRuntime:
        """A runtime of one model. Raises PenstockError; then nothing of the model is left."""


class SharedWorkers(SharedServer, Protocol):
    """Worker processes that host several Python models each (`python.shared`)."""

    def may_share(self, context: LoadContext) -> bool:
        """Whether the model is loaded into shared workers, or into processes of its own."""
