"""What the request that is being read on a connection holds of the budget for bodies.

Bytes are taken as they come. A request that goes on in a later read is listed, so that it can be
told to make room for others; `core/request/body_budget.py` decides which.
"""

from __future__ import annotations

from penstock.core.request.body_budget import peer_name
from penstock.errors import PenstockError
from penstock.gateway.dispatch.refusals import memory_full
from penstock.gateway.http.answer_pipeline import UNDER_WAY, AnswerPipeline
from penstock.gateway.http.listener_state import ListenerState


class HoldingPipeline(AnswerPipeline):
    """The part of a connection that keeps account of the memory it reads into."""

    __slots__ = ("_held", "_listed", "_peer", "received")

    def __init__(self, listener: ListenerState) -> None:
        super().__init__(listener)
        self.received = 0.0  #: monotonic s of the last read
        self._held = 0  #: bytes of the budget, by the request that is being read
        self._listed = False  #: among the unfinished ones
        self._peer: str | None = None

    @property
    def peer(self) -> str:
        """Whose bodies are counted together with those that come here."""
        if self._peer is None:
            address = self.about("peername")
            self._peer = peer_name(str(address[0])) if address else ""
        return self._peer

    def refuse_for_room(self) -> None:
        """Others need the memory that this unfinished request holds."""
        self._refuse(memory_full())

    def _refuse(self, error: PenstockError) -> None:
        """Answers the request that is being read with an error, after which the connection ends."""
        raise NotImplementedError

    def _take_with_room_made(self, size: int) -> bool:
        """For bytes that don't fit: False if they can't be taken, and the request was refused."""
        self.listener.make_room(size, self.peer)
        if self._phase in UNDER_WAY:  # else it was this one that had to make room
            if self.bodies.take(size):
                return True
            self._refuse(memory_full())
        return False

    def _hold_head(self, more: int) -> None:
        """An unfinished head counts like a body: it is of the same size, and of strangers."""
        if self.bodies.take(more) or self._take_with_room_made(more):
            self._held += more

    def _list(self) -> None:
        """More of it comes in a later read: until then it may have to make room."""
        self._listed = True
        self.listener.unfinished.grown(self, self.peer, self._held, now=self.received)

    def _unlist(self) -> None:
        self._listed = False
        self.listener.unfinished.ended(self, self.peer)

    def _let_go(self) -> None:
        """Gives back what the unfinished head or body holds."""
        self.bodies.give(self._held)
        self._held = 0
        if self._listed:
            self._unlist()
