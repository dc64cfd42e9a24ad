"""Changes of endpoints' states and their reasons, in the store: steps inside a transaction, as in
`rows.py`. They are for people: why a rollout went as it did is asked after a restart as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Final

from sqlalchemy import Connection, delete, insert, select

from penstock.control.database import schema
from penstock.control.database.mapping import record_of
from penstock.control.store import rows
from penstock.control.store.records import ENDPOINT

#: Of one endpoint: of more, the oldest go.
ACTIVITIES_MAX: Final = 200
_TABLE = schema.endpoint_activities


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """One thing that was done or that happened, and the reason."""

    at: float  #: seconds since the epoch
    what: str
    reason: str
    detail: str = ""


def add(db: Connection, endpoint: str, activity: Activity) -> None:
    """Nothing where the endpoint is gone, or the last one says the same: a change that could not be
    written is tried again."""
    key = endpoint.lower()
    if rows.find(db, ENDPOINT, key) is None:
        return
    newest = select(_TABLE).where(_TABLE.c.endpoint_key == key).order_by(_TABLE.c.number.desc())
    last = db.execute(newest.limit(1)).mappings().first()
    if last is not None and replace(record_of(Activity, last), at=activity.at) == activity:
        return
    db.execute(insert(_TABLE).values(endpoint_key=key, **asdict(activity)))
    surplus = db.execute(newest.offset(ACTIVITIES_MAX).limit(1)).mappings().first()
    if surplus is not None:
        oldest = _TABLE.c.number <= surplus["number"]
        db.execute(delete(_TABLE).where(_TABLE.c.endpoint_key == key, oldest))


def everything(db: Connection) -> dict[str, list[Activity]]:
    """Key of an endpoint -> its activities, oldest first."""
    found: dict[str, list[Activity]] = {}
    for row in db.execute(select(_TABLE).order_by(_TABLE.c.number)).mappings():
        found.setdefault(row["endpoint_key"], []).append(record_of(Activity, row))
    return found
