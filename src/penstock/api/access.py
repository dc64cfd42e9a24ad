"""Authentication: loopback needs no credentials; elsewhere SigV4 or a bearer key is required.

A request is checked twice. `check_head` refuses a request by its head alone, before its body is
read: a missing or unknown key, an old date, an operation that the key does not allow. `check` then
verifies the whole request before anything is done with it.

Path and target decide which service a signature must be scoped to, as in dispatch: a
signature made for another service is refused here. `core/request/grants.py` decides what a key
may do.

What a request wants, an operation and an endpoint, is read from the head, in the same way as the
doors read it. Where only the body names the endpoint, `in_body` says how to find it. A path that no
door serves is `Unknown`, which needs the widest scope: a part further on that reads the path
differently must not open anything.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote_to_bytes

from penstock.api.model_names import (
    INFERS,
    LOGGING,
    NONE_SERVED,
    SHARED_MEMORY_PATHS,
    FindsServed,
    endpoint_of,
    parts_of,
    split_model,
)
from penstock.api.openai.request import REQUEST_METHOD, ROOT
from penstock.clock import Clock
from penstock.config import ListenConfig
from penstock.core.request import grants
from penstock.core.request.forwarded_headers import HeaderForwarding
from penstock.core.request.grants import INVOKE, INVOKE_ENDPOINT, Grant, allowed, needed
from penstock.core.request.host_gate import is_loopback
from penstock.errors import CallerError
from penstock.wire import plain_json
from penstock.wire.aws import bearer, sigv4
from penstock.wire.aws.errors import ACCESS_DENIED, AwsError
from penstock.wire.aws.http import HttpRequest, readable_body
from penstock.wire.aws.sigv4 import SignedWith

#: Paths that only show whether the server lives: load balancers have no keys. They send no
#: body either, and an unauthenticated caller's body is not read, here as elsewhere.
OPEN_PATHS = frozenset({b"/ping", b"/health", b"/v2/health/live", b"/v2/health/ready"})
#: Longer than any key of ours or of AWS's, and than any token made with one.
_TOKEN_BYTES_MAX: Final = 16_384

#: The platform's own instances may call models, and nothing else.
_OWN: Final = Grant(INVOKE)


class KeySource(Protocol):
    """The keys, as `control/access/keys.py` provides them."""

    def secret(self, access_key_id: str) -> str | None: ...

    def bearer(self, token: str) -> str | None: ...

    def grant(self, key_id: str) -> Grant | None: ...


def check_binding(listen: ListenConfig) -> None:
    """Refuses a public address without credentials, and wrong names of headers.

    Raises CallerError.
    """
    HeaderForwarding(listen.forward_headers)
    if listen.insecure or not strangers_call(listen):
        return
    raise CallerError(
        "credentials-required",
        f"{listen.host} can be reached from other machines, and no credentials are asked for",
        hint="Add --auth and make a key with 'penstock keys create', or, where the network itself"
        " keeps strangers out, --insecure.",
    )


def strangers_call(listen: ListenConfig) -> bool:
    """Whether other machines may call without credentials."""
    return not (is_loopback(listen.host.strip("[]")) or listen.auth)


class KeyAuthenticator:
    """Checks requests against a ring of keys, which may be replaced while it serves."""

    def __init__(
        self,
        ring: KeySource,
        clock: Clock,
        *,
        own_key: str = "",
        served: FindsServed = NONE_SERVED,
    ) -> None:
        """
        Args:
            own_key: the key with which the platform's own instances call its endpoints.
            served: other names of endpoints; a grant is for an endpoint, whatever it is called.
        """
        self.ring = ring
        self._served = served
        self._clock = clock
        self._own_key = own_key.encode()

    def check_head(
        self, method: str, raw_path: bytes, query: bytes, headers: Sequence[tuple[bytes, bytes]]
    ) -> None:
        """Returns if the request may pass, provided that its body matches the head's claims.

        Raises AwsError (403) where no body could make it valid. Costs no more than the head's
        bytes.
        """
        if _is_open(method, raw_path, headers) and not _announces_body(headers):
            return
        request = asked_of(method, raw_path, headers, self._served)
        token = _bearer_of(headers)
        if token is not None:
            permit(self._token_grant(token, raw_path), request)
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
        permit(self._grant(signed.access_key), request)

    def check(
        self,
        method: str,
        raw_path: bytes,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        """Returns if the request may pass. Raises AwsError (403) if not."""
        if _is_open(method, raw_path, headers) and not body:
            return
        request = asked_of(method, raw_path, headers, self._served)
        token = _bearer_of(headers)
        if token is not None:
            grant = self._token_grant(token, raw_path)
        else:
            http = HttpRequest.received(method, raw_path, query, headers, body)
            signed = sigv4.parse_authorization(http.headers)
            grant = self._proved(http, signed)
        if grant.endpoints and request.in_body:
            endpoint = endpoint_in(request.in_body, headers, body, self._served)
            request = AccessRequest(request.operation, endpoint, "")
        permit(grant, request)

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


def permit(grant: Grant, request: AccessRequest) -> None:
    """Returns if the key may do it. Raises AwsError (`AccessDeniedException`, 403).

    Where only the body names the endpoint and has not been read yet, that part stays unchecked.
    """
    endpoint = min(grant.endpoints, default=None) if request.in_body else request.endpoint
    if allowed(grant, request.operation, endpoint):
        return
    wanted = needed(request.operation)
    if not allowed(Grant(grant.scope), request.operation):
        raise _denied(
            f"This key has the scope {grant.scope} and may not call {request.operation}, which"
            f" needs the scope {wanted}. Make one with 'penstock keys create --scope {wanted}'."
        )
    names = ", ".join(sorted(grant.endpoints))
    if request.operation == INVOKE_ENDPOINT and request.endpoint is None:
        raise _denied(
            f"This key is for {names} only, and the body does not say, or is too large to say, for "
            "which endpoint it is. Ask /endpoints/NAME/openai/v1/... instead."
        )
    about = (
        f"endpoint {request.endpoint[:63]!r}" if request.endpoint else f"all of {request.operation}"
    )
    raise _denied(f"This key is for {names} only, and not for {about}.")


def _is_open(method: str, raw_path: bytes, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request needs no credentials: a browser sends none when it asks if a page may send
    a request, and OpenAI's door answers that without a model."""
    if raw_path in OPEN_PATHS:
        return True
    if method != "OPTIONS" or not raw_path.startswith((_OPENAI, _ENDPOINTS, *ROOT)):
        return False
    return any(name.lower() == REQUEST_METHOD for name, _ in headers)


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


