"""The tables of asynchronous requests and their notifications; each function is one transaction.

Functions run on the database's thread. A row of `async_requests` is a request that was accepted and
has no outcome yet. Once its output is there, it is deleted in the transaction that adds its
notification. So if a process dies in between, the request is repeated and makes the same object.
Bodies are in a table of their own: whoever looks at the queue does not read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import (
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    RowMapping,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)

from penstock.control.database.mapping import record_of, values_of
from penstock.control.database.schema import metadata
from penstock.control.store import rows
from penstock.control.store.records import ENDPOINT
from penstock.control.store.store import Store
from penstock.core.deployment.endpoint_state import DELETING, FAILED
from penstock.core.jobs.asynchronous_actions import Accepted

async_requests: Final = Table(
    "async_requests",
    metadata,
    #: Never used twice, so rows up to a number that was read need not be read again.
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("endpoint", String(128), nullable=False),
    #: When the endpoint was created: another one of the same name does not take over its queue.
    Column("born", Double, nullable=False),
    Column("inference_id", String(1024), nullable=False),
    Column("accepted", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("timeout_s", Double, nullable=False),
    Column("input_uri", Text, nullable=False),  #: empty: the body is in `async_bodies`
    Column("body_bytes", Integer, nullable=False),  #: size of the body in `async_bodies`
    Column("meta", LargeBinary, nullable=False),  #: wire form of `frames.RequestMeta`
    Column("content_type", Text, nullable=False),
    Column("output_uri", Text, nullable=False),
    Column("failure_uri", Text, nullable=False),
    Column("success_topic", Text, nullable=False),
    Column("error_topic", Text, nullable=False),
    Column("answer_in_success", Integer, nullable=False),
    Column("answer_in_error", Integer, nullable=False),
    Index("async_requests_endpoint", "endpoint", "born", "number"),
    Index("async_requests_expires", "endpoint", "born", "expires"),
    sqlite_autoincrement=True,
)

async_bodies: Final = Table(
    "async_bodies",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("body", LargeBinary, nullable=False),
)

async_notifications: Final = Table(
    "async_notifications",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("message_id", String(64), nullable=False),
    Column("topic", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("made", Double, nullable=False),
    Column("due", Double, nullable=False),
    Column("tries", Integer, nullable=False),
    Index("async_notifications_due", "due"),
)


_requests, _bodies, _notifications = async_requests.c, async_bodies.c, async_notifications.c


class QueueId(NamedTuple):
    """The queue of one endpoint, from its creation to its deletion."""

    endpoint: str
    born: float  #: wall s


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncRequest:
    """A request as it was accepted."""

    endpoint: str
    inference_id: str
    accepted: float  #: wall s
    expires: float  #: wall s
    timeout_s: float
    input_uri: str  #: empty: the body came with the request
    body_bytes: int
    meta: bytes
    content_type: str
    output_uri: str
    failure_uri: str
    success_topic: str
    error_topic: str
    answer_in_success: bool
    answer_in_error: bool


class Entered(NamedTuple):
    """A request to be put on record."""

    request: AsyncRequest
    body: bytes


class Notification(NamedTuple):
    """A notification to be sent."""

    message_id: str
    topic: str
    message: str
    made: float


class Ended(NamedTuple):
    """A request that has its outcome."""

    number: int
    notification: Notification | None


class Due(NamedTuple):
    number: int
    notification: Notification
    tries: int


def enter(store: Store, entered: Sequence[Entered]) -> list[QueueId | None]:
    """Puts requests on record, in this order. The result is None for requests whose endpoint takes
    none."""
    queues: dict[str, QueueId | None] = {}
    taken: list[QueueId | None] = []
    with store.begin() as db:
        for one in entered:
            name = one.request.endpoint
            if name not in queues:
                queues[name] = _queue_of(rows.find(db, ENDPOINT, name))
            queue = queues[name]
            taken.append(queue)
            if queue is None:
                continue
            values = values_of(async_requests, one.request, **queue._asdict())
            added = db.execute(insert(async_requests).values(**values)).inserted_primary_key
            assert added is not None, "the table numbers its rows"
            if not one.request.input_uri:
                db.execute(insert(async_bodies).values(number=added[0], body=one.body))
    return taken


def _queue_of(row: RowMapping | None) -> QueueId | None:
    """The queue of an endpoint that takes requests: one that was in service at some time."""
    if row is None or row["active_generation"] is None or row["status"] in (DELETING, FAILED):
        return None
    return QueueId(row["name"], row["created"])


def queues(store: Store) -> dict[QueueId, int]:
    """Every queue that has requests, and how many."""
    with store.read() as db:
        found = db.execute(
            select(_requests.endpoint, _requests.born, func.count()).group_by(
                _requests.endpoint, _requests.born
            )
        )
        return {QueueId(endpoint, born): count for endpoint, born, count in found}


def after(store: Store, queue: QueueId, number: int, count: int) -> list[Accepted]:
    """The oldest requests of a queue with numbers above `number`."""
    with store.read() as db:
        found = db.execute(
            select(_requests.number, _requests.expires, _requests.timeout_s)
            .where(_requests.endpoint == queue.endpoint, _requests.born == queue.born)
            .where(_requests.number > number)
            .order_by(_requests.number)
            .limit(count)
        )
        return [Accepted(*row) for row in found]


def overdue(store: Store, queue: QueueId, now: float, count: int) -> list[Accepted]:
    """Requests of a queue that have expired, those that expired first in front."""
    with store.read() as db:
        found = db.execute(
            select(_requests.number, _requests.expires, _requests.timeout_s)
            .where(_requests.endpoint == queue.endpoint, _requests.born == queue.born)
            .where(_requests.expires <= now)
            .order_by(_requests.expires, _requests.number)
            .limit(count)
        )
        return [Accepted(*row) for row in found]


def oldest(store: Store, queue: QueueId) -> float | None:
    """When the oldest request of a queue was accepted; None: the queue is empty."""
    with store.read() as db:
        value: float | None = db.scalar(
            select(func.min(_requests.accepted)).where(
                _requests.endpoint == queue.endpoint, _requests.born == queue.born
            )
        )
        return value


def request(store: Store, number: int) -> AsyncRequest | None:
    """A request without its body; None: it is no longer on record."""
    with store.read() as db:
        found = db.execute(select(async_requests).where(_requests.number == number))
        row = found.mappings().first()
        if row is None:
            return None
        flags = {name: bool(row[name]) for name in ("answer_in_success", "answer_in_error")}
        return record_of(AsyncRequest, row, **flags)


def body(store: Store, number: int) -> bytes:
    """The body that came with a request."""
    with store.read() as db:
        return bytes(db.scalar(select(_bodies.body).where(_bodies.number == number)) or b"")


def end(store: Store, ended: Sequence[Ended]) -> None:
    """Deletes requests from the record and adds their notifications. Idempotent."""
    with store.begin() as db:
        for one in ended:
            gone = db.execute(delete(async_requests).where(_requests.number == one.number))
            db.execute(delete(async_bodies).where(_bodies.number == one.number))
            if gone.rowcount and one.notification is not None:
                message = one.notification._asdict()
                db.execute(
                    insert(async_notifications).values(**message, due=message["made"], tries=0)
                )


def exists(store: Store, queue: QueueId) -> bool:
    """Whether the endpoint of a queue still exists and is not being deleted."""
    with store.read() as db:
        row = rows.find(db, ENDPOINT, queue.endpoint)
        return row is not None and row["created"] == queue.born and row["status"] != DELETING


# Notifications


def due(store: Store, now: float, count: int) -> tuple[list[Due], float | None]:
    """Notifications to send now, those due for the longest time first; and when the next is due if
    none is."""
    with store.read() as db:
        found = db.execute(
            select(async_notifications)
            .where(_notifications.due <= now)
            .order_by(_notifications.due, _notifications.number)
            .limit(count)
        ).mappings()
        ready = [
            Due(
                row["number"],
                Notification(row["message_id"], row["topic"], row["message"], row["made"]),
                row["tries"],
            )
            for row in found
        ]
        return ready, db.scalar(select(func.min(_notifications.due)))


def sent(store: Store, number: int) -> None:
    """Deletes a notification that was delivered or given up."""
    with store.begin() as db:
        db.execute(delete(async_notifications).where(_notifications.number == number))


def put_off(store: Store, number: int, due_at: float, tries: int) -> None:
    """Postpones a notification that was not delivered."""
    with store.begin() as db:
        db.execute(
            update(async_notifications)
            .where(_notifications.number == number)
            .values(due=due_at, tries=tries)
        )
