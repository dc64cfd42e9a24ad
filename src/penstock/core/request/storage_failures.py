"""Which failures of a disk or a store pass by themselves, and which need somebody to fix them.

One table for all that reads or writes objects: inputs, outputs, artifacts, packages. A temporary
failure is a `NotNowError`: the same call is made again, and nothing is lost meanwhile. Any other is
a `CallerError`: a place that does not exist, or belongs to somebody else, does not change by
itself.

Somebody makes room on a full disk, replaces or remounts a failing one (Linux mounts a disk that
fails read-only), and a server or a network comes back: each after minutes or hours, and none of
it is the fault of the record that was being written. A momentary lack of descriptors, memory or
buffers in a process or machine passes as well.
"""

from __future__ import annotations

import errno
from typing import Final

from penstock.errors import CallerError, NotNowError, PenstockError

#: Names of errno, as not every system has each of them.
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
#: Beside 5xx: statuses by which stores ask to come back later.
_PASSING_STATUSES: Final = (408, 425, 429)

#: Codes of errors of places: if such an error is a NotNowError, a disk or a store must come back.
STORAGE_CODES: Final = frozenset(
    {
        *("artifact-disk-full", "artifact-disk-failed", "artifact-unreadable"),
        *("artifact-unreachable", "artifact-timeout"),
        *("input-unreadable", "input-unreachable", "output-unwritable", "output-unreachable"),
    }
)


def errno_passes(number: int | None) -> bool:
    """Whether the same call may succeed later. An error without a number does not pass."""
    return number in PASSING


def status_passes(status: int) -> bool:
    """Whether the same call may succeed later, by the status of a store's error."""
    return status >= 500 or status in _PASSING_STATUSES


def storage_error(error: OSError, code: str, message: str, *, hint: str) -> PenstockError:
    """Our error for the system's: a NotNowError where it passes by itself, else a CallerError."""
    kind = NotNowError if errno_passes(error.errno) else CallerError
    return kind(code, message, hint=hint)


def is_storage(error: PenstockError) -> bool:
    """Whether the error means that a disk or a store must come back."""
    return isinstance(error, NotNowError) and error.code in STORAGE_CODES
