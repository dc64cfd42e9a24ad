"""Authentication: loopback needs no credentials; elsewhere SigV4 or a bearer key is required.

A request is checked twice. `check_head` refuses a request by its head alone, before its body is
read: a missing or unknown key, an old date, an operation that the key does not allow. `check` then
verifies the whole request before anything is done with it.

Path and target decide which service a signature must be scoped to, as in dispatch: a
signature made for another service is refused here. `core/request/grants.py` decides what a key
may do.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final, Protocol

from penstock.api.asked import AccessRequest, asked_of, endpoint_in
from penstock.clock import Clock
from penstock.config import ListenConfig
from penstock.core.request.grants import INVOKE, INVOKE_ENDPOINT, Grant, allowed, needed
from penstock.core.request.host_gate import is_loopback
from penstock.errors import CallerError
from penstock.wire.aws import bearer, sigv4
from penstock.wire.aws.errors import ACCESS_DENIED, AwsError
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.sigv4 import SignedWith

#: Paths that only show whether the server lives: load balancers have no keys. They send no
#: body either, and an unauthenticated caller's body is not read, here as elsewhere.
OPEN_PATHS = frozenset({b"/ping", b"/v2/health/live", b"/v2/health/ready"})
#: Longer than any key of ours or of AWS's, and than any token made with one.
_TOKEN_BYTES_MAX: Final = 16_384

_ENDPOINTS = b"/endpoints/"
#: The platform's own instances may call models, and nothing else.
_OWN: Final = Grant(INVOKE)


class KeySource(Protocol):
    """The keys, as `control/access/keys.py` provides them."""

    def secret(self, access_key_id: str) -> str | None: ...

    def bearer(self, token: str) -> str | None: ...

    def grant(self, key_id: str) -> Grant | None: ...


def check_binding(listen: ListenConfig) -> None:
    """Refuses a public address without credentials. Raises CallerError."""
    if is_loopback(listen.host.strip("[]")) or listen.auth or listen.insecure:
        return
    raise CallerError(
        "credentials-required",
        f"{listen.host} can be reached from other machines, and no credentials are asked for",
        hint="Add --auth and make a key with 'penstock keys create', or, where the network itself"
        " keeps strangers out, --insecure.",
    )


class KeyAuthenticator:
    """Checks requests against a ring of keys, which may be replaced while it serves."""

    def __init__(self, ring: KeySource, clock: Clock, *, own_key: str = "") -> None:
        """`own_key`: the key with which the platform's own instances call its endpoints."""
        self.ring = ring
        self._clock = clock
        self._own_key = own_key.encode()

    def check_head(
        self, method: str, raw_path: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Returns if the request may pass, provided that its body matches the head's claims.

        Raises AwsError (403) where no body could make it valid. Costs no more than the head's
        bytes.
        """
        if raw_path in OPEN_PATHS and not _announces_body(headers):
            return
        asked = asked_of(method, raw_path, headers)
        token = _bearer_of(headers)
        if token is not None:
            permit(self._token_grant(token, raw_path), asked)
            return
        http = HttpRequest.received(method, raw_path, query, headers)
        signed = sigv4.parse_authorization(http.headers)
        self._secret(signed.access_key)
        sigv4.check_claims(
            http,
            signed,
            now_wall_s=self._clock.wall(),
            service_expected=scope_expected(http),
        )
        permit(self._grant(signed.access_key), asked)

    def check(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        """Returns if the request may pass. Raises AwsError (403) if not."""
        if raw_path in OPEN_PATHS and not body:
            return
        asked = asked_of(method, raw_path, headers)
        token = _bearer_of(headers)
        if token is not None:
            grant = self._token_grant(token, raw_path)
        else:
            http = HttpRequest.received(method, raw_path, query, headers, body)
            signed = sigv4.parse_authorization(http.headers)
            grant = self._proved(http, signed)
        if grant.endpoints and asked.in_body:
            asked = AccessRequest(asked.operation, endpoint_in(asked.in_body, headers, body), "")
        permit(grant, asked)

    def bearer_grant(self, token: str) -> Grant:
        """The grant of one of our bearer keys, or of a presigned SageMaker token.

        A presigned token may only call models, whatever else its maker may do. Raises
        AwsError (403) for a token that is neither.
        """
        if token.startswith(bearer.PREFIX):
            parsed = bearer.parse_bearer(token)
            key_id = parsed.signed.access_key
            bearer.verify_bearer(parsed, self._secret(key_id), now_wall_s=self._clock.wall())
            return self._grant(key_id).only(INVOKE)
        known = self.ring.bearer(token) if len(token) <= _TOKEN_BYTES_MAX else None
        if known is None:
            raise _unknown()
        return self._grant(known)

    def _token_grant(self, token: bytes, raw_path: bytes) -> Grant:
        own = bool(self._own_key) and raw_path.startswith(_ENDPOINTS)
        if own and hmac.compare_digest(token, self._own_key):
            return _OWN
        return self.bearer_grant(token.decode("latin-1"))

    def _proved(self, http: HttpRequest, signed: SignedWith) -> Grant:
        sigv4.verify(
            http,
            signed,
            self._secret(signed.access_key),
            now_wall_s=self._clock.wall(),
            service_expected=scope_expected(http),
        )
        return self._grant(signed.access_key)

    def _secret(self, access_key: str) -> str:
        secret = self.ring.secret(access_key)
        if secret is None:
            raise _unknown()
        return secret

    def _grant(self, key_id: str) -> Grant:
        grant = self.ring.grant(key_id)
        if grant is None:  # deleted since the first look
            raise _unknown()
        return grant


def permit(grant: Grant, asked: AccessRequest) -> None:
    """Returns if the key may do it. Raises AwsError (`AccessDeniedException`, 403).

    Where only the body names the endpoint and has not been read yet, that part stays unchecked.
    """
    endpoint = min(grant.endpoints, default=None) if asked.in_body else asked.endpoint
    if allowed(grant, asked.operation, endpoint):
        return
    wanted = needed(asked.operation)
    if not allowed(Grant(grant.scope), asked.operation):
        raise _denied(
            f"This key has the scope {grant.scope} and may not call {asked.operation}, which needs "
            f"the scope {wanted}. Make one with 'penstock keys create --scope {wanted}'."
        )
    names = ", ".join(sorted(grant.endpoints))
    if asked.operation == INVOKE_ENDPOINT and asked.endpoint is None:
        raise _denied(
            f"This key is for {names} only, and the body does not say, or is too large to say, for "
            "which endpoint it is. Ask /endpoints/NAME/openai/v1/... instead."
        )
    about = f"endpoint {asked.endpoint[:63]!r}" if asked.endpoint else f"all of {asked.operation}"
    raise _denied(f"This key is for {names} only, and not for {about}.")


def _announces_body(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(
        lower == b"transfer-encoding" or (lower == b"content-length" and value.strip(b" \t0"))
        for lower, value in ((name.lower(), value) for name, value in headers)
    )


def key_of(http: HttpRequest, ring: KeySource) -> str:
    """Id of the key that a checked request carries; empty where it carries none."""
    scheme, _, token = http.headers.get("authorization", "").partition(" ")
    try:
        if scheme.lower() != "bearer":
            return sigv4.parse_authorization(http.headers).access_key
        token = token.strip()
        if token.startswith(bearer.PREFIX):
            return bearer.parse_bearer(token).signed.access_key
    except AwsError:
        return ""
    return (ring.bearer(token) or "") if len(token) <= _TOKEN_BYTES_MAX else ""


def _bearer_of(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    for name, value in headers:
        if name.lower() == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
    return None


def scope_expected(http: HttpRequest) -> str:
    """The service that a signature of this request must be made for."""
    target = http.headers.get("x-amz-target", "")
    form = http.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    if target.startswith("GraniteServiceVersion") or (form and http.path == "/"):
        return "monitoring"
    if target.startswith("AnyScaleFrontendService"):
        return "application-autoscaling"
    return "logs" if target.startswith("Logs_") else "sagemaker"


def _unknown() -> AwsError:
    return AwsError(
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
        status=403,
    )


def _denied(message: str) -> AwsError:
    return AwsError(ACCESS_DENIED, message, status=403)
