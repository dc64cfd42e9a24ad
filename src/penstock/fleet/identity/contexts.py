"""TLS between the server and its instances: 1.3 alone, and both ends show a certificate.

OpenSSL's bindings read keys from files only. Ours is given to them in an anonymous file in memory,
which nobody else can open and which is gone when it is closed.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from penstock.fleet.identity import names
from penstock.fleet.identity.pem import Identity, server_identity_of


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
    return certificate is not None and names.SERVER in names.in_certificate(certificate)


def comes_from_instance(certificate: Mapping[str, Any] | None) -> bool:
    return certificate is not None and any(
        names.is_instance(name) for name in names.in_certificate(certificate)
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
