"""Access keys: who may call a server that asks for credentials.

Two kinds, stored as each scheme allows. SigV4 needs the secret itself to check a signature, so it
is encrypted (Fernet: AES-128-CBC and HMAC-SHA256) with a key that lies in a file of its own beside
the database: a stolen database alone is worth nothing. A bearer key is only compared, so a salted
HMAC-SHA256 is kept: its secret is 256 random bits, which nobody can guess however fast the hash is;
a slow hash (scrypt) protects passwords that people choose, and would cost a core per request here.

Secrets are shown once, when a key is made. Gateways ask a `KeyRing` (`key_ring.py`), a snapshot in
memory: checking a request touches neither database nor disk. The database alone says which keys
there are: while the key file is away or wrong, new SigV4 keys can't come in, and deleted ones can't
either.
"""

from __future__ import annotations

import base64
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from penstock.control.access.key_file import KeyFile
from penstock.control.access.key_ring import BEARER, SIGV4, KeyRing, digest
from penstock.control.store.records import KeyRecord
from penstock.control.store.store import Store
from penstock.core.request.grants import Grant
from penstock.errors import CallerError, PenstockError

_ID_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_BEARER_PREFIX: Final = "psk"
_LABEL_CHARS_MAX: Final = 128
EVERYTHING: Final = Grant()


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
    grant: Grant


class AccessKeys:
    """Makes, lists and deletes keys. Synchronous, as the store; call it on the store's thread."""

    def __init__(self, store: Store, state_dir: Path, key_file: Path | None = None) -> None:
        """`key_file`: what the secrets are encrypted with; None: that of the state directory."""
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

        Where secrets can't be decrypted the ring is without them and tells its `fault`
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


def _random_id() -> str:
    return "".join(secrets.choice(_ID_ALPHABET) for _ in range(16))


def _checked_label(label: str) -> str:
    if len(label) > _LABEL_CHARS_MAX or not label.isprintable():
        raise CallerError(
            "invalid-label", f"a key's label has at most {_LABEL_CHARS_MAX} printable characters"
        )
    return label
