"""Which failures of a disk or a store pass by themselves, and which are for somebody to mend.

One table for all that reads or writes objects: inputs, outputs, artifacts, packages. What passes is
a `NotNowError`: the same call is made again, and nothing is lost for it meanwhile. All else is a
`CallerError`: a place that is not there, is none, or belongs to somebody else stays so.

A disk that is full is given room, one that fails is replaced or mounted again (Linux mounts a disk
that fails read-only), and a server or a network comes back: each after minutes or hours, and none
of it is the fault of the record that happened to be written. What a process or a machine has too
little of for a moment (descriptors, memory, buffers) passes as well.
"""

from __future__ import annotations

import errno
from typing import Final

from penstock.errors import CallerError, NotNowError, PenstockError

#: By name: not every system has each of them.
_PASSING_NAMES: Final = (
    *("ENOSPC", "EDQUOT"),
    *("EIO", "EROFS", "EREMOTEIO", "ENODEV", "ENOMEDIUM", "EBUSY", "EUCLEAN"),
    *("ESTALE", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "ENOTCONN", "EPIPE"),
    *("ESHUTDOWN", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET"),
    *("EAGAIN", "EINTR", "EMFILE", "ENFILE", "ENOMEM", "ENOBUFS", "ENOLCK"),
)
PASSING: Final = frozenset(
    number for name in _PASSING_NAMES if (number := getattr(errno, name, None)) is not None
)
#: Beside 5xx: what stores answer to come back later by.
_PASSING_STATUSES: Final = (408, 425, 429)

#: Errors of places: where one of them is a NotNowError, it is the disk or the store that waits.
STORAGE_CODES: Final = frozenset(
    {
        *("artifact-disk-full", "artifact-disk-failed", "artifact-unreadable"),
        *("artifact-unreachable", "artifact-timeout"),
        *("input-unreadable", "input-unreachable", "output-unwritable", "output-unreachable"),
    }
)


def errno_passes(number: int | None) -> bool:
    """Whether the same call may go well later. What has no number is for somebody to mend."""
    return number in PASSING


def status_passes(status: int) -> bool:
    """The same of a store's answer that is an error."""
    return status >= 500 or status in _PASSING_STATUSES


def storage_error(error: OSError, code: str, message: str, *, hint: str) -> PenstockError:
    """One of ours for the system's: a NotNowError where it passes, else a CallerError."""
    kind = NotNowError if errno_passes(error.errno) else CallerError
    return kind(code, message, hint=hint)


def is_storage(error: PenstockError) -> bool:
    """Whether a disk or a store is what has to come back."""
    return isinstance(error, NotNowError) and error.code in STORAGE_CODES
