"""Requests of sequences at a gateway: read, bound to the copy that has the sequence, and drained.

Only requests for endpoints whose model keeps sequences come here. Of their bodies nothing is read
but the parameters of the Open Inference Protocol. What can't be read is no sequence's: any copy
says what is wrong with it.

Several gateways share the sequences as they share sessions (`shared_sessions.py`). One that does
not know where a sequence is asks the others, even where it begins: it may be going on elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import orjson
from google.protobuf.message import DecodeError

from penstock.clock import Clock
from penstock.core.routing import CopyState
from penstock.core.routing.sequences import sequence_key
from penstock.errors import PenstockError
from penstock.gateway.dispatch.deadlines import DrainWatch
from penstock.gateway.dispatch.endpoint_table import Endpoint
from penstock.gateway.dispatch.invocation import UNBOUND, Affinity, Invocation
from penstock.gateway.timers import TimerHandle, Timers
from penstock.wire.frames import decode_request_meta
from penstock.wire.oip_messages import ModelInferHead

log = logging.getLogger(__name__)

_OIP_GRPC: Final = "application/x-oip-grpc"
_HEADER_SIZE: Final = re.compile(r"json-header-size=([0-9]{1,10})")
#: s between looks whether sequences of copies that drain have ended
_LOOK_S: Final = 0.25

#: (endpoint, key): asks other gateways, and returns once the sequence's copy is known here if it is
#: anywhere. Raises PenstockError.
FindSequence = Callable[[str, str], Awaitable[None]]


def affinity_of(invocation: Invocation) -> Affinity:
    """What binds a request of a stateful model to a copy."""
    bound = invocation.affinity or UNBOUND
    told = _parameters(invocation.meta, invocation.body)
    sequence = told.get("sequence_id")
    known = isinstance(sequence, str) or type(sequence) is int
    if not known or not sequence:
        return bound
    return bound._replace(
        session=sequence_key(bound.component or "", sequence),
        opens=told.get("sequence_start") is True,
        ends=told.get("sequence_end") is True,
    )


def _parameters(meta: bytes, body: bytes) -> dict[str, Any]:
    asked = decode_request_meta(meta)
    kind = asked.content_type or ""
    try:
        if kind == _OIP_GRPC:
            given = ModelInferHead.FromString(body).parameters
            return {name: _value(value) for name, value in given.items()}
        size = asked.json_header_bytes
        if size is None and (found := _HEADER_SIZE.search(kind)):
            size = int(found[1])
        parsed = orjson.loads(body if size is None else memoryview(body)[:size])
    except (DecodeError, ValueError):
        return {}
    told = parsed.get("parameters") if isinstance(parsed, dict) else None
    return told if isinstance(told, dict) else {}


def _value(parameter: Any) -> Any:
    kind = parameter.WhichOneof("parameter_choice")
    return getattr(parameter, kind) if kind else None


class GatewaySequences:
    """The sequences of one gateway process. `find`: asks other gateways; None: there are none."""

    def __init__(self, invoke: Callable[[Invocation], None]) -> None:
        self.find: FindSequence | None = None
        self._invoke = invoke
        #: requests for whose sequence others are asked
        self._asking: dict[Invocation, asyncio.Task[None]] = {}
        self._refused: dict[Invocation, PenstockError] = {}  #: by the answers of others

    def bind(self, invocation: Invocation, endpoint: Endpoint, now: float) -> bool:
        """Sets the request's affinity. False: it comes back by `invoke` once others were asked."""
        if invocation in self._asking:
            return True
        invocation.affinity = affinity_of(invocation)
        session = invocation.affinity.session
        if session is None or self.find is None:
            return True
        found = endpoint.router.session(session, now=now)
        if isinstance(found, CopyState) and found.healthy:
            return True
        task = asyncio.get_running_loop().create_task(self._look_up(invocation, session))
        self._asking[invocation] = task
        return False

    def refusal(self, invocation: Invocation) -> PenstockError | None:
        """Why the request can't go on, as other gateways know."""
        return self._refused.pop(invocation, None) if self._refused else None

    def cancel(self, invocation: Invocation) -> bool:
        """The client has gone. True: the request will not come back."""
        task = self._asking.pop(invocation, None)
        if task is not None:
            task.cancel()
        return task is not None

    async def _look_up(self, invocation: Invocation, session: str) -> None:
        assert self.find is not None
        try:
            await self.find(invocation.endpoint, session)
        except PenstockError as error:
            if not _begins(invocation):
                self._refused[invocation] = error
        except Exception:
            log.exception("other gateways could not be asked for a sequence")
        try:
            self._invoke(invocation)
        finally:
            self._asking.pop(invocation, None)
            self._refused.pop(invocation, None)


def _begins(invocation: Invocation) -> bool:
    return invocation.affinity is not None and invocation.affinity.opens


class SequenceDrains:
    """Copies that left the routes while sequences were open on them."""

    def __init__(self, clock: Clock, timers: Timers, drains: DrainWatch) -> None:
        self._now = clock.monotonic
        self._timers = timers
        self._drains = drains
        self._copies: dict[int, tuple[CopyState, Endpoint]] = {}
        self._timer: TimerHandle | None = None
        self._waits = 0  #: calls of `drained`

    def add(self, states: Iterable[CopyState], endpoint: Endpoint) -> None:
        """Adds copies that just left the routes; forgets those that are there again or gone."""
        for copy, (state, _) in list(self._copies.items()):
            if not state.draining or not state.sequence_idle_s:
                del self._copies[copy]
        self._copies.update(
            (state.copy, (state, endpoint)) for state in states if state.sequence_idle_s
        )

    async def drained(self, copies: Iterable[int], timeout_s: float) -> bool:
        """Waits until copies have no request and no sequence left; then, or after `timeout_s`, what
        they still have is lost."""
        watched = set(copies)
        self._waits += 1
        try:
            self._look()
            return await self._drains.copies_drained(watched, timeout_s)
        finally:
            self._waits -= 1
            for copy in watched & set(self._copies):
                self._let_go(copy)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self.close()
        now = self._now()
        for state, endpoint in list(self._copies.values()):
            if not state.outstanding and not endpoint.router.keeps_sequences(state, now=now):
                self._drains.finished(state)
        if self._copies and self._waits:
            self._timer = self._timers.call_at(now + _LOOK_S, self._look)

    def _let_go(self, copy: int) -> None:
        state, endpoint = self._copies.pop(copy)
        if state.draining:
            endpoint.router.let_go(state)
