"""Which failures of disks and stores pass by themselves."""

from __future__ import annotations

import errno

import pytest

from penstock.core.request.storage_failures import (
    errno_passes,
    is_storage,
    status_passes,
    storage_error,
)
from penstock.errors import CallerError, NotNowError

#: A full disk, a broken one, one mounted read-only, a lost network file system, want of a moment.
PASSING = ("ENOSPC", "EDQUOT", "EIO", "EROFS", "ESTALE", "ETIMEDOUT", "EMFILE", "ENOTCONN")
FOR_GOOD = ("EACCES", "EPERM", "ENOENT", "ENOTDIR", "EISDIR", "ELOOP", "ENAMETOOLONG", "EFBIG")


@pytest.mark.parametrize("name", PASSING)
def test_what_a_disk_is_given_back_passes(name: str) -> None:
    error = storage_error(OSError(getattr(errno, name), "no"), "c", "what", hint="do")
    assert isinstance(error, NotNowError)
    assert (error.code, error.message, error.hint) == ("c", "what", "do")


@pytest.mark.parametrize("name", FOR_GOOD)
def test_a_place_that_is_wrong_stays_wrong(name: str) -> None:
    error = storage_error(OSError(getattr(errno, name), "no"), "c", "what", hint="do")
    assert isinstance(error, CallerError)


def test_what_has_no_number_does_not_pass() -> None:
    assert not errno_passes(OSError("only words").errno)


@pytest.mark.parametrize(
    ("status", "passes"),
    [(500, True), (503, True), (599, True), (408, True), (425, True), (429, True),
     (400, False), (403, False), (404, False), (409, False), (499, False)],
)  # fmt: skip
def test_a_store_passes_where_it_says_so_or_fails_itself(status: int, passes: bool) -> None:
    assert status_passes(status) is passes


def test_storage_waits_only_where_it_may_come_back() -> None:
    assert is_storage(NotNowError("artifact-disk-full", "no room"))
    assert not is_storage(CallerError("artifact-disk-failed", "no permission"))
    assert not is_storage(NotNowError("queue-full", "another matter"))
