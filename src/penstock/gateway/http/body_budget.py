"""The share of the budget for bodies that a connection's current request holds.

Bytes are taken as they come. A request whose data continue in a later read is listed, so that it
can be refused to make room for others; `core/request/body_budget.py` decides which.
"""

from __future__ import annotations

from penstock.core.request.body_budget import peer_name
from penstock.errors import PenstockError
from penstock.gateway.dispatch.refusals import memory_full
from penstock.gateway.http.answer_pipeline import UNDER_WAY, AnswerPipeline
from penstock.gateway.http.listener_state import ListenerState


class HoldingPipeline(AnswerPipeline):
    """The part of a connection that accounts for the memory of the request that it reads."""

    __slots__ = ("_held", "_listed", "_peer", "received")

    def __init__(self, listener: ListenerState) -> None:
        super().__init__(listener)
        self.received = 0.0  #: monotonic s of the last read
        self._held = 0  #: bytes of the budget that the current request holds
        self._listed = False  #: the current request is on the list of unfinished ones
        self._peer: str | None = None

    @property
    def peer(self) -> str:
        """The client whose connections share one account for bodies."""
        if self._peer is None:
            address = self.about("peername")
            self._peer = peer_name(str(address[0])) if address else ""
        return self._peer

    def refuse_for_room(self) -> None:
        """Others need the memory of this unfinished request: refuses it."""
        self._refuse(memory_full())

    def _refuse(self, error: PenstockError) -> None:
        """Answers the current request with an error, after which the connection ends."""
        raise NotImplementedError

    def _take_with_room_made(self, size: int) -> bool:
        """Tries to make room for bytes that don't fit. False if they can't be taken; then the
        request was refused."""
        self.listener.make_room(size, self.peer)
        if self._phase in UNDER_WAY:  # otherwise this request itself was refused to make room
            if self.bodies.take(size):
                return True
            self._refuse(memory_full())
        return False

    def _hold_head(self, more: int) -> None:
        """Accounts for an unfinished head like for a body: heads can be as large, and anybody sends
        them."""
        if self.bodies.take(more) or self._take_with_room_made(more):
            self._held += more

    def _list(self) -> None:
        """More data come in a later read: until then the request may be refused to make room."""
        self._listed = True
        self.listener.unfinished.grown(self, self.peer, self._held, now=self.received)

    def _unlist(self) -> None:
        self._listed = False
        self.listener.unfinished.ended(self, self.peer)

    def _let_go(self) -> None:
        """Returns the memory of the unfinished head or body to the budget."""
        self.bodies.give(self._held)
        self._held = 0
        if self._listed:
            self._unlist()
