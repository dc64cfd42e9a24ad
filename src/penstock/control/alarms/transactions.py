"""The driver's reads and writes. Each is one transaction on the database's thread."""

from __future__ import annotations

from dataclasses import replace

from penstock.control.alarms import history, rows
from penstock.control.alarms.records import AlarmRecord, HistoryItem
from penstock.control.store.store import Store


def changes(store: Store, seen: int) -> tuple[int, list[AlarmRecord], set[str]] | None:
    """The changes since the revision `seen`: (newest revision, changed alarms, names of all
    alarms). None if nothing changed."""
    with store.read() as db:
        number = rows.revision(db)
        return None if number == seen else (number, *rows.changed_since(db, seen))


def write_states(
    store: Store, changes: list[tuple[AlarmRecord, AlarmRecord]], now: float
) -> list[AlarmRecord | None]:
    """Writes states, given as (before, after), with a history item for each state change. None for
    each alarm that was changed or deleted meanwhile."""
    with store.begin() as db:
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


def set_state(
    store: Store, name: str, state: str, reason: str, data: str, now: float
) -> tuple[AlarmRecord, AlarmRecord] | None:
    """The alarm before and after the change; None if there is no such alarm."""
    with store.begin() as db:
        before = rows.get(db, name)
        if before is None:
            return None
        after = replace(
            before, state=state, state_reason=reason, state_reason_data=data, state_updated=now
        )
        items = [history.state_changed(after, before, now=now)] if state != before.state else []
        return before, rows.set_state(db, after, items)


def add_history(store: Store, items: list[HistoryItem]) -> None:
    with store.begin() as db:
        history.add(db, items)


def prune(store: Store, now: float) -> None:
    with store.begin() as db:
        history.prune(db, now=now)
