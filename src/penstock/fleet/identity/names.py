"""What certificates call the server and its instances: the names that both ends check.

An instance's id may be longer than a label of DNS and holds what no DNS name may, so its
certificate has a digest of it where TLS looks, and the id itself where people do.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

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
