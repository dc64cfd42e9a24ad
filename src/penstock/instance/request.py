"""A request inside the instance: its destination for answers, and its items in the queue.

The batcher orders `Item`s. A request that fits into a batch is its own item; one with more rows
than a batch takes is cut into several items, whose results are joined again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.instance.codecs.base import Decoded
from penstock.runtimes.infer_metadata import InferMetadata
from penstock.wire.frames import decode_request_meta
from penstock.wire.span_notes import SpanScope, scope_of


class ReplySink:
    """The connection of a request, or its sender inside the instance."""

    __slots__ = ()

    full: bool = False  #: sent data has not left yet: an answer without an end should wait

    def forget(self, ident: int) -> None:
        """The request is answered: a later CANCEL for it has no effect."""
        raise NotImplementedError

    def send(self, frame: bytes) -> None:
        raise NotImplementedError

    def when_taken(self, go_on: Callable[[], None]) -> None:
        """Calls `go_on` once it is not full any more; never, if it has closed by then."""
        raise NotImplementedError


class Rider(Protocol):
    """An adapter: it shares a copy's queue and engine, and gets the events of its own requests."""

    key: str  #: its key in the engine

    def taken(self, request: Request) -> None: ...
    def answered(self, request: Request) -> None: ...


class Item:
    __slots__ = ("data", "number", "result", "rows", "whole")

    def __init__(self, whole: Request | None, data: Any, rows: int) -> None:
        self.whole = whole  #: the request of which this is a part; None: it is the request itself
        self.data = data  #: the engine's data: tensors, token ids, or None
        self.rows = rows
        self.number = 0  #: its id in the driver
        self.result: Any = None


class Request(Item):
    __slots__ = (
        "alone", "answered", "body", "by", "calls", "deadline", "decoded", "ident", "lane_us",
        "meta", "parts", "parts_left", "path", "priority", "reads", "received", "sink", "target",
        "traced",
    )  # fmt: skip

    lane_us: int  #: time of lanes that its parts took so far, us; set only if it has parts

    def __init__(
        self,
        sink: ReplySink,
        ident: int,
        meta: bytes,
        body: bytes,
        received: float,
        deadline: float | None,
        priority: int,
        alone: bool = False,
        path: tuple[str, ...] = (),
        calls: tuple[int, ...] = (),
    ) -> None:
        self.whole = None
        self.data = None
        self.rows = 1
        self.number = 0
        self.result = None
        self.sink = sink
        self.ident = ident
        self.meta = meta  #: wire form of `frames.RequestMeta`
        self.body = body
        self.received = received  #: arrival, monotonic s
        self.deadline = deadline
        self.priority = priority
        #: True: workers died while computing it, so it runs in no batch with others
        self.alone = alone
        self.path = path  #: models of the same artifact that it came through
        #: For a nested call: the numbers of the calls behind it (`core.nested_calls`)
        self.calls = calls
        self.decoded: Decoded | None = None
        self.parts: list[Item] | None = None
        self.parts_left = 1
        self.by: Rider | None = None  #: the adapter that computes it; None: the model itself
        self.target = ""  #: name of the target model, in a host of target models
        #: For a call by another model of the host: makes what the queue of the loaded model gets
        self.reads: Callable[[Any], Any] | None = None
        self.answered = False  #: True once it is answered or cancelled: nothing more is sent
        self.traced: SpanScope | None = None  #: `spans`, once they were read

    @property
    def metadata(self) -> InferMetadata | None:
        return self.decoded.metadata if self.decoded is not None else None

    def refuse(self, frame: bytes) -> None:
        """Answers it where no copy has taken it."""
        self.answered = True
        self.sink.forget(self.ident)
        self.sink.send(frame)

    @property
    def spans(self) -> SpanScope | None:
        """Where its nested calls are recorded; None: the request is not traced."""
        if self.traced is None and self.meta:
            meta = decode_request_meta(self.meta)
            self.traced = scope_of(meta, received=self.received)
        return self.traced
