"""What one end of a connection shows, and whom it trusts: three texts in PEM.

Imports no library that makes certificates: every instance reads this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.errors import CallerError

_BEGIN: Final = "-----BEGIN CERTIFICATE-----\n"
_END: Final = "-----END CERTIFICATE-----\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One end of a connection: its certificate, the key to it, and the authority that it trusts.
    PEM."""

    certificate: str
    key: str = field(repr=False)
    authority: str

    def to_dict(self) -> dict[str, str]:
        """For a pipe to a child process; the result contains the key."""
        return {"certificate": self.certificate, "key": self.key, "authority": self.authority}


def server_identity_of(state_dir: Path) -> Identity:
    """What the server's control plane wrote at its start, for another process of the same server.

    Raises CallerError `identity-unreadable`.
    """
    path = state_dir / "identity" / "server.pem"
    try:
        text = path.read_text()
    except OSError as error:
        raise unreadable(path, error.strerror or "unreadable") from error
    key, begin, rest = text.partition(_BEGIN)
    certificate, end, authority = rest.partition(_END)
    if not (begin and end and authority):
        raise unreadable(path, "it is not whole")
    return Identity(certificate=begin + certificate + end, key=key, authority=authority)


def unreadable(path: Path, cause: str) -> CallerError:
    return CallerError(
        "identity-unreadable",
        f"{path}: {cause}",
        hint="Remove it and restart: a new authority is made, and new certificates with it.",
    )
