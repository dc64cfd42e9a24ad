"""What a request wants, in the terms of `core/request/grants.py`: an operation and an endpoint.

It is read from the head, in the same way as the doors read it. Where only the body names the
endpoint, `in_body` says how to find it. A path that no door serves is `Unknown`, which needs the
widest scope: a part further on that reads the path differently must not open anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from penstock.api.model_names import endpoint_of
from penstock.api.oip_paths import INFERS, parts_of, split_model
from penstock.core.request import grants
from penstock.wire import plain_json
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, readable_body

_ENDPOINTS: Final = b"/endpoints/"
_OIP: Final = b"/v2"
_OPENAI: Final = b"/v1/"
_ADMIN: Final = b"/admin/"
_OWN: Final = b"/penstock/v1/"
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


def asked_of(method: str, raw_path: bytes, headers: Sequence[tuple[bytes, bytes]]) -> AccessRequest:
    """The request by its head. Never raises: a head that makes no sense is `Unknown`."""
    if raw_path.startswith(_ENDPOINTS):
        return AccessRequest(
            grants.INVOKE_ENDPOINT, _text(raw_path[len(_ENDPOINTS) :].partition(b"/")[0])
        )
    if raw_path.startswith(_OPENAI):
        return _openai(raw_path[len(_OPENAI) :])
    if raw_path.startswith(_OIP):
        return _oip(raw_path)
    if raw_path == b"/":
        return _root(method, headers)
    if raw_path == b"/metrics":
        return AccessRequest(grants.READ_METRICS)
    if raw_path.startswith(_ADMIN_ENDPOINTS):
        name = raw_path[len(_ADMIN_ENDPOINTS) :].partition(b"/")[0]
        reads = method in ("GET", "HEAD")
        return AccessRequest(grants.READ_STATUS if reads else grants.LOAD_TARGET_MODEL, _text(name))
    if raw_path.startswith(_ADMIN):
        reads = method in ("GET", "HEAD")
        return AccessRequest(grants.READ_STATUS if reads else grants.CHANGE_SCHEDULES)
    if raw_path.startswith(_OWN):
        reads = method in ("GET", "HEAD")
        return AccessRequest(grants.READ_STATUS if reads else grants.CHANGE_TRAFFIC)
    return AccessRequest(grants.UNKNOWN)


def endpoint_in(member: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> str | None:
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
    return endpoint_of(name) if member == MODEL else name


def _openai(rest: bytes) -> AccessRequest:
    head, _, model = rest.partition(b"/")
    if head != b"models":
        return AccessRequest(grants.INVOKE_ENDPOINT, in_body=MODEL)
    if not model:
        return AccessRequest(grants.LIST_SERVED_MODELS)
    return AccessRequest(grants.MODEL_METADATA, endpoint_of(_text(model)))


def _oip(raw_path: bytes) -> AccessRequest:
    parts = parts_of(raw_path)
    if not parts:
        return AccessRequest(grants.SERVER_METADATA)
    if parts[:2] == ["repository", "models"] and len(parts) > 3:
        return AccessRequest(grants.LOAD_TARGET_MODEL, endpoint_of(parts[2]))
    if parts[0] != "models" or len(parts) < 2 or parts[1:] == ["stats"]:
        return AccessRequest(grants.LIST_SERVED_MODELS)
    name, _, action = split_model(parts[1:])
    operation = grants.INVOKE_ENDPOINT if action in INFERS else grants.MODEL_METADATA
    return AccessRequest(operation, endpoint_of(name))


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
