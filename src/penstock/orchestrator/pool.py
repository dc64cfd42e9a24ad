"""The address of a region, and the pool of connections to it (`wire/http_pool`)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.clock import Clock
from penstock.errors import CallerError
from penstock.wire.http_client import HttpClientSpec
from penstock.wire.http_pool import HttpPool

#: Limit for connecting, in s: a round trip around the earth takes 0.3, a TLS handshake two of them.
CONNECT_S_MAX: Final = 1.5
#: Idle connections are closed after this, in s: servers here close theirs after 75.
IDLE_S_MAX: Final = 45.0
IDLE_MAX: Final = 256

#: A region's state, and the reason why an attempt there failed.
REGION_UNREACHABLE: Final = "region-unreachable"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a region."""

    host: str
    port: int
    tls: bool
    #: certificate of the authority that signed its own; None: the system's authorities
    certificate: Path | None = None

    @property
    def authority(self) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}".encode()


def address_of(url: str, certificate: Path | None = None) -> Address:
    """Raises CallerError (`regions-invalid`) if the URL is no server's address."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/"):
        raise CallerError(
            "regions-invalid",
            f"{url!r} is not the address of a region",
            hint="Write it like https://eu.example:8080, without a path.",
        )
    tls = parts.scheme == "https"
    return Address(parts.hostname, port or (443 if tls else 80), tls, certificate)


def tls_to(address: Address) -> ssl.SSLContext | None:
    """The TLS context that checks the region's certificate. Raises CallerError (`tls-unusable`)."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.certificate)
    except (OSError, ssl.SSLError) as cause:
        raise CallerError(
            "tls-unusable",
            f"{address.certificate} can't be used: {cause}",
            hint="Give the PEM certificate of the region, or of the authority that signed it.",
        ) from cause
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def pool_to(address: Address, clock: Clock) -> HttpPool:
    """Raises CallerError (`tls-unusable`)."""
    spec = HttpClientSpec(
        host=address.host,
        port=address.port,
        tls=tls_to(address),
        connect_s_max=CONNECT_S_MAX,
        idle_max=IDLE_MAX,
        idle_s_max=IDLE_S_MAX,
    )
    return HttpPool(spec, clock)
