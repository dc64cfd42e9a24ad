"""Which artifacts answer for the target models of endpoints, in the store: steps inside a
transaction, as in `rows.py`.

`core/endpoint/target_rollouts.py` decides how a rollout goes on; this file says which changes are
allowed.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, delete, insert

from penstock.control.database import schema
from penstock.control.database.mapping import to_json
from penstock.control.store import rows
from penstock.control.store.records import (
    ENDPOINT,
    EndpointRecord,
    RolloutSettled,
    TargetRolloutUnderWay,
)
from penstock.core.deployment.endpoint_state import DELETING, SetTarget
from penstock.core.deployment.served_targets import ServedTarget
from penstock.core.rollout.policy import RESUME, TERMINATING

_TABLE = schema.served_targets


def begin(db: Connection, endpoint: str, wanted: ServedTarget) -> EndpointRecord:
    """Begins the rollout of an artifact.

    Raises `NotFound`; `EndpointBusy` where the endpoint is not InService; `TargetRolloutUnderWay`.
    """
    row = rows.in_service(db, endpoint)
    found = _find(rows.endpoint(db, endpoint), wanted.target)
    if found is not None and found.incoming:
        raise TargetRolloutUnderWay(row["name"], wanted.target, found.incoming)
    _put(db, row["key"], replace(wanted, serves=found.serves if found else wanted.target))
    return rows.endpoint(db, endpoint)


def order(db: Connection, endpoint: str, target: str, order: str) -> EndpointRecord:
    """Writes what an operator ordered. Raises `NotFound`, `RolloutSettled`."""
    row = rows.require(db, ENDPOINT, endpoint)
    found = _find(rows.endpoint(db, endpoint), target)
    if found is None or found.progress is None:
        raise RolloutSettled(row["name"], "no rollout is under way", model=target)
    if found.progress.stage == TERMINATING:
        raise RolloutSettled(row["name"], "it ends at the new artifact already", model=target)
    kept = "" if order == RESUME else order
    _put(db, row["key"], replace(found, progress=replace(found.progress, order=kept)))
    return rows.endpoint(db, endpoint)


def settle(db: Connection, endpoint: str, action: SetTarget) -> EndpointRecord | None:
    """Writes how far a rollout is, or its end; nothing where it has ended. None if the endpoint is
    gone."""
    row = rows.find(db, ENDPOINT, endpoint)
    if row is None:
        return None
    record, wanted = rows.endpoint(db, endpoint), action.served
    found = _find(record, wanted.target)
    if row["status"] == DELETING or found is None or not found.incoming:
        return record
    if wanted.progress is not None and found.progress is not None:  # its order may be new
        wanted = replace(wanted, progress=replace(wanted.progress, order=found.progress.order))
    _put(db, row["key"], wanted)
    return rows.endpoint(db, endpoint)


def _put(db: Connection, key: str, served: ServedTarget) -> None:
    here = (_TABLE.c.endpoint_key == key, _TABLE.c.target == served.target)
    db.execute(delete(_TABLE).where(*here))
    if not served.is_itself or served.why:
        values = {"endpoint_key": key, "target": served.target, "served": to_json(served)}
        db.execute(insert(_TABLE).values(values))


def _find(record: EndpointRecord, target: str) -> ServedTarget | None:
    return next((one for one in record.targets if one.target == target), None)
