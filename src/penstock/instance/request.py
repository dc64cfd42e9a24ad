"""A request inside the instance: where its answer goes, and what of it is queued.

An `Item` is what the batcher orders. A request that fits a batch is its own item; one with more
rows than a batch takes is cut into several items, whose results are joined again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.instance.codecs.base import Decoded
from penstock.wire.frames import decode_request_meta
from penstock.wire.span_notes import SpanScope, scope_of


class ReplySink:
    """The connection that a request came from, or who asks inside the instance."""

    __slots__ = ()

    full: bool = False  #: what was sent has not left: an answer without an end should wait

    def forget(self, ident: int) -> None:
        """The request is answered: a CANCEL for it means nothing any more."""
        raise NotImplementedError

    def send(self, frame: bytes) -> None:
        raise NotImplementedError

    def when_taken(self, go_on: Callable[[], None]) -> None:
        """Called once it is not full any more; never, if it is gone by then."""
        raise NotImplementedError


class Rider(Protocol):
    """What shares a copy's queue and engine, and hears of its own requests: an adapter."""

    key: str  #: by which the engine knows it

    def taken(self, request: Request) -> None: ...
    def answered(self, request: Request) -> None: ...


class Item:
    __slots__ = ("data", "number", "result", "rows", "whole")

    def __init__(self, whole: Request | None, data: Any, rows: int) -> None:
        self.whole = whole  #: the request this is a part of; None: it is the request itself
        self.data = data  #: the engine's: tensors, token ids, or None
        self.rows = rows
        self.number = 0  #: the driver's id
        self.result: Any = None


class Request(Item):
    __slots__ = (
        "alone", "answered", "body", "by", "calls", "deadline", "decoded", "ident", "lane_us",
        "meta", "parts", "parts_left", "path", "priority", "received", "sink", "target", "traced",
    )  # fmt: skip

    lane_us: int  #: that its parts so far took of the lanes' time; only where it has parts

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
        self.meta = meta  #: wire form of frames.RequestMeta
        self.body = body
        self.received = received  #: monotonic s
        self.deadline = deadline
        self.priority = priority
        self.alone = alone  #: workers died under it: it is computed apart from others
        self.path = path  #: models of the same artifact that it came through
        self.calls = calls  #: of one of them: its number (`core.nested_calls`)
        self.decoded: Decoded | None = None
        self.parts: list[Item] | None = None
        self.parts_left = 1
        self.by: Rider | None = None  #: the adapter that computes it; none: the model itself
        self.target = ""  #: the target model, where a host of them takes it
        self.answered = False  #: or cancelled: nothing more is sent
        self.traced: SpanScope | None = None  #: `spans`, once they were asked for

    @property
    def spans(self) -> SpanScope | None:
        """Where what it calls is noted; None: nobody traces it."""
        if self.traced is None and self.meta:
            meta = decode_request_meta(self.meta)
            self.traced = scope_of(meta, received=self.received)
        return self.traced
