"""Requests that both sides of a rollout are asked, and how their answers compare.

The sides are two generations of an endpoint, two revisions of an inference component, or two
artifacts of a target model. While a rollout with an agreement gives both traffic, a request that
one of them has answered is copied to the other, after the caller has its answer. The copy takes its
slot from the same router as callers' requests do, so no copy of a model gets more than it has room
for; where the other side has none now, the request has no pair, which is counted. `core/rollout`
judges the counts. Where the agreement has a scorer, that says which answers agree (`scoring.py`).

Where one side has fewer copies, what a request takes is counted without the wait for its turn:
callers' requests choose among all copies, copied ones only among those of one side, and where that
has fewer they find them busy more often.

Of a stream the parts are gathered where its request is sampled, which is decided with its first
part; `core/rollout/stream_document.py` says what they come to, so that where they were cut makes no
difference. It takes as long as its first part does, and as its end does: that only where its caller
did not have it wait.

Not compared: requests of a session or a sequence, answers larger than `ANSWER_MAX`, streams over
gRPC (their parts are tensors, which have no document), and answers of copies that have left the
routes: they may be of what an earlier rollout replaced. A copy that is not answered because its
instance ends as planned says nothing of either side, nor does a stream that its caller leaves, or
that breaks while it waits for its caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Self

from penstock.clock import Clock
from penstock.core.deployment.deployment import ComparedRoutes
from penstock.core.request.mirroring import MIRRORED, NOT_SAMPLED, MirrorGate
from penstock.core.rollout.agreement import (
    AGREE,
    BOTH_FAILED,
    DIFFER,
    NEW_FAILED,
    OLD_FAILED,
    SLOWER,
    UNPAIRED,
)
from penstock.core.rollout.comparison import agree
from penstock.core.rollout.stream_document import document
from penstock.core.routing import CopyState, Routed
from penstock.errors import PenstockError
from penstock.gateway.dispatch.endpoint_table import Endpoint
from penstock.gateway.dispatch.invocation import Invocation, session_of
from penstock.gateway.dispatch.mirroring.scoring import AnswersToJudge, Scorers
from penstock.gateway.dispatch.mirroring.shadows import OF_MODEL, CopiesUnderWay, copied
from penstock.gateway.dispatch.stream_parts import StreamParts
from penstock.gateway.dispatch.streaming import StreamObserved
from penstock.gateway.dispatch.targets import aim_at
from penstock.gateway.request_id import RequestIds
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.wire.frames import Reply, decode_request_meta

#: Bytes. Comparing takes the event loop's time: some ms for each MiB, of streams 50.
ANSWER_MAX: Final = 256 << 10
#: Bytes of all parts that one gateway gathers at a time; streams without room have no pair.
PARTS_MAX: Final = 64 << 20
_GRPC: Final = "oip-grpc"
_TOO_LATE: Final = "deadline-passed"  #: code of an error that says of a model that it is too slow


class Answer(NamedTuple):
    """What came of a request at one side."""

    body: bytes | None  #: None: it failed, or its parts were too long
    failed: bool = False
    in_parts: bool = False  #: it was sampled with its first part

    @classmethod
    def of_parts(cls, parts: StreamParts | None) -> Self | None:
        """Of a stream at its end. None: its parts were not wanted."""
        if parts is None:
            return None
        kept = parts.answer
        return cls(None if kept is None else b"".join(kept), in_parts=True)

    @classmethod
    def broken(cls, stream: StreamObserved) -> Self | None:
        """Of a stream that an error ended. None: its parts were not wanted, or it may have failed
        since its caller had it wait."""
        if stream.compared is None or stream.paced:
            return None
        return cls(None, failed=True, in_parts=True)

    @property
    def fits(self) -> bool:
        """Whether something can be said of it."""
        return self.failed or (self.body is not None and len(self.body) <= ANSWER_MAX)


FAILED: Final = Answer(None, failed=True)


class AnswerTimes(NamedTuple):
    """What an answer took, in s. The same twice where it was no stream."""

    first_s: float  #: until its first part
    whole_s: float | None  #: None: its caller read slowly, so that it had to wait

    def slower(self, other: AnswerTimes, factor: float) -> bool:
        """Whether it took more than `factor` times what the other one took."""
        pairs = ((self.first_s, other.first_s), (self.whole_s, other.whole_s))
        return any(
            mine is not None and its is not None and mine > its * factor for mine, its in pairs
        )


class AnswerPair(NamedTuple):
    """A request that one side has answered: what its copy is compared with."""

    routes: ComparedRoutes
    gate: MirrorGate
    recorder: VariantRecorder
    incoming: bool  #: it was the new side that answered
    answer: Answer
    took: AnswerTimes
    turns: bool  #: waits for a turn count as well


class _RoomOfParts:
    """A `PartsRoom` of `PARTS_MAX`."""

    def __init__(self) -> None:
        self.taken = 0  #: bytes

    def reserve(self, size: int) -> bool:
        fits = self.taken + size <= PARTS_MAX
        self.taken += size if fits else 0
        return fits

    def release(self, size: int) -> None:
        self.taken -= size


class Comparisons(CopiesUnderWay):
    """Copies for the other side."""

    def __init__(
        self,
        clock: Clock,
        ids: RequestIds,
        rng: random.Random,
        written: Callable[[Invocation], None],
        scorers: Scorers,
    ) -> None:
        """`written`: ends a request whose outcome is known."""
        super().__init__(rng, written)
        self._monotonic = clock.monotonic
        self._ids = ids
        self._scorers = scorers
        self.room = _RoomOfParts()

    def parts(self, invocation: Invocation) -> StreamParts | None:
        """Gathers the answer of a request that is about to stream. None: it is not compared, or not
        sampled."""
        if invocation.responder is not self:  # else it is a copy
            routes = _compared(invocation)
            if routes is None or session_of(invocation) is not None:
                return None
            if self._random() >= routes.spec.mirror:
                return None
        if decode_request_meta(invocation.meta).door == _GRPC:
            return None
        return StreamParts(self.room, ANSWER_MAX)

    def copy(
        self, original: Invocation, by: CopyState, body: bytes, answer: Answer, *, now: float
    ) -> tuple[Invocation, Routed] | None:
        """A copy of a request for the other side, with its slot; the caller sends it. None: it is
        not compared, not sampled, or has no pair.

        Args:
            original: has an answer, or its model's error.
            by: the copy that had it.
            body: of the request.
        """
        endpoint: Endpoint = original.entry
        group = by.group
        routes = endpoint.compared.get(group)
        if routes is None or by.draining:
            return None
        balance, to_new = endpoint.balance_of(group), not by.incoming
        if balance is not None and not balance.admits(to_new=to_new):
            return None
        turns = balance is None
        pair = AnswerPair(
            routes, endpoint.pairs, endpoint.recorders[group.pool], by.incoming, answer,
            _times(original, now, turns=turns), turns,
        )  # fmt: skip
        # Both revisions of a component are in one group.
        other = group if group.component else group._replace(incoming=to_new)
        picks = partial(endpoint.router.pick_in, other, incoming=to_new)
        found = self._paired(original, pair, body, picks, now)
        if found is not None and balance is not None:
            balance.copied(to_new=to_new)
        return found

    def copy_to_other_artifact(
        self, original: Invocation, body: bytes, answer: Answer, *, now: float
    ) -> tuple[Invocation, Routed] | None:
        """As `copy`, for the other artifact of a target model that is in a rollout."""
        endpoint: Endpoint = original.entry
        aimed = original.aimed
        assert aimed is not None
        assert aimed.routes.compared is not None
        assert original.route is not None
        group = original.route.state.group
        pair = AnswerPair(
            aimed.routes.compared, endpoint.pairs, endpoint.recorders[group.pool], aimed.incoming,
            answer, _times(original, now, turns=True), True,
        )  # fmt: skip
        other = aimed.other
        picks = partial(endpoint.router.pick_in, group, model=other.artifact, now=now)
        found = self._paired(original, pair, body, picks, now)
        if found is not None:
            aim_at(found[0], other)
        return found

    def _paired(
        self,
        original: Invocation,
        pair: AnswerPair,
        body: bytes,
        picks: Callable[[], Routed | None],
        now: float,
    ) -> tuple[Invocation, Routed] | None:
        """`picks`: takes a slot at the other side."""
        if original.copy_failures:
            return None
        gate, size = pair.gate, len(body)
        share = 1.0 if pair.answer.in_parts else pair.routes.spec.mirror
        in_session = session_of(original) is not None
        outcome = gate.admit(share, self._random(), size, in_session=in_session)
        if outcome == NOT_SAMPLED:
            return None
        routed = None
        if outcome == MIRRORED:
            routed = picks() if pair.answer.fits else None
            if routed is None:
                gate.release(size)
        if routed is None:
            pair.recorder.compared(pair.routes.rollout, UNPAIRED)
            return None
        endpoint: Endpoint = original.entry
        made = copied(
            original, body, self, entry=endpoint, context=pair, number=self._ids.next(), now=now
        )
        made.variant = routed.variant
        self.live[made.number] = made
        endpoint.in_flight += 1
        return made, routed

    # The responder

    def on_reply(self, invocation: Invocation, reply: Reply) -> None:
        self._end(invocation, Answer(reply.body))

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        stream = invocation.stream
        self._end(invocation, Answer.of_parts(stream.compared) if stream is not None else None)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        says = error.family in OF_MODEL or error.code == _TOO_LATE
        self._end(invocation, FAILED if says else None)

    def _release(self, invocation: Invocation) -> bool:
        stream = invocation.stream
        if stream is not None and stream.compared is not None:
            stream.compared.release()
            stream.compared = None
        return super()._release(invocation)

    def _end(self, invocation: Invocation, answer: Answer | None) -> None:
        """`answer`: None: nothing can be said of it."""
        pair: AnswerPair = invocation.context
        try:
            if self._release(invocation):
                for outcome in self._outcomes(pair, invocation, answer):
                    pair.recorder.compared(pair.routes.rollout, outcome)
        finally:
            self._written(invocation)

    def _outcomes(
        self, pair: AnswerPair, invocation: Invocation, answer: Answer | None
    ) -> tuple[str, ...]:
        if answer is None or not answer.fits:
            return (UNPAIRED,)
        of_old, of_new = (answer, pair.answer) if pair.incoming else (pair.answer, answer)
        if of_old.failed:
            return (BOTH_FAILED if of_new.failed else OLD_FAILED,)
        if of_new.failed:
            return (NEW_FAILED,)
        spec = pair.routes.spec
        took = _times(invocation, self._monotonic(), turns=pair.turns)
        old_took, new_took = (took, pair.took) if pair.incoming else (pair.took, took)
        slower = spec.slower_max > 0.0 and new_took.slower(old_took, spec.slower_max)
        beside = (SLOWER,) if slower else ()
        old, new = of_old.body, of_new.body
        assert old is not None
        assert new is not None
        if old != new and (of_old.in_parts or of_new.in_parts):
            old, new = document(old), document(new)
        if spec.scorer:
            rollout, recorder = pair.routes.rollout, pair.recorder
            answers = AnswersToJudge(invocation.body, old, new, rollout, recorder, beside)
            return self._scorers.judge(spec.scorer, answers)
        return (AGREE if agree(old, new, spec) else DIFFER, *beside)


def _compared(invocation: Invocation) -> ComparedRoutes | None:
    """What the answer of a caller's request is compared under."""
    if invocation.aimed is not None and invocation.aimed.routes.compared is not None:
        return invocation.aimed.routes.compared
    endpoint: Endpoint = invocation.entry
    route = invocation.route
    return endpoint.compared.get(route.state.group) if route is not None else None


def _times(invocation: Invocation, now: float, *, turns: bool) -> AnswerTimes:
    """Of a request whose last part came `now`."""
    reply, stream = invocation.reply, invocation.stream
    waited_s = 0.0 if turns or reply is None else reply.queue_us * 1e-6
    began = invocation.received + waited_s
    whole_s = max(now - began, 0.0)
    if stream is None or not stream.first_at:
        return AnswerTimes(whole_s, whole_s)
    return AnswerTimes(max(stream.first_at - began, 0.0), None if stream.paced else whole_s)
