"""Pairs of answers that another endpoint of the server judges: the scorer of an agreement.

A pair is sent to it as a request like any other, through the dispatcher, but it is nobody's call:
it is in no capture, is copied to nobody, has the last priority, and no caller waits for what comes
of it. `core/rollout/scorer.py` has the request, and reads the answer.

A pair is judged only where that costs the scorer's own callers nothing: within a bound, and while
it has an idle lane. Else the pair is dropped (`unpaired`). Equal answers agree without a request,
but are dropped in the same way: else those that differ would be fewer among the pairs than they
are. A scorer that has no healthy copy is asked nevertheless, for requests may start one.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from penstock.clock import Clock
from penstock.core.request.mirroring import MIRRORED, MirrorGate, MirrorSpec
from penstock.core.rollout import scorer
from penstock.core.rollout.agreement import AGREE, DIFFER, SCORED, UNPAIRED, UNSCORED
from penstock.errors import PenstockError
from penstock.gateway.dispatch.endpoint_table import Endpoint
from penstock.gateway.dispatch.invocation import Invocation
from penstock.gateway.dispatch.mirroring.shadows import CopiesUnderWay
from penstock.gateway.request_id import RequestIds
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.wire.frames import Reply, RequestMeta, encode_request_meta

log = logging.getLogger(__name__)

#: The front door of these requests.
DOOR: Final = "scorer"
#: Bytes of a request whose answers are judged. To write the question takes the event loop's time:
#: some ms for each MiB.
REQUEST_MAX: Final = 1 << 20
#: Pairs that one scorer has at once: as many as a large engine has slots. More of them would only
#: wait where the scorer's model is being started.
PAIRS: Final = MirrorSpec(count_max=64, bytes_max=64 << 20)
_META: Final = encode_request_meta(
    RequestMeta(content_type="application/json", accept="application/json")
)
_PRIORITY_LAST: Final = 255
#: Codes of errors that say that there was no room, and nothing of the scorer.
_NO_ROOM: Final = frozenset({
    "all-copies-full", "bodies-too-many", "deadline-cannot-be-met", "held-bytes-too-many",
    "held-too-many", "in-flight-limit", "queue-wait-limit", "stopping",
})  # fmt: skip
_LOGGED_MAX: Final = 1000


class AnswersToJudge(NamedTuple):
    """Two answers to one request, and where it is counted what became of them."""

    request: bytes
    old: bytes
    new: bytes
    rollout: int
    recorder: VariantRecorder
    beside: tuple[str, ...]  #: outcomes that are counted beside the scorer's


class _PairAsked(NamedTuple):
    """What a pair has taken of the bound of its scorer."""

    gate: MirrorGate
    size: int
    answers: AnswersToJudge


class Scorers(CopiesUnderWay):
    """The requests of one gateway to scorers."""

    def __init__(
        self,
        clock: Clock,
        ids: RequestIds,
        rng: random.Random,
        endpoints: Mapping[str, Endpoint],
        invoke: Callable[[Invocation], None],
        written: Callable[[Invocation], None],
    ) -> None:
        """`invoke`: takes a request; `written`: ends one whose outcome is known."""
        super().__init__(rng, written)
        self._monotonic = clock.monotonic
        self._ids = ids
        self._endpoints = endpoints
        self._invoke = invoke
        self._gates: dict[str, MirrorGate] = {}  #: by scorer
        self._logged: set[tuple[int, str]] = set()  #: (rollout, code of the error)

    def judge(self, name: str, answers: AnswersToJudge) -> tuple[str, ...]:
        """What has become of a pair. Nothing as yet where the scorer has to say so: that is counted
        once it has."""
        request, old, new = answers[:3]
        size = len(request) + len(old) + len(new)
        gate = self._gates.setdefault(name, MirrorGate(PAIRS))
        if len(request) > REQUEST_MAX or not self._has_room(name):
            return (UNPAIRED,)
        if gate.admit(1.0, 0.0, size, in_session=False) != MIRRORED:
            return (UNPAIRED,)
        if old == new:
            gate.release(size)
            return (AGREE, *answers.beside)
        made = Invocation(
            name,
            _META,
            scorer.question(request, old, new),
            self,
            received=self._monotonic(),
            deadline=None,
            priority=_PRIORITY_LAST,
            door=DOOR,
            context=_PairAsked(gate, size, answers),
            number=self._ids.next(),
        )
        self.live[made.number] = made
        self._invoke(made)
        return ()

    def _has_room(self, name: str) -> bool:
        endpoint = self._endpoints.get(name)
        if endpoint is None:  # which is a failure of the scorer
            return True
        router = endpoint.router
        return router.may_begin(None, None) or not router.is_open(None, None)

    def _release(self, invocation: Invocation) -> bool:
        found = self.live.pop(invocation.number, None) is not None
        if found:
            invocation.context.gate.release(invocation.context.size)
        return found

    # The responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        try:
            said = AGREE if scorer.scored(reply.body) else DIFFER
        except PenstockError as error:
            self.on_error(invocation, error)
        else:
            self._end(invocation, said, SCORED, *invocation.context.answers.beside)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        self.on_error(invocation, scorer.answer_invalid("in pieces"))

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        if error.code in _NO_ROOM:
            self._end(invocation, UNPAIRED)
            return
        rollout = invocation.context.answers.rollout
        if (rollout, error.code) not in self._logged:
            if len(self._logged) >= _LOGGED_MAX:
                self._logged.clear()
            self._logged.add((rollout, error.code))
            log.warning(
                "the scorer %s failed for a pair of answers: %s", invocation.endpoint, error.message
            )
        self._end(invocation, f"{UNSCORED}:{error.code}")

    def _end(self, invocation: Invocation, *outcomes: str) -> None:
        answers = invocation.context.answers
        try:
            if self._release(invocation):
                for outcome in outcomes:
                    answers.recorder.compared(answers.rollout, outcome)
        finally:
            self._written(invocation)
