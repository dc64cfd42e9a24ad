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

Not compared: streams, requests of a session or a sequence, answers larger than `ANSWER_MAX`, and
answers of copies that have left the routes: they may be of what an earlier rollout replaced.
A copy that is not answered because its instance ends as planned says nothing of either side.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

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
from penstock.core.routing import CopyState, Routed
from penstock.errors import PenstockError
from penstock.gateway.dispatch.endpoint_table import Endpoint
from penstock.gateway.dispatch.invocation import Invocation, session_of
from penstock.gateway.dispatch.mirroring.scoring import AnswersToJudge, Scorers
from penstock.gateway.dispatch.mirroring.shadows import OF_MODEL, CopiesUnderWay, copied
from penstock.gateway.dispatch.targets import aim_at
from penstock.gateway.request_id import RequestIds
from penstock.metrics.counts.recorder import VariantRecorder
from penstock.wire.frames import Reply

#: Bytes. Comparing takes the event loop's time: some ms for each MiB.
ANSWER_MAX: Final = 256 << 10
_TOO_LATE: Final = "deadline-passed"  #: code of an error that says of a model that it is too slow


class AnswerPair(NamedTuple):
    """A request that one side has answered: what its copy is compared with."""

    routes: ComparedRoutes
    gate: MirrorGate
    recorder: VariantRecorder
    incoming: bool  #: it was the new side that answered
    answer: bytes | None  #: None: it failed
    took_s: float
    turns: bool  #: waits for a turn count as well


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

    def copy(
        self, original: Invocation, by: CopyState, body: bytes, answer: bytes | None, *, now: float
    ) -> tuple[Invocation, Routed] | None:
        """A copy of a request for the other side, with its slot; the caller sends it. None: it is
        not compared, not sampled, or has no pair.

        Args:
            original: has an answer, or its model's error.
            by: the copy that had it.
            body: of the request.
            answer: None for an error.
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
            _took_s(original, now, turns=turns), turns,
        )  # fmt: skip
        # Both revisions of a component are in one group.
        other = group if group.component else group._replace(incoming=to_new)
        picks = partial(endpoint.router.pick_in, other, incoming=to_new)
        found = self._paired(original, pair, body, picks, now)
        if found is not None and balance is not None:
            balance.copied(to_new=to_new)
        return found

    def copy_to_other_artifact(
        self, original: Invocation, body: bytes, answer: bytes | None, *, now: float
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
            answer, _took_s(original, now, turns=True), True,
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
        gate, spec, size = pair.gate, pair.routes.spec, len(body)
        in_session = session_of(original) is not None
        outcome = gate.admit(spec.mirror, self._random(), size, in_session=in_session)
        if outcome == NOT_SAMPLED:
            return None
        routed = None
        if outcome == MIRRORED:
            too_long = pair.answer is not None and len(pair.answer) > ANSWER_MAX
            routed = None if too_long else picks()
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
        self._end(invocation, reply.body)

    def on_end(self, invocation: Invocation, reply: Reply) -> None:
        self._end(invocation, None, says=False)

    def on_error(self, invocation: Invocation, error: PenstockError) -> None:
        says = error.family in OF_MODEL or error.code == _TOO_LATE
        self._end(invocation, None, says=says)

    def _end(self, invocation: Invocation, answer: bytes | None, *, says: bool = True) -> None:
        pair: AnswerPair = invocation.context
        try:
            if self._release(invocation):
                for outcome in self._outcomes(pair, invocation, answer, says=says):
                    pair.recorder.compared(pair.routes.rollout, outcome)
        finally:
            self._written(invocation)

    def _outcomes(
        self, pair: AnswerPair, invocation: Invocation, answer: bytes | None, *, says: bool
    ) -> tuple[str, ...]:
        if not says or (answer is not None and len(answer) > ANSWER_MAX):
            return (UNPAIRED,)
        old, new = (answer, pair.answer) if pair.incoming else (pair.answer, answer)
        if old is None:
            return (BOTH_FAILED if new is None else OLD_FAILED,)
        if new is None:
            return (NEW_FAILED,)
        spec = pair.routes.spec
        took_s = _took_s(invocation, self._monotonic(), turns=pair.turns)
        old_s, new_s = (took_s, pair.took_s) if pair.incoming else (pair.took_s, took_s)
        slower = spec.slower_max > 0.0 and new_s > old_s * spec.slower_max
        beside = (SLOWER,) if slower else ()
        if spec.scorer:
            rollout, recorder = pair.routes.rollout, pair.recorder
            answers = AnswersToJudge(invocation.body, old, new, rollout, recorder, beside)
            return self._scorers.judge(spec.scorer, answers)
        return (AGREE if agree(old, new, spec) else DIFFER, *beside)


def _took_s(invocation: Invocation, now: float, *, turns: bool) -> float:
    reply = invocation.reply
    waited_s = 0.0 if turns or reply is None else reply.queue_us * 1e-6
    return max(now - invocation.received - waited_s, 0.0)
