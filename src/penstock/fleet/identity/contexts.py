"""TLS between the server and its instances: 1.3 alone, and both ends show a certificate.

OpenSSL's bindings read keys from files only. Ours is given to them in an anonymous file in memory,
which nobody else can open and which is gone when it is closed.

What certificates call the server and its instances: the names that both ends check.

An instance's id may be longer than a label of DNS and holds what no DNS name may, so its
certificate has a digest of it where TLS looks, and the id itself where people do.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from penstock.fleet.identity.pem import Identity, server_identity_of

#: The gateways and the control plane of the deployment. Names below `.internal` are nobody's.
SERVER: Final = "server.penstock.internal"
_INSTANCES: Final = ".instance.penstock.internal"


def of_instance(instance_id: str) -> str:
    """The DNS name in the certificate of an instance."""
    return hashlib.sha256(instance_id.encode()).hexdigest()[:40] + _INSTANCES


def is_instance(name: str) -> bool:
    return name.endswith(_INSTANCES)


def in_certificate(certificate: Mapping[str, Any]) -> list[str]:
    """The DNS names of a peer's certificate, as `ssl` tells of one that it has verified."""
    return [str(name) for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]


def dialling(identity: Identity) -> ssl.SSLContext:
    """Of the end that connects; the name that the other end must have goes with each connection."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def of_server_in(state_dir: Path) -> Callable[[], ssl.SSLContext]:
    """For another process of a server: what its control plane wrote is read when it is needed."""
    return cache(lambda: dialling(server_identity_of(state_dir)))


def listening(identity: Identity) -> ssl.SSLContext:
    """Of the end that is connected to. Who came in, `comes_from_server` says."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = 0  # nobody resumes: connections last as long as their two ends
    return context


def comes_from_server(certificate: Mapping[str, Any] | None) -> bool:
    """Whether a verified certificate is the server's, and not that of an instance, say."""
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
