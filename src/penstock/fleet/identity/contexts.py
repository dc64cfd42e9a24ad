"""TLS between the server and its instances: what one end shows, whom it trusts, and the names in
certificates. No library that makes certificates is imported here: every instance reads this file.

Both ends use TLS 1.3 alone and show a certificate; both check the other's name. OpenSSL's bindings
read keys from files only, so they get ours in an anonymous file in memory, which nobody else can
open and which disappears when it is closed.

An instance's id may be longer than a DNS label and may hold characters that DNS forbids. So its
certificate has a digest of the id as its DNS name, and the id itself where people look.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

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


#: The name of the gateways and the control plane of the deployment. No public name ends in
#: `.internal`.
SERVER: Final = "server.penstock.internal"
_INSTANCES: Final = ".instance.penstock.internal"


def of_instance(instance_id: str) -> str:
    """The DNS name in the certificate of an instance."""
    return hashlib.sha256(instance_id.encode()).hexdigest()[:40] + _INSTANCES


def is_instance(name: str) -> bool:
    return name.endswith(_INSTANCES)


def in_certificate(certificate: Mapping[str, Any]) -> list[str]:
    """The DNS names of a peer's certificate, in the form in which `ssl` gives a verified one."""
    return [str(name) for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]


def dialling(identity: Identity) -> ssl.SSLContext:
    """TLS settings for the end that connects. The name that the other end must have is given with
    each connection."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def of_server_in(state_dir: Path) -> Callable[[], ssl.SSLContext]:
    """TLS settings for another process of a server: it reads the control plane's file when they are
    first needed."""
    return cache(lambda: dialling(server_identity_of(state_dir)))


def listening(identity: Identity) -> ssl.SSLContext:
    """TLS settings for the end that accepts connections; `comes_from_server` says who connected."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.verify_mode = ssl.CERT_REQUIRED
    # No session tickets: connections last as long as their two ends, so nobody resumes
    context.num_tickets = 0
    return context


def comes_from_server(certificate: Mapping[str, Any] | None) -> bool:
    """Whether a verified certificate is the server's, and not, for example, another instance's."""
    return certificate is not None and SERVER in in_certificate(certificate)


def comes_from_instance(certificate: Mapping[str, Any] | None) -> bool:
    return certificate is not None and any(
        is_instance(name) for name in in_certificate(certificate)
    )


def _context(protocol: int, identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=identity.authority)
    descriptor = os.memfd_create("identity", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write((identity.key + identity.certificate).encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    return context
