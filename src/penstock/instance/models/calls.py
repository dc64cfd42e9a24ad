"""Calls between the target models of one host: ensembles and Python models that call others.

A call is a request like any other, and loads its model if need be. It has tensors in the place of a
body, and waits for its caller's lane: `core.request.nested_calls` refuses what would wait for
itself, `core.residency` what needs the memory that its callers hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

from penstock.clock import Clock
from penstock.core.request.nested_calls import NestedCalls
from penstock.errors import CallerError, PenstockError
from penstock.instance import replies
from penstock.instance.inner.model import CallableModel, Done, InnerCall
from penstock.instance.inner.models import not_allowed
from penstock.instance.models.explicit import Explicit
from penstock.instance.models.siblings import Siblings
from penstock.instance.models.target import HostedTarget
from penstock.instance.request import Request
from penstock.runtimes.base import Asking, CallContext, Pending, Returned, StreamedCall, Tensors

#: Reasons for which a copy of a target model is gone for good: the host may load the model anew.
_COMES_AGAIN = ("copy-failed", "copy-closed")
#: How long a load that a model asks for may take, where its request has no limit.
_LOAD_S_MAX = 600.0


class CallsHost(Protocol):
    """The host whose models call one another."""

    explicit: Explicit

    def accept_call(self, request: Request, now: float) -> None: ...
    def cancel(self, request: Request) -> None: ...
    def turn(self, now: float) -> None: ...
    def loaded(self, name: str) -> HostedTarget | None: ...


class TargetCalls:
    """A `runtimes.base.ModelCalls`. Callers are named by their whole names below the prefix, and
    give the names of others as these lie beside them."""

    explicit = True

    def __init__(self, siblings: Siblings, clock: Clock) -> None:
        """`attach` comes before any call."""
        self._siblings = siblings
        self._clock = clock
        self._nested = NestedCalls({})
        self._turning = False

    def attach(self, host: CallsHost) -> None:
        self._host = host
        self._loop = asyncio.get_running_loop()

    def inputs(self, name: str) -> tuple[Any, ...]:
        return ()

    def call(
        self,
        name: str,
        tensors: Tensors,
        asked: CallContext,
        lane: Hashable,
        done: Done,
        *,
        version: int = -1,
        outputs: Sequence[str] = (),
        streamed: StreamedCall | None = None,
    ) -> Pending:
        call = _TargetCall(
            self, name, tensors, asked, lane, done,
            version=version, outputs=outputs, streamed=streamed,
        )  # fmt: skip
        call.task = self._loop.create_task(call.begin())
        return call

    async def find(self, name: str, asked: CallContext) -> str:
        """The target model that the caller means. Raises CallerError (`model-not-ready`)."""
        caller = asked.path[-1]
        for candidate in self._siblings.candidates(caller, name):
            if self._host.loaded(candidate) is not None:
                return candidate
        found = await asyncio.to_thread(self._siblings.find, caller, name)
        if found is None:
            raise CallerError(
                "model-not-ready",
                f"Model {name!r} is not ready: the repository has no such model",
                hint="Its name is that of its folder or archive, beside the model that calls it.",
                status=404,
            )
        return found

    def begin(self, call: _TargetCall, target: str, asked: CallContext) -> None:
        """Raises ModelError for a call that would wait for itself."""
        for name in {target, *asked.path}:
            hosted = self._host.loaded(name)
            if hosted is not None and hosted.loaded is not None:
                self._nested.has_lanes(name, hosted.loaded.spec.lanes)
        ruling = self._nested.begin(asked.path, call.lane, target, asked.calls)
        if not ruling.allowed:
            raise not_allowed(ruling, asked.path, target)
        now = self._clock.monotonic()
        span = asked.spans.begin(target, now=now) if asked.spans is not None else None

        def over() -> None:
            self._nested.end(ruling.call)

        def ended(outcome: Any) -> None:
            over()
            if isinstance(outcome, Returned) and outcome.reason in _COMES_AGAIN:
                outcome = Returned("copy-lost")
            if span is not None:
                span.end(now=self._clock.monotonic(), error=getattr(outcome, "code", ""))
            call.done(outcome)

        made_for = Asking(
            deadline=asked.deadline, alone=asked.alone, path=asked.path, calls=(ruling.call,),
            spans=span, metadata=asked.metadata,
        )  # fmt: skip
        inner = call.inner = InnerCall(
            target, dict(call.tensors), made_for, ended, over,
            version=call.version, wanted=call.outputs, streamed=call.streamed,
        )  # fmt: skip
        request = inner.asked_of(made_for, now=now, cancel=self._host.cancel)
        request.target = target
        request.reads = lambda loaded: CallableModel(target, loaded).read(inner)
        self._host.accept_call(request, now)
        if not self._turning:
            # Calls that begin in one turn of the loop form one batch, if they fit.
            self._turning = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turning = False
        self._host.turn(self._clock.monotonic())

    def snapshot(self) -> Mapping[str, Any]:
        return self._nested.snapshot()

    # What a model may ask of its repository

    async def is_ready(self, name: str, version: str, asked: CallContext) -> bool:
        try:
            hosted = self._host.loaded(await self.find(name, asked))
        except CallerError:
            return False
        if hosted is None:
            return False
        versions = (hosted.described or {}).get("versions") or ("1",)
        return not version or version in map(str, versions)

    async def load(self, name: str, asked: CallContext) -> None:
        target = await self.find(name, asked)
        wait_s = _LOAD_S_MAX
        if asked.deadline is not None:
            wait_s = max(0.001, asked.deadline - self._clock.monotonic())
        await self._host.explicit.load(target, wait_s=wait_s)

    async def unload(self, name: str, asked: CallContext, *, dependents: bool) -> None:
        await self._host.explicit.unload(await self.find(name, asked), dependents=dependents)

    async def wish(self, caller: str, names: Sequence[str]) -> list[str]:
        """Models that are loaded with another one, if there is room: the steps of an ensemble, and
        what the code of a Python model wants. Returns those that there are none of."""
        missing = []
        for name in names:
            try:
                target = await self.find(name, Asking(path=(caller,)))
                await self._host.explicit.load(target, if_room=True)
            except PenstockError:
                missing.append(name)
        return missing


class _TargetCall:
    """A call whose target model is looked for, then asked. Its outcome comes once."""

    def __init__(
        self,
        calls: TargetCalls,
        name: str,
        tensors: Tensors,
        asked: CallContext,
        lane: Hashable,
        done: Done,
        *,
        version: int,
        outputs: Sequence[str],
        streamed: StreamedCall | None,
    ) -> None:
        self.tensors = tensors
        self.lane = lane
        self.done: Callable[[Any], None] = done
        self.version = version
        self.outputs = outputs
        self.streamed = streamed
        self.task: asyncio.Task[None] | None = None
        self.inner: InnerCall | None = None
        self._calls = calls
        self._name = name
        self._asked = asked

    async def begin(self) -> None:
        try:
            target = await self._calls.find(self._name, self._asked)
            self._calls.begin(self, target, self._asked)
        except Exception as error:  # whatever it is, the caller must not wait for it
            self.done(replies.as_error(error, f"calling the model {self._name}"))

    def cancel(self) -> None:
        if self.inner is not None:
            self.inner.cancel()
        elif self.task is not None:
            self.task.cancel()
