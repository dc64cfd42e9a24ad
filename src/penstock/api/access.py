"""Who may come in: nobody is asked on loopback; elsewhere SigV4 or a bearer key is needed.

A request is checked as a whole, body included, before anything is done with it. Which service a
signature must be scoped to follows from the path and the target, as in dispatch: a signature made
for another service does not open this one.
"""

from __future__ import annotations

import hmac
import ipaddress
from typing import Protocol

from penstock.clock import Clock
from penstock.config import ListenConfig
from penstock.errors import CallerError
from penstock.wire.aws import bearer, sigv4
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest

#: Paths that tell nothing but whether the server lives: load balancers hold no keys.
OPEN_PATHS = frozenset({b"/ping", b"/v2/health/live", b"/v2/health/ready"})

_ENDPOINTS = b"/endpoints/"


class KeyRing(Protocol):
    """The keys as `control/keys.py` gives them."""

    def secret(self, access_key_id: str) -> str | None: ...

    def bearer(self, token: str) -> str | None: ...


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(listen: ListenConfig) -> None:
    """Refuses an address that strangers reach without credentials. Raises CallerError."""
    if is_loopback(listen.host) or listen.auth or listen.insecure:
        return
    raise CallerError(
        "credentials-required",
        f"{listen.host} can be reached from other machines, and no credentials are asked for",
        hint="Add --auth and make a key with 'penstock keys create', or, where the network itself"
        " keeps strangers out, --insecure.",
    )


class Authenticator:
    """Checks requests against a ring of keys, which may be replaced while it serves."""

    def __init__(self, ring: KeyRing, clock: Clock, *, own_key: str = "") -> None:
        """`own_key`: with it the platform's own instances ask its endpoints, and nothing else."""
        self.ring = ring
        self._clock = clock
        self._own_key = own_key.encode()

    def check(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        """Returns if the request may pass. Raises AwsError (403) if not."""
        if raw_path in OPEN_PATHS:
            return
        for name, value in headers:
            if name.lower() == b"authorization" and value[:7].lower() == b"bearer ":
                token = value[7:].strip()
                if not self._is_own(token, raw_path):
                    self.check_bearer(token.decode("latin-1"))
                return
        http = HttpRequest(
            method,
            raw_path.decode("latin-1"),
            query.decode("latin-1"),
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers],
            body,
        )
        signed = sigv4.parse_authorization(http.headers)
        secret = self._secret(signed.access_key)
        sigv4.verify(
            http,
            signed,
            secret,
            now_wall_s=self._clock.wall(),
            service_expected=scope_expected(http),
        )

    def _is_own(self, token: bytes, raw_path: bytes) -> bool:
        return (
            bool(self._own_key)
            and raw_path.startswith(_ENDPOINTS)
            and hmac.compare_digest(token, self._own_key)
        )

    def check_bearer(self, token: str) -> None:
        """Returns if the token is one of our bearer keys, or a presigned SageMaker token."""
        if token.startswith(bearer.PREFIX):
            parsed = bearer.parse_bearer(token)
            secret = self._secret(parsed.signed.access_key)
            bearer.verify_bearer(parsed, secret, now_wall_s=self._clock.wall())
        elif self.ring.bearer(token) is None:
            raise _unknown()

    def _secret(self, access_key: str) -> str:
        secret = self.ring.secret(access_key)
        if secret is None:
            raise _unknown()
        return secret


def scope_expected(http: HttpRequest) -> str:
    """The service that a signature of this request must be made for."""
    target = http.headers.get("x-amz-target", "")
    form = http.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    if target.startswith("GraniteServiceVersion") or (form and http.path == "/"):
        return "monitoring"
    return "logs" if target.startswith("Logs_") else "sagemaker"


def _unknown() -> AwsError:
    return AwsError(
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
        status=403,
    )
