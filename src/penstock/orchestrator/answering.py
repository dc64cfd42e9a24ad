"""What happens with a region's answer: a whole answer, a refusal, a part of an answer, or none.

An answer goes to the client. `core/traffic/outcomes.py` decides what follows from a refusal or a
loss. A streamed answer that breaks is continued in another region if its protocol allows it, or
ends with the protocol's own error. The same holds if the region itself breaks it off because its
copy is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from penstock.clock import Clock
from penstock.core.traffic import outcomes
from penstock.core.traffic.outcomes import REFUSAL, WHOLE
from penstock.errors import PenstockError
from penstock.gateway.dispatch.invocation import ANSWERED
from penstock.orchestrator import refusals
from penstock.orchestrator.passage import REQUEST_ID, Passage
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import Region
from penstock.orchestrator.requests import ROOM
from penstock.orchestrator.table import TrafficTable

RESUMES_MAX: Final = 4
#: The region reported inside its answer that it broke off.
BROKEN_OFF: Final = "stream-broken"

NEW_SESSION_ID: Final = b"x-amzn-sagemaker-new-session-id"
CLOSED_SESSION_ID: Final = b"x-amzn-sagemaker-closed-session-id"


class AnswerDriver(Protocol):
    """Carries out what follows from an answer. `Forwarder` implements it."""

    def let_go(self, passage: Passage, *, ok: bool | None, outcome: str) -> None:
        """Frees the slot in a region. `ok`: whether the region is healthy, by its answer; None:
        unknown."""

    def route(self, passage: Passage) -> None:
        """Sends it to a region that has room, holds it, or refuses it."""

    def fail(self, passage: Passage, error: PenstockError) -> None:
        """The client gets an error of the orchestrator."""


class Answering:
    """Handles the answers to one forwarder's requests."""

    def __init__(
        self,
        driver: AnswerDriver,
        table: TrafficTable,
        regions: Mapping[str, Region],
        *,
        clock: Clock,
        recorder: TrafficRecorder,
    ) -> None:
        self._driver = driver
        self._table = table
        self._regions = regions
        self._monotonic = clock.monotonic
        self._recorder = recorder

    def began(self, passage: Passage) -> str:
        """The head of a region's answer has come. Returns how it is passed on."""
        passage.began_at = self._monotonic()
        answer = passage.answer
        assert answer is not None
        for name, value in answer.headers:
            if name == REQUEST_ID:
                passage.region_request_id = value.decode("latin-1")
            elif name == ROOM and value.isdigit():
                region = self._regions[passage.region]
                self._table.room_told(
                    passage.traffic, passage.region, int(value), way_s=region.way_s
                )
        return outcomes.mode_of(
            answer.status,
            answer.length,
            begun=passage.begun,
            repeatable=passage.asked.repeatable,
        )

    def over(self, passage: Passage) -> None:
        """A region's answer is complete."""
        answer = passage.answer
        assert answer is not None
        if passage.mode == REFUSAL:
            self._turned_down(passage)
            return
        if passage.relay is not None and passage.relay.broken_off:
            region = passage.slot  # the region is healthy: only a copy is gone
            self._driver.let_go(passage, ok=None, outcome=BROKEN_OFF)
            passage.tried += (region,)
            self._resume(passage, region)
            return
        told = dict(answer.headers)
        self._note_session(passage, told)
        ok = outcomes.verdict(
            answer.status,
            may_retry=told.get(b"x-should-retry") != b"false",
            model_errors_are_500=passage.asked.model_errors_are_500,
        )
        self._driver.let_go(passage, ok=ok, outcome=f"status-{answer.status}")
        passage.call.state = ANSWERED
        if passage.mode == WHOLE:
            passage.give_whole(answer)
        else:
            passage.give_end()

    def lost(self, passage: Passage, reason: str) -> None:
        """A region's answer will not come, or not completely."""
        region = passage.slot
        step = outcomes.when_lost(reason, begun=passage.begun, repeatable=passage.asked.repeatable)
        self._driver.let_go(passage, ok=step.ok, outcome=reason)
        passage.tried += (region,)
        if step.do == "resume":
            self._resume(passage, region)
        elif step.do == "fail":
            self._driver.fail(passage, refusals.lost(passage.asked.endpoint, region))
        else:
            self._recorder.sent_again(step.reason)
            self._driver.route(passage)

    def _note_session(self, passage: Passage, told: dict[bytes, bytes]) -> None:
        """A region opened or closed a session: later requests of the session go there too."""
        router, now = passage.traffic.router, self._monotonic()
        opened = told.get(NEW_SESSION_ID)
        if opened is not None:
            session = opened.partition(b";")[0].strip().decode("latin-1")
            router.bind_session(session, passage.region, now=now)
        closed = told.get(CLOSED_SESSION_ID)
        if closed is not None:
            router.close_session(closed.decode("latin-1"), now=now)

    def _turned_down(self, passage: Passage) -> None:
        """A region can't take the request, or does not accept our key."""
        answer = passage.answer
        assert answer is not None
        region, begun = passage.slot, passage.begun
        step = outcomes.when_turned_down(answer.status, begun=begun)
        if step.ok is False:
            self._regions[region].refused_us(answer.status)
        elif not begun:
            passage.kept = answer
        self._driver.let_go(passage, ok=step.ok, outcome=f"status-{answer.status}")
        passage.tried += (region,)
        self._recorder.sent_again(step.reason)
        if begun:
            passage.kept = None  # a client that has a part of another answer can't use it
        if step.do == "fail":
            self._driver.fail(passage, refusals.broken(passage.asked.endpoint, region))
        else:
            self._driver.route(passage)

    def _resume(self, passage: Passage, region: str) -> None:
        """A part of the answer was sent. It was all that was needed, or another region may continue
        it."""
        relay = passage.relay
        ending = relay.ending() if relay is not None else None
        if ending is not None:
            self._finish(passage, ending)
            return
        body = None
        if relay is not None and passage.resumed < RESUMES_MAX:
            body = relay.continuation()
        if body is not None:
            passage.resumed += 1
            passage.body = body
            self._recorder.sent_again("resumed")
            self._driver.route(passage)
        elif relay is not None and relay.broken_off:
            self._finish(passage, relay.broken_off)
        else:
            self._driver.fail(passage, refusals.broken(passage.asked.endpoint, region))

    def _finish(self, passage: Passage, last: bytes) -> None:
        """The client gets these bytes, and then its answer ends."""
        passage.call.state = ANSWERED
        if last:
            passage.call.send(last)
        passage.call.finish()
