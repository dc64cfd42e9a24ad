"""All access keys at one moment, in memory, so that a request is checked without database or
disk.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cryptography.fernet import Fernet, InvalidToken

from penstock.control.store.records import KeyRecord
from penstock.core.request.grants import Grant
from penstock.errors import CallerError, PenstockError
from penstock.metrics.item_failures import UNREADABLE

SIGV4: Final = "sigv4"
BEARER: Final = "bearer"
_BEARER: Final = re.compile(r"psk_([A-Z2-7]{16})_([A-Za-z0-9_-]{43})")


class Bearer(NamedTuple):
    """A bearer key as it is stored: the salted digest of its token, and the salt."""

    key_id: str
    secret: bytes
    salt: bytes


class KeyRing:
    """All keys at one moment, ready to check requests.

    Attributes:
        fault: why the secrets of some SigV4 keys can't be read: these keys open nothing.
    """

    def __init__(
        self,
        records: Sequence[KeyRecord] = (),
        fernet: Fernet | None = None,
        fault: PenstockError | None = None,
    ) -> None:
        self.fault = fault
        self._grants = {one.key_id: one.grant for one in records}
        self._secrets: dict[str, str] = {}
        self._sealed = {one.key_id: one.secret for one in records if one.kind == SIGV4}
        self._bearers = {
            one.key_id: Bearer(one.key_id, one.secret, one.salt)
            for one in records
            if one.kind == BEARER
        }
        self._accepted: dict[str, str] = {}  #: token that was accepted before -> key id
        for one in records:
            if one.kind == SIGV4 and fernet is not None:
                try:
                    self._secrets[one.key_id] = _decrypt(fernet, one)
                except CallerError as error:
                    self.fault = error

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
        if record is None or not hmac.compare_digest(digest(record.salt, token), record.secret):
            return None
        self._accepted[token] = record.key_id
        return record.key_id

    def grant(self, key_id: str) -> Grant | None:
        """What a key may do; None for an unknown one."""
        return self._grants.get(key_id)

    def take(self, other: KeyRing) -> None:
        """Takes over the content of `other`. Accepted tokens of deleted keys are forgotten.

        A secret that `other` could not decrypt stays known if its stored form has not changed.
        """
        kept = {
            key_id: secret
            for key_id, secret in self._secrets.items()
            if other._sealed.get(key_id) == self._sealed.get(key_id)
        }
        self._secrets = kept | other._secrets if other.fault is not None else other._secrets
        self._sealed, self._bearers, self._accepted = other._sealed, other._bearers, {}
        self._grants, self.fault = other._grants, other.fault

    def to_json(self) -> dict[str, Any]:
        """For a gateway process of this server. It includes secrets: send it only over a
        channel."""
        return {
            "secrets": self._secrets,
            "bearers": [
                [key_id, one.secret.hex(), one.salt.hex()] for key_id, one in self._bearers.items()
            ],
            "grants": {
                key_id: [grant.scope, sorted(grant.endpoints)]
                for key_id, grant in self._grants.items()
            },
        }

    def take_json(self, fields: dict[str, Any]) -> None:
        """Takes over the keys that another process's ring wrote with `to_json`."""
        self._secrets = dict(fields["secrets"])
        self._bearers = {
            key_id: Bearer(key_id, bytes.fromhex(secret), bytes.fromhex(salt))
            for key_id, secret, salt in fields["bearers"]
        }
        self._grants = {
            key_id: Grant(scope, frozenset(endpoints))
            for key_id, (scope, endpoints) in fields["grants"].items()
        }
        self._sealed, self._accepted, self.fault = {}, {}, None

    def __len__(self) -> int:
        return len(self._secrets) + len(self._bearers)


def digest(salt: bytes, token: str) -> bytes:
    return hmac.new(salt, token.encode(), hashlib.sha256).digest()


def _decrypt(fernet: Fernet, record: KeyRecord) -> str:
    try:
        return fernet.decrypt(record.secret).decode()
    except (InvalidToken, *UNREADABLE):
        raise CallerError(
            "key-file-wrong",
            f"the secret of key {record.key_id} was not encrypted with this key file",
            hint="Restore the keys.key file that belongs to this database.",
        ) from None
