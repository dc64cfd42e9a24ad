"""Which requests for a target model are refused, when, and with which message.

At once, where waiting would not help; later, when their deadline can't be met any more; and all
waiting ones when a load fails, for as long as the failure is remembered. Part of the machine
(`machine.py`).
"""

from __future__ import annotations

from math import inf

from penstock.core.residency import actions as why
from penstock.core.residency.account import Account
from penstock.core.residency.actions import Action, RefuseParked
from penstock.core.residency.loads import Loads, bytes_of, refuse_all
from penstock.core.residency.model import Failure, RoomState, TargetModel
from penstock.core.residency.spec import ResidencySpec
from penstock.core.residency.table import Table


class Refusals:
    def __init__(self, spec: ResidencySpec, table: Table, account: Account, loads: Loads) -> None:
        self._spec = spec
        self._table = table
        self._account = account
        self._loads = loads

    def at_once(
        self, known: TargetModel, now: float, deadline: float | None
    ) -> RefuseParked | None:
        name = known.name
        failure = known.refused(now)
        if failure is not None:
            retry_after_s = None if failure.until == inf else failure.until - now
            return RefuseParked(
                name, failure.reason, failure.message, retry_after_s, newest_only=True
            )
        ready_at = known.ready_at(now, self._loads.load_s(known))
        if len(known.parked) >= self._spec.waiting_max:
            return RefuseParked(
                name,
                why.TOO_MANY_WAITING,
                f"{len(known.parked)} requests wait for model {name} to be loaded",
                ready_at - now,
                newest_only=True,
            )
        if deadline is None or (now < deadline and ready_at <= deadline):
            return None
        message = (
            f"loading model {name} is expected to take {ready_at - now:.1f} s, "
            f"and the deadline is in {max(deadline - now, 0.0):.1f} s"
        )
        return RefuseParked(name, why.NOT_IN_TIME, message, ready_at - now, newest_only=True)

    def late(self, known: TargetModel, now: float) -> list[Action]:
        """Refuses its parked requests whose deadline can't be met any more."""
        load_s = self._loads.load_s(known)
        due = known.unpark_late(now, load_s)
        if not due:
            return []
        retry_after_s = known.ready_at(now, load_s) - now
        reason, message = why.NOT_IN_TIME, f"model {known.name} is not loaded before the deadline"
        blocked = known.room is RoomState.BLOCKED
        if blocked:
            reason = why.NO_ROOM
            message = f"all models that could make room for {known.name} answer or are pinned"
        if known.parked:
            known.story.tell("refused", reason, now=now, text=message)
            return [RefuseParked(known.name, reason, message, retry_after_s, deadline_max=due[-1])]
        wished = known.wished
        refused = refuse_all(self._table, known, reason, message, retry_after_s, now=now)
        if wished:
            known.wish()
        if not (blocked or known.dismissed):
            known.expect(why.RETRY_EXPECTED)
        if not known.wanted:
            self._loads.drop(known, now)
        return [refused]

    def remembered(
        self, known: TargetModel, failure: Failure, retry_after_s: float | None, now: float
    ) -> list[Action]:
        """Refuses all its waiting requests, and further ones until `failure` is over."""
        known.fail(failure)
        asked = known.asked
        refused = refuse_all(
            self._table, known, failure.reason, failure.message, retry_after_s, now=now
        )
        return [refused] if asked else []

    def too_large(self, known: TargetModel, now: float) -> RefuseParked:
        assert known.need is not None
        message = (
            f"model {known.name} needs {bytes_of(known.need)}, and the budget is "
            f"{bytes_of(self._spec.budget)}, of which {bytes_of(self._account.base)} are taken "
            f"without any model"
        )
        known.fail(Failure(inf, why.LARGER_THAN_BUDGET, message))
        self._loads.drop(known, now)
        return refuse_all(self._table, known, why.LARGER_THAN_BUDGET, message, None, now=now)

    def wish_for_quarantined(self, known: TargetModel, now: float) -> RefuseParked | None:
        """The refusal of an explicit load of a model in quarantine; None where it is in none."""
        failure = known.refused(now)
        if failure is None or failure.reason != why.QUARANTINED:
            return None
        known.story.tell("refused", why.QUARANTINED, now=now, text=failure.message)
        return RefuseParked(known.name, why.QUARANTINED, failure.message, failure.until - now)

    def quarantine(
        self, known: TargetModel, message: str, now: float, *, seconds: float | None = None
    ) -> list[Action]:
        left_alone_s = self._spec.quarantine_s if seconds is None else seconds
        known.story.tell("quarantined", why.QUARANTINED, now=now, text=message)
        failure = Failure(now + left_alone_s, why.QUARANTINED, message)
        return self.remembered(known, failure, left_alone_s, now)