_ENDPOINTS: Final = b"/endpoints/"
_OIP: Final = b"/v2"
_OPENAI: Final = b"/v1/"
_OF_SERVER: Final = (b"health", b"version")
_ADMIN: Final = b"/admin/"
_OWN_PATHS: Final = b"/penstock/v1/"
_ADMIN_ENDPOINTS: Final = b"/admin/endpoints/"
_FORM: Final = b"application/x-www-form-urlencoded"
#: Operations of the control plane on one endpoint, which their body names.
_ABOUT_ENDPOINT: Final = frozenset(
    {"DescribeEndpoint", "UpdateEndpoint", "DeleteEndpoint", "UpdateEndpointWeightsAndCapacities"}
)
MODEL: Final = "model"
ENDPOINT_NAME: Final = "EndpointName"


class AccessRequest(NamedTuple):
    """What an access check needs to know of one request."""

    operation: str
    endpoint: str | None = None
    in_body: str = ""  #: the member of the JSON body that names the endpoint; empty = none


def asked_of(
    method: str,
    raw_path: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    served: FindsServed = NONE_SERVED,
) -> AccessRequest:
    """The request by its head. Never raises: a head that makes no sense is `Unknown`."""
    if raw_path.startswith(_ENDPOINTS):
        return AccessRequest(
            grants.INVOKE_ENDPOINT, _text(raw_path[len(_ENDPOINTS) :].partition(b"/")[0])
        )
    if raw_path.startswith(_OPENAI):
        return _openai(raw_path[len(_OPENAI) :], served)
    if raw_path in ROOT:
        return _openai(ROOT[raw_path], served)
    if raw_path.startswith(_OIP):
        return _oip(method, raw_path, served)
    if raw_path == b"/":
        return _root(method, headers)
    if raw_path == b"/metrics":
        return AccessRequest(grants.READ_METRICS)
    if raw_path.startswith(_ADMIN_ENDPOINTS):
        name, _, rest = raw_path[len(_ADMIN_ENDPOINTS) :].partition(b"/")
        reads = method in ("GET", "HEAD")
        return AccessRequest(grants.READ_STATUS if reads else _endpoint_change(rest), _text(name))
    if raw_path.startswith(_ADMIN):
        reads = method in ("GET", "HEAD")
        return AccessRequest(grants.READ_STATUS if reads else grants.CHANGE_SCHEDULES)
    if raw_path.startswith(_OWN_PATHS):
        reads = method in ("GET", "HEAD")
        return AccessRequest(grants.READ_STATUS if reads else grants.CHANGE_TRAFFIC)
    return AccessRequest(grants.UNKNOWN)


