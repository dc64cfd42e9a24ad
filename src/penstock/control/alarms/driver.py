"""Looks at each alarm when its time has come, keeps what follows, and has its actions carried out.

A change of state and what the history tells of it are one transaction, and it is written before
anything acts on it: after a kill a state is never entered a second time, and no action of it runs
again but those of scaling policies, which go on as long as a state lasts.

An alarm that can't be evaluated says so, and costs only itself: the others of that second are
looked at, and what follows for them is written.

Alarms are changed by whoever writes their rows; each second one number tells whether anybody did.

How each alarm came to its state, JSON-ready: what the last look saw, and when the next is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from penstock.clock import Clock
from penstock.control.alarms import history, transactions
from penstock.control.alarms.datapoints import Watched
from penstock.control.alarms.records import AlarmRecord, HistoryItem
from penstock.control.store.store_thread import StoreThread
from penstock.core.alarms import words
from penstock.core.alarms.evaluate import AlarmDecision, decide, not_computable
from penstock.core.alarms.schedule import next_look, next_repeat, repeats
from penstock.core.alarms.spec import AlarmFired, Datapoint
from penstock.errors import CallerError, PenstockError
from penstock.metrics import item_failures
from penstock.metrics.item_failures import apart
from penstock.metrics.series.store import MetricStore

_log = logging.getLogger(__name__)

TICK_S: Final = 1.0
_PRUNE_EVERY_S: Final = 3600.0
_LOOP: Final = "alarms"  #: in the count of failures
_INTERNAL: Final = "an internal error occurred."

OnAction = Callable[[AlarmFired], Awaitable[None]]


@dataclass(slots=True)
class AlarmObserved:
    """One alarm under watch."""

    record: AlarmRecord
    watched: Watched | None  #: None: it can't be computed
    fault: str  #: why
    look_at: float  #: wall s
    watched_since: float  #: wall s; 0.0: since it exists
    acted_at: float  #: the look at which its scaling actions last ran, or it became known
    decision: AlarmDecision | None = None  #: of the last look
    datapoints: Sequence[Datapoint] = ()  #: of the last look
    looked_at: float | None = None  #: wall s


class AlarmsDriver:
    """The alarms of one server. `start`, then `stop`; tests call `tick` instead."""

    def __init__(
        self,
        database: StoreThread,
        store: MetricStore,
        clock: Clock,
        on_action: OnAction,
    ) -> None:
        """`on_action` carries out actions that name a scaling policy; what it raises is history."""
        self._database = database
        self._store = store
        self._clock = clock
        self._on_action = on_action
        self._alarms: dict[str, AlarmObserved] = {}
        self._seen_revision = -1
        self._refreshing = asyncio.Lock()
        self._started_at = clock.wall()
        self._prune_at = clock.wall() + _PRUNE_EVERY_S
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="alarms")

    async def stop(self) -> None:
        """Idempotent."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None

    def seen(self) -> list[AlarmObserved]:
        """All alarms with their last look, in the order of names."""
        return [self._alarms[name] for name in sorted(self._alarms)]

    async def tick(self) -> None:
        """Looks at every alarm whose time has come."""
        await self._refresh()
        now = self._clock.wall()
        changes: list[tuple[AlarmObserved, AlarmRecord]] = []
        lasting: list[AlarmObserved] = []
        for alarm in list(self._alarms.values()):
            with apart(_LOOP, alarm.record.name):
                following = next_look(alarm.record.spec, now=now)
                if now < alarm.look_at <= following:  # a clock that was set back looks at once
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
            await self._database.call(transactions.prune, now)

    async def set_state(self, name: str, state: str, reason: str, data: str) -> bool:
        """As SetAlarmState asks: the state until the next look, with its actions.

        Returns False if there is no such alarm.
        """
        now = self._clock.wall()
        done = await self._database.call(transactions.set_state, name, state, reason, data, now)
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

    async def _run(self) -> None:
        while True:
            try:
                await self.tick()
            except PenstockError as error:  # the disk is full: it may have room again
                _log.warning("alarms are not evaluated: %s %s", error.message, error.hint)
            except Exception:
                _log.exception("alarms of this second are not evaluated")
            await asyncio.sleep(TICK_S)

    async def _refresh(self) -> None:
        """Takes over what was written since the last time."""
        async with self._refreshing:
            first = self._seen_revision < 0
            found = await self._database.call(transactions.changes, self._seen_revision)
            if found is None:
                return
            revision, changed, names = found
            others = [record for record in changed if not self._is_known(record)]
            # Expressions come from outside; reading hundreds of long ones takes its time.
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
        """`first`: it was there before the server was."""
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
        """The alarm in its new state, or with another reason where it can't be evaluated; None if
        it keeps the old one."""
        record = alarm.record
        if record.unreadable:  # its row says so, as long as it is there
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
        if not text and record.state_reason.startswith(words.NOT_COMPUTABLE):  # it can be again
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
        except CallerError as error:  # of math that only real values show
            item_failures.note(_LOOP, record.name, error)
            return not_computable(error.message)
        except Exception as error:
            item_failures.note(_LOOP, record.name, error)
            return not_computable(_INTERNAL)

    async def _enter(self, changes: list[tuple[AlarmObserved, AlarmRecord]], now: float) -> None:
        """Writes new states, all in one transaction, then acts on them."""
        written = [(alarm.record, record) for alarm, record in changes]
        results = await self._database.call(transactions.write_states, written, now)
        for (alarm, record), result in zip(changes, results, strict=True):
            if result is None:  # changed or deleted meanwhile: it is looked at anew
                alarm.look_at = now
                continue
            _log.info("alarm %s: %s, %s", record.name, record.state, record.state_reason)
            before, alarm.record = alarm.record, result
            if result.state != before.state:
                with apart(_LOOP, record.name):
                    await self._act(alarm, now)

    async def _act(self, alarm: AlarmObserved, now: float, *, again: bool = False) -> None:
        """Carries out the actions of the state; `again`: those that go on while it lasts."""
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
            await self._database.call(transactions.add_history, items)

    async def _fault_of(self, alarm: AlarmObserved, action: str, now: float) -> str:
        """Carries out one action; what went wrong, or nothing."""
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


def _watched(records: list[AlarmRecord]) -> dict[str, tuple[Watched | None, str]]:
    """By name: what it watches, or why it can't be read or computed."""
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


#: Of each alarm; one of a day of periods has thousands.
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
