"""What goes wrong in a database, in words that a person can act on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sqlalchemy.exc import DBAPIError, OperationalError

from penstock.errors import CallerError, InternalError, NotNowError, PenstockError

#: Words of SQLite's and PostgreSQL's messages when nothing can be written.
_NOT_WRITABLE: Final = (
    "disk is full",
    "disk i/o error",
    "readonly database",
    "unable to open database file",
    "no space left",
    "disk quota exceeded",
    "input/output error",
    "read-only file system",
    "stale file handle",
    "could not extend file",
    "read-only transaction",
    "during recovery",  # a replica that was not promoted
)
_DAMAGED: Final = ("malformed", "not a database")
#: PostgreSQL's messages when another transaction, or the server itself, is in the way for a while.
_BUSY: Final = ("locked", "lock timeout", "statement timeout", "deadlock detected")
#: Its codes for an end that was not ours: shut down, evicted, starting, too many connections.
_GONE: Final = ("57P01", "57P02", "57P03", "57P05", "25P03", "53300")

#: Codes of errors that are the database's, not those of whoever asks it for something.
FAULTS: Final = frozenset(
    {"database-unreachable", "database-error", "state-busy", "state-damaged", "state-not-writable"}
)


@contextlib.contextmanager
def worded(state_dir: Path | None) -> Iterator[None]:
    """Turns the database's exceptions into errors of ours.

    `state_dir`: of a SQLite database; None for one that is reached over a network.
    """
    try:
        yield
    except PenstockError:
        raise
    except DBAPIError as error:
        raise error_of(error, state_dir) from error


def error_of(error: DBAPIError, state_dir: Path | None) -> PenstockError:
    text = str(error.orig)
    lower = text.lower()
    if any(words in lower for words in _NOT_WRITABLE):
        return not_writable(state_dir, text)
    if any(words in lower for words in _DAMAGED):
        return CallerError(
            "state-damaged",
            f"the database in {state_dir} is damaged: {text}",
            hint="Restore it from a backup, or move it away to begin anew.",
        )
    if any(words in lower for words in _BUSY):
        return NotNowError(
            "state-busy",
            "the database is in use by another process",
            hint="Try again; end other programs that keep it open.",
            retry_after_s=1.0,
        )
    gone = getattr(error.orig, "sqlstate", None) in _GONE
    if state_dir is None and (isinstance(error, OperationalError) or gone):
        return unreachable((text.strip().splitlines() or ["the connection has ended"])[0])
    return InternalError("database-error", text)


def unreachable(why: str) -> NotNowError:
    return NotNowError(
        "database-unreachable",
        f"the database can't be reached: {why}",
        hint="Check that PostgreSQL runs and that the URL is right.",
        retry_after_s=1.0,
    )


def not_writable(state_dir: Path | None, why: str) -> NotNowError:
    where = f"state directory {state_dir}" if state_dir is not None else "database"
    return NotNowError(
        "state-not-writable",
        f"the {where} can't be written: {why}",
        hint="Free disk space, or correct the permissions.",
        retry_after_s=5.0,
    )
