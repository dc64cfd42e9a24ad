"""The file that the secrets of access keys are encrypted with, apart from the database.

There is one for ever. Several processes may want it made at once (`penstock keys create` twice, a
server): a lock lets one of them make it, and it appears whole or not at all, because a half-written
or a second one would lock everybody out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography.fernet import Fernet

from penstock.durable_files import replace_file
from penstock.errors import CallerError, NotNowError


class KeyFile:
    """`keys.key` of a state directory, or the one that servers on one database share."""

    def __init__(self, path: Path, has_secrets: Callable[[], bool]) -> None:
        """`has_secrets`: whether something is encrypted already, so that no new file will do."""
        self._path = path
        self._has_secrets = has_secrets

    def open(self, *, create: bool) -> Fernet:
        """What encrypts and decrypts.

        Raises:
            CallerError: `key-file-missing`, `key-file-wrong`.
            NotNowError: `state-not-writable`.
        """
        try:
            found = self._read()
            if found is None and create:
                with _locked(self._path.with_suffix(".lock")):
                    found = self._read()  # another process may have made it meanwhile
                    if found is None and not self._has_secrets():
                        found = self._make()
        except OSError as error:
            raise _unreadable(self._path, error) from error
        if found is None:
            raise CallerError(
                "key-file-missing",
                f"{self._path} is missing: the secrets of access keys can't be read",
                hint="Restore the file, or delete all SigV4 keys and make new ones.",
            )
        try:
            return Fernet(found)
        except ValueError:
            raise CallerError(
                "key-file-wrong",
                f"{self._path} is not a key file",
                hint="Restore it from a backup.",
            ) from None

    def _read(self) -> bytes | None:
        try:
            return self._path.read_bytes().strip()
        except FileNotFoundError:
            return None

    def _make(self) -> bytes:
        key = Fernet.generate_key()
        replace_file(self._path, (key + b"\n",))
        return key


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """The kernel frees it when its holder dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> NotNowError:
    return NotNowError(
        "state-not-writable",
        f"the key file {path} can't be read or written: {error.strerror}",
        hint="Free disk space, or correct the permissions of the state directory.",
    )
