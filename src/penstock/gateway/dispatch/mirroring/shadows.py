"""Copies of answered requests, for the shadow variant of their endpoint, or for the component that
is the shadow of theirs.

The dispatcher makes one once the caller has its answer, and sends it like any other request, as a
request of the shadow's own `Endpoint`: so it has a place in the metrics of the shadow, in `explain`
and in data capture, and none in what its endpoint admits, forecasts or counts. That endpoint has no
shadow, so nothing is copied twice. The answer goes to `Mirrors`, which throws it away.

It is tried once, at one copy of the shadow's model, and has as much time as the request itself had.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from penstock.core.blame.poison_requests import DEATHS, died_of_it
from penstock.core.request.mirroring import MIRRORED, NOT_SAMPLED
from penstock.core.routing import NoRoute, Routed
from penstock.errors import PenstockError
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.endpoint_table import Endpoint, Shadow, pick
from penstock.gateway.dispatch.invocation import Invocation, Responder, session_of
from penstock.gateway.dispatch.recording import mirror_number
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.wire.frames import Reply

#: The front door of these requests.
DOOR: Final = "shadow"
#: Families of the errors that a model gives, or that are the caller's as a model sees it.
OF_MODEL: Final = ("caller", "model")


class CopiesUnderWay:
    """Copies of requests that one gateway has sent and that are not over. It is their responder;
    their context has the `gate` that admitted them."""

    def __init__(self, rng: random.Random, written: Callable[[Invocation], None]) -> None:
        """`written`: ends a request whose outcome is known."""
        self._random = rng.random
        self._written = written
        self.live: dict[int, Invocation] = {}  #: by number

    def stop(self, cancel: Callable[[Invocation], None]) -> None:
        """Cancels all of them: a process that ends waits for none."""
        for made in list(self.live.values()):
            self._release(made)
            cancel(made)

    def on_chunk(self, invocation: Invocation, chunk: bytes, meta: bytes | None) -> None:
        return

    def _release(self, invocation: Invocation) -> bool:
        """Frees its place. False: it was freed before."""
        found = self.live.pop(invocation.number, None) is not None
        if found:
            invocation.context.gate.release(len(invocation.body))
        return found


class Mirrors(CopiesUnderWay):
    """Copies for shadows."""

    def copy(
        self, shadow: Shadow, original: Invocation, body: bytes, *, now: float
    ) -> tuple[Invocation, Routed] | None:
        """A copy of a request, and its slot at its shadow; the caller sends it. None: it has none,
        or is not sampled, or the copy was dropped and counted.

        `body`: of the request; its door may have dropped it by now.
        """
        pool = shadow.of(original)
        if pool is None:
            return None
        gate, recorder, size = shadow.gate, shadow.entry.recorders[pool.group.pool], len(body)
        in_session = session_of(original) is not None
        outcome = gate.admit(pool.weight, self._random(), size, in_session=in_session)
        if outcome == NOT_SAMPLED:
            return None
        if outcome != MIRRORED:
            recorder.mirrored(outcome)
            return None
        made = copied(
            original, body, self, entry=shadow.entry, context=shadow,
            number=mirror_number(original.number), now=now,
        )  # fmt: skip
        if pool.component:
            assert made.affinity is not None, "it named the component that answered it"
            made.affinity = made.affinity._replace(component=pool.component)
        routed = pick(shadow.entry.router, made, None, (), now)
        if isinstance(routed, NoRoute):
            gate.release(size)
            recorder.mirrored(routed.reason)
            return None
        made.variant, made.recorder = routed.variant, recorder
        self.live[made.number] = made
        shadow.entry.in_flight += 1
        recorder.mirrored(MIRRORED)
        recorder.started()
        return made, routed

    # The responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        self._end(invocation)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        self._end(invocation)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        self._end(invocation)

    def _end(self, invocation: Invocation) -> None:
        self._release(invocation)
        self._written(invocation)


def copied(
    original: Invocation,
    body: bytes,
    responder: Responder,
    *,
    entry: Endpoint,
    context: object,
    number: int,
    now: float,
) -> Invocation:
    """A request like one that was answered, for no caller.

    `body`: of the request; its door may have dropped it by now. `entry`: whose copies it is for.
    """
    assert original.deadline is not None, "it was answered, so it was accepted"
    made = Invocation(
        original.endpoint,
        original.meta,
        body,
        responder,
        received=now,
        deadline=now + (original.deadline - original.received),
        priority=original.priority,
        door=DOOR,
        context=context,
        number=number,
    )
    made.affinity = original.affinity
    if original.stream is not None:
        made.stream = StreamObserved()
    made.entry = entry
    made.attempts = made.body_bytes = 0  # its bytes count at the gate
    made.copy = made.route = made.reply = made.error = made.recorder = None
    made.copy_failures = ()
    made.pinned = False
    return made


def lost(invocation: Invocation, reason: str) -> PenstockError:
    """The error of a copy that came back unanswered."""
    if reason in DEATHS:
        return died_of_it(invocation.past.after(reason))
    return refusals.given_up(invocation.endpoint, reason, invocation.attempts)
