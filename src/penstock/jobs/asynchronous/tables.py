"""The queue of asynchronous requests, and the notifications that are to be sent.

A row of `async_requests` is a request that was accepted and has no outcome yet. It goes in the
transaction that puts its notification down, once its output is there: so whatever dies in between,
the request is done again and comes to the same object. Bodies lie apart: whoever looks at the queue
does not read them.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Column, Double, Index, Integer, LargeBinary, String, Table, Text

from penstock.control.database.schema import metadata

async_requests: Final = Table(
    "async_requests",
    metadata,
    #: never used twice: what was read up to a number has not to be read again
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("endpoint", String(128), nullable=False),
    #: when the endpoint was created: another of the same name does not take over its queue
    Column("born", Double, nullable=False),
    Column("inference_id", String(1024), nullable=False),
    Column("accepted", Double, nullable=False),
    Column("expires", Double, nullable=False),
    Column("timeout_s", Double, nullable=False),
    Column("input_uri", Text, nullable=False),  #: empty: the body lies in `async_bodies`
    Column("body_bytes", Integer, nullable=False),  #: of the body there
    Column("meta", LargeBinary, nullable=False),  #: wire form of frames.RequestMeta
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
