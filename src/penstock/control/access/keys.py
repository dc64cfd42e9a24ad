"""Access keys: who may call a server that asks for credentials.

Two kinds, stored as each scheme allows. SigV4 needs the secret itself to check a signature, so it
is encrypted (Fernet: AES-128-CBC and HMAC-SHA256) with a key that lies in a file of its own beside
the database: a stolen database alone is worth nothing. A bearer key is only compared, so a salted
HMAC-SHA256 is kept: its secret is 256 random bits, which nobody can guess however fast the hash is;
a slow hash (scrypt) protects passwords that people choose, and would cost a core per request here.

Secrets are shown once, when a key is made. Gateways check requests with a `KeyRing`
(`key_ring.py`), a snapshot in memory. The database alone says which keys exist. While the key file
is missing or wrong, no SigV4 key can be added, and deleted keys still stop working.

The key file is made once and never replaced. Several processes may try to make it at the same time
(`penstock keys create` twice, or a server). A lock lets one of them make it, and the file appears
whole or not at all: a half-written or a second key file would lock everybody out.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet

from penstock.control.access.key_ring import BEARER, SIGV4, KeyRing, digest
from penstock.control.loop import DriverLoop
from penstock.control.store.records import KeyRecord
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.request.grants import Grant
from penstock.durable_files import replace_file
from penstock.errors import CallerError, NotNowError, PenstockError
from penstock.metrics import item_failures

_log = logging.getLogger(__name__)

#: Time within which keys made or deleted by another process take effect, in s.
_REFRESH_S: Final = 2.0


class KeyFile:
    """The file `keys.key` of a state directory, or the one that servers on one database share."""

    def __init__(self, path: Path, has_secrets: Callable[[], bool]) -> None:
        """`has_secrets`: whether secrets are stored already; then a new key file must not be
        made."""
        self._path = path
        self._has_secrets = has_secrets

    def open(self, *, create: bool) -> Fernet:
        """The cipher that encrypts and decrypts secrets.

        Raises:
            CallerError: `key-file-missing`, `key-file-wrong`.
            NotNowError: `state-not-writable`.
        """
        try:
            found = self._read()
            if found is None and create:
                with _locked(self._path.with_suffix(".lock")):
                    found = self._read()  # another process may have made the file meanwhile
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
    """Holds a file lock. The kernel releases it when the process ends."""
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


_ID_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BEARER_PREFIX: Final = "psk"
_LABEL_CHARS_MAX: Final = 128
EVERYTHING: Final = Grant()


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made. Its secret is shown this once.

    `sigv4`: `key_id` is the access key id, `secret` the secret access key. `bearer`: `secret` is
    the whole token for `Authorization: Bearer …`.
    """

    key_id: str
    kind: str
    label: str
    secret: str
    grant: Grant


class AccessKeys:
    """Makes, lists and deletes keys. Synchronous, like the store; call it on the store's thread."""

    def __init__(self, store: Store, state_dir: Path, key_file: Path | None = None) -> None:
        """`key_file`: the file whose key encrypts secrets; None: the state directory's
        `keys.key`."""
        self._store = store
        self._file = KeyFile(key_file or state_dir / "keys.key", self._has_secrets)

    def create_access_key(self, label: str, *, now: float, grant: Grant = EVERYTHING) -> NewKey:
        """A SigV4 key. Its id looks like AWS's, with a prefix that AWS does not use."""
        key_id = "PENS" + _random_id()
        secret = base64.b64encode(secrets.token_bytes(30)).decode()
        self._store.add_key(
            KeyRecord(
                key_id=key_id,
                kind=SIGV4,
                label=_checked_label(label),
                created=now,
                secret=self._file.open(create=True).encrypt(secret.encode()),
                grant=grant,
            )
        )
        return NewKey(key_id, SIGV4, label, secret, grant)

    def create_bearer_key(self, label: str, *, now: float, grant: Grant = EVERYTHING) -> NewKey:
        """A bearer key."""
        key_id = _random_id()
        token = f"{_BEARER_PREFIX}_{key_id}_{secrets.token_urlsafe(32)}"
        salt = secrets.token_bytes(16)
        self._store.add_key(
            KeyRecord(
                key_id=key_id,
                kind=BEARER,
                label=_checked_label(label),
                created=now,
                secret=digest(salt, token),
                salt=salt,
                grant=grant,
            )
        )
        return NewKey(key_id, BEARER, label, token, grant)

    def list(self) -> list[KeyRecord]:
        """Oldest first, without any secret."""
        return [replace(one, secret=b"", salt=b"") for one in self._store.list_keys()]

    def delete(self, key_id: str) -> None:
        """Raises `CallerError` (`unknown-key`)."""
        if not self._store.delete_key(key_id):
            raise CallerError(
                "unknown-key", f"there is no key {key_id!r}", hint="See 'penstock keys list'."
            )

    def ring(self) -> KeyRing:
        """A snapshot for checking requests.

        If secrets can't be decrypted, the ring is made without them and `fault` says why
        (`key-file-missing`, `key-file-wrong`, `state-not-writable`). Raises what the store raises.
        """
        records = self._store.list_keys()
        if not any(one.kind == SIGV4 for one in records):
            return KeyRing(records)
        try:
            return KeyRing(records, self._file.open(create=False))
        except PenstockError as error:
            return KeyRing(records, None, error)

    def _has_secrets(self) -> bool:
        return any(one.kind == SIGV4 for one in self._store.list_keys())


class FollowedKeys:
    """A key ring that is read again every two seconds, so that keys which another process makes or
    deletes (`penstock keys`) take effect. `open`, then `close`."""

    def __init__(
        self, database: StoreThread, state_dir: Path, key_file: Path | None = None
    ) -> None:
        """`state_dir`, `key_file`: as for `AccessKeys`."""
        self.ring = KeyRing()  #: always the same object; its content is refreshed
        self._database = database
        self._read: Callable[[Store], KeyRing] = lambda store: AccessKeys(
            store, state_dir, key_file
        ).ring()
        self._told = ""  #: code of the last logged fault, which is logged once
        self._loop = DriverLoop("keys", self._turn, fault="keys", retry_s=_REFRESH_S)

    async def open(self, *, whole: bool = True) -> KeyRing:
        """`whole`: raises the ring's `fault`. Raises what the database raises."""
        self.ring.take(await self._database.call(self._read))
        if whole and self.ring.fault is not None:
            raise self.ring.fault
        self._loop.start()
        return self.ring

    async def close(self) -> None:
        """Idempotent."""
        await self._loop.close()

    async def _turn(self) -> float:
        fault: PenstockError | None = None
        try:
            self.ring.take(await self._database.call(self._read))
            fault = self.ring.fault
        except PenstockError as error:
            fault = error
        except Exception as error:
            item_failures.note("keys", "reading them again", error)
        if fault is not None and fault.code != self._told:
            _log.warning("keys could not be read: %s: %s", fault.code, fault.message)
        self._told = fault.code if fault is not None else ""
        return _REFRESH_S


def _random_id() -> str:
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(16))


def _checked_label(label: str) -> str:
    if len(label) > _LABEL_CHARS_MAX or not label.isprintable():
        raise CallerError(
            "invalid-label", f"a key's label has at most {_LABEL_CHARS_MAX} printable characters"
        )
    return label
