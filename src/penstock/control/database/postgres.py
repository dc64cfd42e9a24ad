"""Connections to PostgreSQL that can be aborted: a database that hangs must not hang the server.

Another thread can't interrupt a call that waits for an answer, but it can shut down the socket: the
call then fails as after a network error. `abort` does that. Whether the database committed an
aborted COMMIT is unknown.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import Any, Final

from sqlalchemy import Engine, NullPool, QueuePool, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from penstock.distribution import install_command
from penstock.errors import CallerError

_CONNECT_TIMEOUT_S: Final = 5
#: TCP keepalive: an unreachable host is detected within some 11 s, also on an idle connection.
_KEEP_ALIVE: Final = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
_UNACKNOWLEDGED_MS_MAX: Final = 8000
#: The longest wait for a lock, so that we block nobody for long. Our transactions take
#: milliseconds.
_LOCK_TIMEOUT_MS: Final = 5000
_IDLE_IN_TRANSACTION_MS_MAX: Final = 10_000


class PostgresDatabase:
    """An SQLAlchemy engine, and the sockets of its open connections."""

    def __init__(
        self,
        url: str,
        *,
        session: str = "penstock",
        autocommit: bool = False,
        lock_timeout_ms: int = _LOCK_TIMEOUT_MS,
    ) -> None:
        """Opens no connection yet. `session`: the application name of its connections.

        Raises CallerError: `database-url-invalid`, `postgres-driver-missing`.
        """
        self._sockets: set[socket.socket] = set()
        self._changing = threading.Lock()
        parsed = _parsed(url)
        options = {
            "lock_timeout": lock_timeout_ms,
            "idle_in_transaction_session_timeout": _IDLE_IN_TRANSACTION_MS_MAX,
        }
        given = parsed.query.get("options", "")
        self.engine = _engine(
            parsed,
            autocommit=autocommit,
            connect_args={
                "connect_timeout": _CONNECT_TIMEOUT_S,
                "application_name": session,
                "tcp_user_timeout": _UNACKNOWLEDGED_MS_MAX,
                "options": " ".join(
                    (
                        *(f"-c {name}={value}" for name, value in options.items()),
                        *((given,) if isinstance(given, str) else given),
                    )
                ),
                **_KEEP_ALIVE,
            },
        )
        event.listen(self.engine, "connect", self._connected)
        event.listen(self.engine, "close", self._closed)

    def abort(self) -> None:
        """Aborts the call that runs on another thread. Any thread may call it."""
        with self._changing:
            for one in self._sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Idempotent."""
        self.engine.dispose()

    def _connected(self, connection: Any, record: Any) -> None:
        # A duplicate descriptor: the number of the connection's own may be reused for another file.
        own = socket.socket(fileno=os.dup(connection.fileno()))
        record.info["socket"] = own
        with self._changing:
            self._sockets.add(own)

    def _closed(self, _connection: Any, record: Any) -> None:
        own = record.info.pop("socket", None)
        if own is not None:
            with self._changing:
                self._sockets.discard(own)
            own.close()


def _engine(url: URL, *, autocommit: bool, connect_args: dict[str, Any]) -> Engine:
    try:
        if autocommit:
            return create_engine(
                url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=connect_args
            )
        return create_engine(
            url,
            poolclass=QueuePool,
            pool_size=1,
            max_overflow=1,
            pool_pre_ping=True,
            connect_args=connect_args,
        )
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise _url_invalid("the database URL can't be read") from error
    except ModuleNotFoundError as error:
        raise CallerError(
            "postgres-driver-missing",
            "PostgreSQL needs the psycopg package, which is not installed",
            hint=install_command("postgres"),
        ) from error


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise _url_invalid("the database URL can't be read") from error
    if backend != "postgresql":
        raise _url_invalid(f"a database of kind {parsed.drivername!r} is not supported")
    return parsed


def _url_invalid(message: str) -> CallerError:
    return CallerError(
        "database-url-invalid",
        message,
        hint="Use postgresql://user:password@host/database; without a URL it is SQLite.",
    )
