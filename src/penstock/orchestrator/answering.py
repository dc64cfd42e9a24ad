"""What comes back of regions: an answer, a refusal, half an answer, or nothing.

An answer goes to the client. A region that refuses, or is lost before an answer was seen, costs the
request another attempt, if it may be computed twice. What breaks in pieces is gone on with
elsewhere where its protocol knows how, or ends with the protocol's own error; so does what a region
itself breaks off, whose copy is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.clock import Clock
from penstock.gateway.dispatch.invocation import ANSWERED
from penstock.orchestrator import refusals
from penstock.orchestrator.passage import (
    PIECES,
    REFUSAL,
    REQUEST_ID,
    ROOM,
    WHOLE,
    WHOLE_BYTES_MAX,
    Passage,
)
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import Region
from penstock.orchestrator.table import TrafficTable

if TYPE_CHECKING:
    from penstock.orchestrator.forwarder import Forwarder

RESUMES_MAX: Final = 4
#: A region reported it inside its answer.
BROKEN_OFF: Final = "stream-broken"

NEW_SESSION_ID: Final = b"x-amzn-sagemaker-new-session-id"
CLOSED_SESSION_ID: Final = b"x-amzn-sagemaker-closed-session-id"

#: The region is well, and can't take it now: another may.
_NOT_NOW: Final = (429, 503)
#: The region does not let the orchestrator in.
_NOT_LET_IN: Final = (401, 403)
#: By no fault of the request; a model that failed is told so by other words.
_FAULTS: Final = (500, 502, 504)


class Answering:
    """For the requests of one forwarder."""

    def __init__(
        self,
        forwarder: Forwarder,
        table: TrafficTable,
        regions: Mapping[str, Region],
        *,
        clock: Clock,
        recorder: TrafficRecorder,
    ) -> None:
        self._forwarder = forwarder
        self._table = table
        self._regions = regions
        self._monotonic = clock.monotonic
        self._recorder = recorder

    def began(self, passage: Passage) -> str:
        """The head of a region's answer is here: how it is passed on, if it is."""
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
        return _mode_of(passage)

    def over(self, passage: Passage) -> None:
        """A region's answer is complete."""
        answer = passage.answer
        assert answer is not None
        if passage.mode == REFUSAL:
            self._turned_down(passage)
            return
        if passage.relay is not None and passage.relay.broken_off:
            region = passage.slot  # it is well: what is gone is one copy
            self._forwarder.let_go(passage, ok=None, outcome=BROKEN_OFF)
            passage.tried += (region,)
            self._resume(passage, region)
            return
        ok = self._verdict(passage)
        self._forwarder.let_go(passage, ok=ok, outcome=f"status-{answer.status}")
        passage.call.state = ANSWERED
        if passage.mode == WHOLE:
            passage.give_whole(answer)
        else:
            passage.give_end()

    def lost(self, passage: Passage, reason: str) -> None:
        """A region's answer will not come, or not come to its end."""
        region = passage.slot
        self._forwarder.let_go(passage, ok=False, outcome=reason)
        passage.tried += (region,)
        if passage.begun:
            self._resume(passage, region)
        elif not passage.asked.repeatable and reason == "connection-lost":
            self._forwarder.fail(passage, refusals.lost(passage.asked.endpoint, region))
        else:
            self._recorder.sent_again(reason)
            self._forwarder.route(passage)

    def _verdict(self, passage: Passage) -> bool | None:
        """What an answer says of the region: that it is well, that it is not, or nothing."""
        answer = passage.answer
        assert answer is not None
        told = dict(answer.headers)
        self._note_session(passage, told)
        if answer.status not in _FAULTS:
            return True
        if answer.status == 500 and passage.asked.model_errors_are_500:
            return None
        return None if told.get(b"x-should-retry") == b"false" else False

    def _note_session(self, passage: Passage, told: dict[bytes, bytes]) -> None:
        """A region opened or closed a session: what comes of it later goes there as well."""
        router, now = passage.traffic.router, self._monotonic()
        opened = told.get(NEW_SESSION_ID)
        if opened is not None:
            session = opened.partition(b";")[0].strip().decode("latin-1")
            router.bind_session(session, passage.region, now=now)
        closed = told.get(CLOSED_SESSION_ID)
        if closed is not None:
            router.close_session(closed.decode("latin-1"), now=now)

    def _turned_down(self, passage: Passage) -> None:
        """A region can't take it, or lets nobody in."""
        answer = passage.answer
        assert answer is not None
        let_in = answer.status not in _NOT_LET_IN
        region = passage.slot
        if let_in:
            passage.kept = answer
        else:
            self._regions[region].refused_us(answer.status)
        ok = None if let_in else False
        self._forwarder.let_go(passage, ok=ok, outcome=f"status-{answer.status}")
        passage.tried += (region,)
        self._recorder.sent_again("region-refused" if not let_in else "spilled")
        if not passage.begun:
            self._forwarder.route(passage)
        elif let_in and answer.status not in _NOT_NOW:
            self._forwarder.fail(passage, refusals.broken(passage.asked.endpoint, region))
        else:
            passage.kept = None  # of no use to a client that has a part of another answer
            self._forwarder.route(passage)

    def _resume(self, passage: Passage, region: str) -> None:
        """A part of the answer is out: it was all, or another region may know how to go on."""
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
            self._forwarder.route(passage)
        elif relay is not None and relay.broken_off:
            self._finish(passage, relay.broken_off)
        else:
            self._forwarder.fail(passage, refusals.broken(passage.asked.endpoint, region))

    def _finish(self, passage: Passage, last: bytes) -> None:
        """The client gets these bytes and no more."""
        passage.call.state = ANSWERED
        if last:
            passage.call.send(last)
        passage.call.finish()


def _mode_of(passage: Passage) -> str:
    answer = passage.answer
    assert answer is not None
    status = answer.status
    if not passage.begun:
        if status in _NOT_LET_IN or (status in _NOT_NOW and passage.asked.repeatable):
            return REFUSAL
    elif status >= 300:
        return REFUSAL  # of a request for the rest of an answer
    length = answer.length
    known = length is not None and length <= WHOLE_BYTES_MAX
    return WHOLE if known and not passage.begun else PIECES
