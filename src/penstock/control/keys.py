"""Access keys: who may call a server that asks for credentials.

Two kinds, stored as each scheme allows. SigV4 needs the secret itself to check a signature, so it
is encrypted (Fernet: AES-128-CBC and HMAC-SHA256) with a key that lies in a file of its own beside
the database: a stolen database alone is worth nothing. A bearer key is only compared, so a salted
HMAC-SHA256 is kept: its secret is 256 random bits, which nobody can guess however fast the hash is;
a slow hash (scrypt) protects passwords that people choose, and would cost a core per request here.

Secrets are shown once, when a key is made. Gateways ask a `KeyRing`, a snapshot in memory: checking
a request touches neither database nor disk.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet, InvalidToken

from penstock.control.records import KeyRecord
from penstock.control.store import Store
from penstock.errors import CallerError, NotNowError

SIGV4: Final = "sigv4"
BEARER: Final = "bearer"

_ID_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BEARER_PREFIX: Final = "psk"
_BEARER: Final = re.compile(r"psk_([A-Z2-7]{16})_([A-Za-z0-9_-]{43})")
_LABEL_CHARS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that has just been made: the only time its secret is seen.

    `sigv4`: `key_id` is the access key id, `secret` the secret access key. `bearer`: `secret` is
    the whole token for `Authorization: Bearer …`.
    """

    key_id: str
    kind: str
    label: str
    secret: str


class KeyRing:
    """All keys at one moment, ready to check requests."""

    def __init__(self, records: Sequence[KeyRecord] = (), fernet: Fernet | None = None) -> None:
        self._secrets: dict[str, str] = {}
        self._bearers = {one.key_id: one for one in records if one.kind == BEARER}
        self._accepted: dict[str, str] = {}  #: tokens that were checked before -> key id
        for one in records:
            if one.kind == SIGV4 and fernet is not None:
                self._secrets[one.key_id] = _decrypt(fernet, one)

    def secret(self, access_key_id: str) -> str | None:
        """The secret access key for checking a SigV4 signature; None for an unknown key."""
        return self._secrets.get(access_key_id)

    def bearer(self, token: str) -> str | None:
        """The key's id if the token is valid. Constant time in the secret part."""
        known = self._accepted.get(token)
        if known is not None:
            return known
        match = _BEARER.fullmatch(token)
        record = self._bearers.get(match[1]) if match else None
        if record is None or not hmac.compare_digest(_digest(record.salt, token), record.secret):
            return None
        self._accepted[token] = record.key_id
        return record.key_id

    def take(self, other: KeyRing) -> None:
        """Becomes what `other` is; tokens of keys that are gone are forgotten with them."""
        self._secrets, self._bearers, self._accepted = other._secrets, other._bearers, {}

    def __len__(self) -> int:
        return len(self._secrets) + len(self._bearers)


class AccessKeys:
    """Makes, lists and deletes keys. Synchronous, as the store; call it on the store's thread."""

    def __init__(self, store: Store, state_dir: Path) -> None:
        self._store = store
        self._key_path = state_dir / "keys.key"

    def create_access_key(self, label: str, *, now: float) -> NewKey:
        """A SigV4 key. Its id looks like AWS's, with a prefix that AWS does not use."""
        key_id = "PENS" + _random_id()
        secret = base64.b64encode(secrets.token_bytes(30)).decode()
        self._store.add_key(
            KeyRecord(
                key_id=key_id,
                kind=SIGV4,
                label=_checked_label(label),
                created=now,
                secret=self._fernet(create=True).encrypt(secret.encode()),
            )
        )
        return NewKey(key_id, SIGV4, label, secret)

    def create_bearer_key(self, label: str, *, now: float) -> NewKey:
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
                secret=_digest(salt, token),
                salt=salt,
            )
        )
        return NewKey(key_id, BEARER, label, token)

    def list(self) -> list[KeyRecord]:
        """Oldest first, without any secret."""
        return [
            KeyRecord(key_id=one.key_id, kind=one.kind, label=one.label, created=one.created)
            for one in self._store.list_keys()
        ]

    def delete(self, key_id: str) -> None:
        """Raises `CallerError` (`unknown-key`)."""
        if not self._store.delete_key(key_id):
            raise CallerError(
                "unknown-key", f"there is no key {key_id!r}", hint="See 'penstock keys list'."
            )

    def ring(self) -> KeyRing:
        """A snapshot for checking requests.

        Raises `CallerError` (`key-file-missing`, `key-file-wrong`) if secrets can't be decrypted.
        """
        records = self._store.list_keys()
        encrypted = any(one.kind == SIGV4 for one in records)
        return KeyRing(records, self._fernet(create=False) if encrypted else None)

    def _fernet(self, *, create: bool) -> Fernet:
        try:
            return Fernet(self._key_path.read_bytes().strip())
        except FileNotFoundError:
            if not create or any(one.kind == SIGV4 for one in self._store.list_keys()):
                raise CallerError(
                    "key-file-missing",
                    f"{self._key_path} is missing: the secrets of access keys can't be read",
                    hint="Restore the file, or delete all SigV4 keys and make new ones.",
                ) from None
        except ValueError:
            raise _wrong_file(self._key_path) from None
        except OSError as error:
            raise _unreadable(self._key_path, error) from error
        return Fernet(self._make_key_file())

    def _make_key_file(self) -> bytes:
        """Written whole, then named: a half-written key would lock everybody out."""
        key = Fernet.generate_key()
        draft = self._key_path.with_suffix(".new")
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(key + b"\n")
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._key_path)
        except OSError as error:
            raise _unreadable(self._key_path, error) from error
        return key


def _random_id() -> str:
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(16))


def _digest(salt: bytes, token: str) -> bytes:
    return hmac.new(salt, token.encode(), hashlib.sha256).digest()


def _decrypt(fernet: Fernet, record: KeyRecord) -> str:
    try:
        return fernet.decrypt(record.secret).decode()
    except InvalidToken:
        raise CallerError(
            "key-file-wrong",
            f"the secret of key {record.key_id} was not encrypted with this key file",
            hint="Restore the keys.key file that belongs to this database.",
        ) from None


def _checked_label(label: str) -> str:
    if len(label) > _LABEL_CHARS_MAX or not label.isprintable():
        raise CallerError(
            "invalid-label", f"a key's label has at most {_LABEL_CHARS_MAX} printable characters"
        )
    return label


def _wrong_file(path: Path) -> CallerError:
    return CallerError(
        "key-file-wrong", f"{path} is not a key file", hint="Restore it from a backup."
    )


def _unreadable(path: Path, error: OSError) -> NotNowError:
    return NotNowError(
        "state-not-writable",
        f"the key file {path} can't be read or written: {error.strerror}",
        hint="Free disk space, or correct the permissions of the state directory.",
    )