def _endpoint_change(rest: bytes) -> str:
    """What a POST below an endpoint's path of the admin API changes."""
    of_model = rest.startswith(b"models/")
    if of_model and rest.endswith(b"/rollout"):
        return grants.BEGIN_ROLLOUT
    if rest.startswith(b"rollout") or (of_model and rest.split(b"/")[-2] == b"rollout"):
        return grants.CHANGE_ROLLOUT
    return grants.LOAD_TARGET_MODEL


def endpoint_in(
    member: str,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    served: FindsServed = NONE_SERVED,
) -> str | None:
    """The endpoint that a body names; None for a body that names none, or is larger than 1 MiB.

    Of several members with the same name the last one counts, as in the doors.
    """
    http = HttpRequest.received("POST", b"/", b"", headers, body)
    try:
        fields: Any = plain_json.loads(readable_body(http))
    except (AwsError, ValueError):
        return None
    name = fields.get(member) if isinstance(fields, dict) else None
    if not isinstance(name, str):
        return None
    return endpoint_of(name, served) if member == MODEL else name


def _openai(rest: bytes, served: FindsServed) -> AccessRequest:
    head, _, model = rest.partition(b"/")
    if head in _OF_SERVER:
        return AccessRequest(grants.SERVER_METADATA)
    if head != b"models":
        return AccessRequest(grants.INVOKE_ENDPOINT, in_body=MODEL)
    if not model:
        return AccessRequest(grants.LIST_SERVED_MODELS)
    return AccessRequest(grants.MODEL_METADATA, endpoint_of(_text(model), served))


def _oip(method: str, raw_path: bytes, served: FindsServed) -> AccessRequest:
    parts = parts_of(raw_path)
    if not parts:
        return AccessRequest(grants.SERVER_METADATA)
    if parts[:2] == ["repository", "models"] and len(parts) > 3:
        name = "/".join(parts[2:-1])
        return AccessRequest(grants.LOAD_TARGET_MODEL, endpoint_of(name, served))
    if parts[0] in SHARED_MEMORY_PATHS and parts[-1] != "status":
        return AccessRequest(grants.SHARE_MEMORY)
    if parts[0] == LOGGING and method not in ("GET", "HEAD"):
        return AccessRequest(grants.CHANGE_LOG)
    if parts[0] != "models" or len(parts) < 2 or parts[1:] == ["stats"]:
        return AccessRequest(grants.LIST_SERVED_MODELS)
    name, _, action = split_model(parts[1:], served)
    operation = grants.INVOKE_ENDPOINT if action in INFERS else grants.MODEL_METADATA
    return AccessRequest(operation, endpoint_of(name, served))


def _root(method: str, headers: Sequence[tuple[bytes, bytes]]) -> AccessRequest:
    if method != "POST":
        return AccessRequest(
            grants.SERVER_METADATA if method in ("GET", "HEAD") else grants.UNKNOWN
        )
    target = content_type = b""
    for name, value in headers:
        lower = name.lower()
        if lower == b"x-amz-target":
            # A comma joins repeated headers, and the result is no operation's name.
            target = target + b"," + value if target else value
        elif lower == b"content-type":
            content_type = content_type or value
    if target:
        operation = target.strip().rpartition(b".")[2].decode("latin-1")
        if operation in _ABOUT_ENDPOINT:
            return AccessRequest(operation, in_body=ENDPOINT_NAME)
        return AccessRequest(operation if operation in grants.NEEDS else grants.UNKNOWN)
    if content_type.strip().startswith(_FORM):
        return AccessRequest(grants.CLOUDWATCH_FORM)
    return AccessRequest(grants.UNKNOWN)


def _text(part: bytes) -> str:
    return unquote_to_bytes(part).decode("utf-8", "replace")
