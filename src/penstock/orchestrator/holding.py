"""Requests that wait here for a region with room: looked at when something has changed for them."""

from __future__ import annotations

from typing import Protocol

from penstock.clock import Clock
from penstock.core.traffic.spec import Refused, Sent
from penstock.gateway.timers import Timers
from penstock.orchestrator.passage import Passage
from penstock.orchestrator.table import EndpointTraffic, TrafficTable


class HeldSender(Protocol):
    """Who carries out what is decided of a request that waited."""

    def send(self, passage: Passage, sent: Sent, now: float) -> None:
        """It has a slot in a region."""

    def refused(self, passage: Passage, refused: Refused) -> None:
        """It has waited for nothing."""


class Holding:
    """Of one orchestrator. Which of them may go is the routers' to say."""

    def __init__(
        self, table: TrafficTable, sender: HeldSender, *, clock: Clock, timers: Timers
    ) -> None:
        self._table = table
        self._sender = sender
        self._monotonic = clock.monotonic
        self._timers = timers
        self._to_look: list[EndpointTraffic] = []

    def __len__(self) -> int:
        return sum(len(one.waiting) for one in self._table.all())

    def look(self, traffic: EndpointTraffic) -> None:
        """Something has changed for the requests that wait for this endpoint."""
        if not self._to_look:
            self._timers.call_soon(self._look)
        self._to_look.append(traffic)

    def look_all(self) -> None:
        """Time has passed. Call it a few times a second."""
        for traffic in self._table.all():
            if traffic.waiting:
                self.look(traffic)

    def _look(self) -> None:
        looked, self._to_look = self._to_look, []
        for traffic in dict.fromkeys(looked):
            now = self._monotonic()
            for ticket, answer in traffic.router.released(now=now):
                passage: Passage = traffic.waiting.pop(ticket)
                passage.ticket = 0
                if isinstance(answer, Sent):
                    self._sender.send(passage, answer, now)
                else:
                    self._sender.refused(passage, answer)
