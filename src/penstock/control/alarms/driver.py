"""Evaluates each alarm when it is due, stores the result, and runs the alarm's actions.

A new state and its history item are one transaction, committed before any action runs. So after a
kill no state is entered twice and no action runs twice. Actions on scaling policies are the
exception: they repeat for as long as a state lasts.

An alarm that can't be evaluated records why and affects no other: the other alarms of that second
are evaluated and stored.

Anybody may change the rows of alarms. Once per second the driver reads one number, the revision,
which shows whether any row changed.

`explained` gives the state of each alarm as JSON: its last evaluation and the time of the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
from sqlalchemy import Connection

from penstock.clock import Clock
from penstock.control.alarms import history, rows
from penstock.control.alarms.datapoints import Watched
from penstock.control.alarms.records import AlarmRecord, HistoryItem
from penstock.control.loop import DriverLoop
from penstock.control.store.store import reads, writes
from penstock.control.store.store_thread import StoreThread
from penstock.core.alarms import words
from penstock.core.alarms.evaluate import (
    AlarmDecision,
    decide,
    next_look,
    next_repeat,
    not_computable,
    repeats,
)
from penstock.core.alarms.spec import AlarmFired, Datapoint
from penstock.errors import CallerError, PenstockError
from penstock.metrics import item_failures
from penstock.metrics.item_failures import apart
from penstock.metrics.series.store import MetricStore

_log = logging.getLogger(__name__)

TICK_S: Final = 1.0
_PRUNE_EVERY_S: Final = 3600.0
_LOOP: Final = "alarms"  #: the label of this loop in the count of failures
_INTERNAL: Final = "an internal error occurred."

OnAction = Callable[[AlarmFired], Awaitable[None]]


@dataclass(slots=True)
class AlarmObserved:
    """One alarm that this driver evaluates."""

    record: AlarmRecord
    watched: Watched | None  #: None: it can't be parsed or computed
    fault: str  #: why `watched` is None; empty: it is not
    look_at: float  #: when the next evaluation is due, wall s
    watched_since: float  #: wall s; 0.0: since the alarm exists
    #: wall s of the evaluation that last ran its scaling actions, or when the alarm was loaded
    acted_at: float
    decision: AlarmDecision | None = None  #: the result of the last evaluation
    datapoints: Sequence[Datapoint] = ()  #: the input of the last evaluation
    looked_at: float | None = None  #: when the last evaluation was, wall s


class AlarmsDriver:
    """The alarms of one server. `start`, then `stop`; tests call `tick` instead."""

    def __init__(
        self,
        database: StoreThread,
        store: MetricStore,
        clock: Clock,
        on_action: OnAction,
    ) -> None:
        """`on_action` runs actions that name a scaling policy; if it raises, the history records
        it."""
        self._database = database
        self._store = store
        self._clock = clock
        self._on_action = on_action
        self._alarms: dict[str, AlarmObserved] = {}
        self._seen_revision = -1
        self._refreshing = asyncio.Lock()
        self._started_at = clock.wall()
        self._prune_at = clock.wall() + _PRUNE_EVERY_S
        loop = DriverLoop("alarms", self._turn, fault="alarms are not evaluated", retry_s=TICK_S)
        self.start, self.stop = loop.start, loop.close

    def seen(self) -> list[AlarmObserved]:
        """All alarms with their last evaluation, in the order of names."""
        return [self._alarms[name] for name in sorted(self._alarms)]

    async def tick(self) -> None:
        """Evaluates every alarm that is due."""
        await self._refresh()
        now = self._clock.wall()
        changes: list[tuple[AlarmObserved, AlarmRecord]] = []
        lasting: list[AlarmObserved] = []
        for alarm in list(self._alarms.values()):
            with apart(_LOOP, alarm.record.name):
                following = next_look(alarm.record.spec, now=now)
                # If the clock was set back, the alarm is due at once.
                if now < alarm.look_at <= following:
                    continue
                looked_at, alarm.look_at = alarm.look_at, following
                entered = await self._look(alarm, now)
                if entered is not None:
                    if entered.state != alarm.record.state:
                        alarm.acted_at = looked_at
                    changes.append((alarm, entered))
                elif looked_at >= next_repeat(alarm.record.spec, acted_at=alarm.acted_at):
                    alarm.acted_at = looked_at
                    lasting.append(alarm)
        if changes:
            await self._enter(changes, now)
        for alarm in lasting:
            with apart(_LOOP, alarm.record.name):
                await self._act(alarm, now, again=True)
        if now >= self._prune_at:
            self._prune_at = now + _PRUNE_EVERY_S
            await self._database.call(_prune, now=now)

    async def set_state(self, name: str, state: str, reason: str, data: str) -> bool:
        """Sets the state until the next evaluation, as SetAlarmState does, and runs its actions.

        Returns False if there is no such alarm.
        """
        now = self._clock.wall()
        done = await self._database.call(_set_state, name, state, reason, data, now)
        if done is None:
            return False
        before, record = done
        if record.state != before.state:
            await self._refresh()
            alarm = self._alarms.get(name)
            if alarm is not None:
                alarm.acted_at = now
                await self._act(alarm, now)
        return True

    async def _turn(self) -> float:
        await self.tick()
        return TICK_S

    async def _refresh(self) -> None:
        """Loads the alarms that were changed since the last call."""
        async with self._refreshing:
            first = self._seen_revision < 0
            found = await self._database.call(_changes, self._seen_revision)
            if found is None:
                return
            revision, changed, names = found
            others = [record for record in changed if not self._is_known(record)]
            # Users write expressions; parsing hundreds of long ones takes time.
            watched = await asyncio.to_thread(_watched, others) if others else {}
            self._seen_revision = revision
            for name in self._alarms.keys() - names:
                del self._alarms[name]
            for record in changed:
                if record.name in watched:
                    self._watch(record, *watched[record.name], first=first)
                else:
                    self._alarms[record.name].record = record

    def _is_known(self, record: AlarmRecord) -> bool:
        known = self._alarms.get(record.name)
        return known is not None and known.record.spec == record.spec

    def _watch(
        self, record: AlarmRecord, watched: Watched | None, fault: str, *, first: bool
    ) -> None:
        """`first`: the alarm existed before this server started."""
        now = self._clock.wall()
        known = self._alarms.get(record.name)
        self._alarms[record.name] = AlarmObserved(
            record=record,
            watched=watched,
            fault=fault,
            look_at=next_look(record.spec, now=now) if first else now,
            watched_since=self._started_at if first else 0.0,
            acted_at=now if known is None else known.acted_at,
        )

    async def _look(self, alarm: AlarmObserved, now: float) -> AlarmRecord | None:
        """The alarm with its new state, or with a new reason if it can't be evaluated. None if
        nothing changes."""
        record = alarm.record
        if record.unreadable:  # the row keeps the reason until somebody replaces it
            return None
        alarm.decision = decision = await self._decided(alarm, now)
        data = orjson.dumps(decision.data).decode() if decision.data else ""
        if decision.state != record.state:
            return replace(
                record,
                state=decision.state,
                state_reason=decision.text,
                state_reason_data=data,
                state_updated=now,
            )
        text = decision.text
        # It can be computed again.
        if not text and record.state_reason.startswith(words.NOT_COMPUTABLE):
            text = words.insufficient(record.spec)
        if text and text != record.state_reason:
            return replace(record, state_reason=text, state_reason_data=data)
        return None

    async def _decided(self, alarm: AlarmObserved, now: float) -> AlarmDecision:
        record = alarm.record
        if alarm.watched is None:
            return not_computable(alarm.fault)
        try:
            alarm.datapoints = await alarm.watched.datapoints(self._store, now=now)
            alarm.looked_at = now
            return decide(
                record.spec,
                alarm.datapoints,
                record.state,
                now=now,
                watched_since=alarm.watched_since,
            )
        except CallerError as error:  # an error of metric math that only real values show
            item_failures.note(_LOOP, record.name, error)
            return not_computable(error.message)
        except Exception as error:
            item_failures.note(_LOOP, record.name, error)
            return not_computable(_INTERNAL)

    async def _enter(self, changes: list[tuple[AlarmObserved, AlarmRecord]], now: float) -> None:
        """Writes all new states in one transaction, then runs their actions."""
        written = [(alarm.record, record) for alarm, record in changes]
        results = await self._database.call(_write_states, written, now)
        for (alarm, record), result in zip(changes, results, strict=True):
            if result is None:  # somebody changed or deleted it meanwhile: it is evaluated anew
                alarm.look_at = now
                continue
            _log.info("alarm %s: %s, %s", record.name, record.state, record.state_reason)
            before, alarm.record = alarm.record, result
            if result.state != before.state:
                with apart(_LOOP, record.name):
                    await self._act(alarm, now)

    async def _act(self, alarm: AlarmObserved, now: float, *, again: bool = False) -> None:
        """Runs the actions of the state; `again`: only those that repeat while the state lasts."""
        record = alarm.record
        if not record.actions_enabled:
            return
        items: list[HistoryItem] = []
        for action in record.actions.of(record.state):
            if again and not repeats(action):
                continue
            fault = await self._fault_of(alarm, action, now)
            if fault or not again:
                items.append(history.acted(record, action, fault=fault, now=now))
        if items and not again:
            await self._database.call(_add_history, items)

    async def _fault_of(self, alarm: AlarmObserved, action: str, now: float) -> str:
        """Runs one action. Returns what went wrong; empty if nothing did."""
        if not repeats(action):
            return "This server has no target for such an action."
        record, decision = alarm.record, alarm.decision
        fired = AlarmFired(
            alarm=record.spec,
            arn=record.arn,
            action=action,
            state=record.state,
            values=decision.values if decision is not None else (),
            reason=record.state_reason,
            at=now,
        )
        try:
            await self._on_action(fired)
        except PenstockError as error:
            return error.message
        except Exception:
            _log.exception("action %s of alarm %s", action, record.name)
            return _INTERNAL.capitalize()
        return ""


@reads
def _changes(db: Connection, seen: int) -> tuple[int, list[AlarmRecord], set[str]] | None:
    """The changes since the revision `seen`: (newest revision, changed alarms, names of all
    alarms). None if nothing changed."""
    number = rows.revision(db)
    return None if number == seen else (number, *rows.changed_since(db, seen))


@writes
def _write_states(
    db: Connection, changes: list[tuple[AlarmRecord, AlarmRecord]], now: float
) -> list[AlarmRecord | None]:
    """Writes states, given as (before, after), with a history item for each state change. None for
    each alarm that was changed or deleted meanwhile."""
    kept = rows.set_states(db, [after for _, after in changes])
    history.add(
        db,
        [
            history.state_changed(after, before, now=now)
            for (before, _), after in zip(changes, kept, strict=True)
            if after is not None and after.state != before.state
        ],
    )
    return kept


@writes
def _set_state(
    db: Connection, name: str, state: str, reason: str, data: str, now: float
) -> tuple[AlarmRecord, AlarmRecord] | None:
    """The alarm before and after the change; None if there is no such alarm."""
    before = rows.get(db, name)
    if before is None:
        return None
    after = replace(
        before, state=state, state_reason=reason, state_reason_data=data, state_updated=now
    )
    items = [history.state_changed(after, before, now=now)] if state != before.state else []
    return before, rows.set_state(db, after, items)


_add_history, _prune = writes(history.add), writes(history.prune)


def _watched(records: list[AlarmRecord]) -> dict[str, tuple[Watched | None, str]]:
    """Name -> (what the alarm watches, "") or (None, why it can't be parsed or computed)."""
    found: dict[str, tuple[Watched | None, str]] = {}
    for record in records:
        try:
            found[record.name] = Watched(record.spec), ""
        except CallerError as error:
            found[record.name] = None, error.message
            if not record.unreadable:
                item_failures.note(_LOOP, record.name, error)
        except Exception as error:
            found[record.name] = None, _INTERNAL
            item_failures.note(_LOOP, record.name, error)
    return found


#: Datapoints shown per alarm: an alarm over a day of short periods has thousands.
DATAPOINTS_MAX = 100


def explained(alarms: Iterable[AlarmObserved]) -> list[dict[str, Any]]:
    return [_row(alarm) for alarm in alarms]


def _row(alarm: AlarmObserved) -> dict[str, Any]:
    record, spec = alarm.record, alarm.record.spec
    return {
        "alarm": record.name,
        "owner": record.owner,
        "state": record.state,
        "state_reason": record.state_reason,
        "state_since": record.state_updated,
        "rule": (
            f"{spec.datapoints_to_alarm} of {spec.evaluation_periods} x {spec.period_s} s "
            f"{spec.comparison} {spec.threshold}, missing data: {spec.treat_missing_data}"
        ),
        "reason": alarm.decision.reason if alarm.decision is not None else "not-looked-at",
        "looked_at": alarm.looked_at,
        "look_at": alarm.look_at,
        "datapoints": [
            {"at": point.at, "value": point.value} for point in alarm.datapoints[-DATAPOINTS_MAX:]
        ],
    }
