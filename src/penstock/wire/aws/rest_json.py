"""The protocol rest-json: members sit in path, query, headers and body, the body is JSON or raw.

A payload member that is a blob is passed on as raw bytes, unread. The caller writes an event stream
in an answer (`eventstream`): here its body stays empty.

Operations are found by method and path, since each has a URI of its own. A template such as
`/endpoints/{EndpointName}/invocations` is matched segment by segment on the undecoded path, so that
an encoded slash stays in its label; `{name+}` takes any number of segments.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
from botocore.model import OperationModel, ServiceModel

from penstock.wire.aws import json_values, values
from penstock.wire.aws.errors import AwsError, fault_of, unknown_operation, unreadable
from penstock.wire.aws.http import (
    HttpRequest,
    HttpResponse,
    ParsedRequest,
    header_text,
    percent_decoded,
    readable_body,
)
from penstock.wire.aws.models import operation_named

if TYPE_CHECKING:
    from botocore.model import ServiceModel


_MODELS_MAX = 64


class Route(NamedTuple):
    """One operation's method and URI."""

    operation: str
    method: str
    segments: tuple[str, ...]  #: literal text, `{label}` or `{label+}`
    constants: tuple[tuple[str, str], ...]  #: (name, value) pairs that the query must contain

    def labels(
        self, method: str, segments: list[str], query: dict[str, list[str]]
    ) -> dict[str, str] | None:
        """The encoded label values if the request matches this route, else None."""
        if method != self.method or any(
            value not in query.get(name, ()) for name, value in self.constants
        ):
            return None
        spare = len(segments) - len(self.segments)
        labels: dict[str, str] = {}
        at = 0
        for wanted in self.segments:
            taken = 1
            if wanted.endswith("+}"):
                taken += spare
                spare = 0
            found = "/".join(segments[at : at + taken])
            at += taken
            if wanted.startswith("{"):
                if taken < 1 or not found:
                    return None
                labels[wanted.strip("{+}")] = found
            elif found != wanted:
                return None
        return labels if spare == 0 else None


def match(
    model: ServiceModel, method: str, path: str, query: dict[str, list[str]]
) -> tuple[str, dict[str, str]] | None:
    """The operation's name and its decoded labels, or None.

    Raises:
        AwsError: SerializationException, for a label that is not UTF-8.
    """
    segments = path.split("/")
    for route in _routes(model):
        labels = route.labels(method, segments, query)
        if labels is not None:
            return route.operation, {
                name: percent_decoded(text, plus_is_space=False) for name, text in labels.items()
            }
    return None


def parse_query(query: str) -> dict[str, list[str]]:
    """The parameters of a query string in order; a plus is a space.

    Raises:
        AwsError: SerializationException, for bytes that are not UTF-8.
    """
    parsed: dict[str, list[str]] = {}
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        key = percent_decoded(name, plus_is_space=True)
        parsed.setdefault(key, []).append(percent_decoded(value, plus_is_space=True))
    return parsed


@functools.lru_cache(maxsize=_MODELS_MAX)
def _routes(model: ServiceModel) -> list[Route]:
    """All routes, the most specific first."""
    routes = []
    for name, described in model._service_description["operations"].items():
        path, _, query = described["http"]["requestUri"].partition("?")
        constants = tuple(
            (key, value) for key, values in parse_query(query).items() for value in values
        )
        route = Route(name, described["http"]["method"], tuple(path.split("/")), constants)
        routes.append(route)

    def vagueness(route: Route) -> tuple[bool, int, int]:
        labels = [segment for segment in route.segments if segment.startswith("{")]
        greedy = any(label.endswith("+}") for label in labels)
        return greedy, len(labels), -len(route.constants)

    return sorted(routes, key=vagueness)


_HEADER_STYLE: Final = "rfc822"
_RAW_TYPES: Final = {"blob": "application/octet-stream", "string": "text/plain"}
_JSON_TYPE: Final = "application/json"
_EVENTS_TYPE: Final = "application/vnd.amazon.eventstream"

#: The text between the quotes of an item; a backslash precedes a literal character.
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def parse_request(
    model: ServiceModel, http: HttpRequest, *, served: Container[str] | None = None
) -> ParsedRequest:
    """The operation and its parameters.

    Raises:
        AwsError: UnknownOperationException, SerializationException.
    """
    query = parse_query(http.query)
    matched = match(model, http.method, http.path, query)
    if matched is None:
        raise unknown_operation(f"{http.method} of this path is no operation here.", status=404)
    name, labels = matched
    operation = operation_named(model, name, served=served)
    shape = operation.input_shape
    if shape is None:
        return ParsedRequest(operation, {})
    params = _parse_body(shape, http)
    for member_name, member in shape.members.items():
        value = _parse_located(member_name, member, labels, query, http.headers)
        if value is not None:
            params[member_name] = value
    return ParsedRequest(operation, params)


def serialize_response(
    operation: OperationModel, result: dict[str, Any], *, request_id: str
) -> HttpResponse:
    """The answer of a successful operation."""
    status = operation.http.get("responseCode", 200)
    shape = operation.output_shape
    headers = [("x-amzn-RequestId", request_id)]
    if shape is None:
        return HttpResponse(status, headers, b"")
    for name, value in result.items():
        member = json_values.known_member(shape, name)
        if member.serialization.get("location") == "statusCode" and value is not None:
            status = int(value)
    headers += _located_headers(shape, result)
    body, content_type = _serialize_body(shape, result)
    named = any(name.lower() == "content-type" for name, _ in headers)
    if content_type is not None and not named:
        headers.append(("Content-Type", content_type))
    return HttpResponse(status, headers, body)


def serialize_error(model: ServiceModel, error: AwsError, *, request_id: str) -> HttpResponse:
    """The answer to a request that was refused or failed; the code is in a header."""
    fault = fault_of(model, error)
    modelled: dict[str, Any] = {}
    body: dict[str, Any] = {}
    if error.message:
        body[fault.message_key] = json_values.clean_text(error.message)
    for name, value in error.members.items():
        known = fault.shape is not None and name in fault.shape.members
        (modelled if known else body)[name] = value
    headers = [
        ("Content-Type", _JSON_TYPE),
        ("x-amzn-RequestId", request_id),
        ("x-amzn-ErrorType", fault.name),
    ]
    if modelled:
        body |= json_values.serialize_members(fault.shape, modelled, in_body_only=True)
        headers += _located_headers(fault.shape, modelled)
    return HttpResponse(fault.status, headers, json_values.dump(body))


def _parse_body(shape: Any, http: HttpRequest) -> dict[str, Any]:
    payload = shape.serialization.get("payload")
    if payload is None:
        if all("location" in member.serialization for member in shape.members.values()):
            return {}
        value = json_values.load(readable_body(http))
        return json_values.parse_members(shape, value, in_body_only=True)
    member = shape.members[payload]
    if member.type_name == "blob":
        # An empty body is an empty value for a required payload, and no value for an optional one.
        given = http.body or payload in shape.required_members
        return {payload: http.body} if given else {}
    body = readable_body(http)
    if member.type_name == "string":
        try:
            return {payload: body.decode()} if body else {}
        except UnicodeError as cause:
            raise unreadable("The body is not UTF-8.") from cause
    return {payload: json_values.parse(member, json_values.load(body))} if body else {}


def _parse_located(
    name: str,
    member: Any,
    labels: dict[str, str],
    query: dict[str, list[str]],
    headers: dict[str, str],
) -> Any:
    """The value of a member in path, query or headers; None if it is missing."""
    place = member.serialization.get("location")
    key = member.serialization.get("name", name)
    if place == "uri":
        return values.parse_text(member, labels[key], name) if key in labels else None
    if place == "querystring":
        return _parse_query_member(name, member, query, query.get(key))
    if place == "headers":
        prefix = key.lower()
        return {
            header[len(prefix) :]: text
            for header, text in headers.items()
            if header.startswith(prefix) and header != prefix
        }
    if place == "header" and key.lower() in headers:
        return _parse_header(name, member, headers[key.lower()])
    return None


def _parse_query_member(
    name: str, member: Any, query: dict[str, list[str]], found: list[str] | None
) -> Any:
    if member.type_name == "map":  # takes the whole query string, other members' parts too
        many = member.value.type_name == "list"
        return {key: texts if many else texts[0] for key, texts in query.items()} or None
    if found is None:
        return None
    if member.type_name == "list":
        return [values.parse_text(member.member, text, name) for text in found]
    return values.parse_text(member, found[0], name)


def _parse_header(name: str, member: Any, text: str) -> Any:
    if member.serialization.get("jsonvalue"):
        try:
            return orjson.loads(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError) as cause:
            raise values.wrong(name, "JSON in base64", repr(text)) from cause
    if member.type_name != "list":
        return values.parse_text(member, text, name)
    kind = member.member.type_name
    if kind == "string":
        return _split_strings(text)
    items = [item.strip() for item in text.split(",")]
    style = member.member.serialization.get("timestampFormat", _HEADER_STYLE)
    if kind == "timestamp" and style.lower() == "rfc822":  # each date contains a comma
        items = [", ".join(items[at : at + 2]) for at in range(0, len(items), 2)]
    return [values.parse_text(member.member, item, name) for item in items]


def _split_strings(text: str) -> list[str]:
    """Items of a list of strings: quoted with backslashes, or bare up to the comma.

    It is linear: the text between two quotes has no other start of a quoted item.
    """
    items: list[str] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        if text[at] == '"':
            quoted = _QUOTED.match(text, at)
            comma = _comma_from(text, quoted.end()) if quoted is not None else 0
            if quoted is not None and not text[quoted.end() : comma].strip():
                items.append(_ESCAPED.sub(r"\1", quoted[1]))
                at = comma + 1
                continue
        comma = _comma_from(text, at)
        items.append(text[at:comma].strip())
        at = comma + 1
    return items


def _comma_from(text: str, at: int) -> int:
    """The index of the next comma, or of the end of the text."""
    found = text.find(",", at)
    return len(text) if found < 0 else found


def _serialize_body(shape: Any, result: dict[str, Any]) -> tuple[bytes, str | None]:
    """The body and its content type; None without a body."""
    payload = shape.serialization.get("payload")
    if payload is None:
        in_body = any("location" not in member.serialization for member in shape.members.values())
        if not in_body and shape.members:
            return b"", None
        return json_values.dump(
            json_values.serialize_members(shape, result, in_body_only=True)
        ), _JSON_TYPE
    member, value = shape.members[payload], result.get(payload)
    if member.serialization.get("eventstream"):
        return b"", _EVENTS_TYPE
    if value is None:
        return b"", None
    if member.type_name in _RAW_TYPES:
        raw = value.encode() if isinstance(value, str) else bytes(value)
        return raw, _RAW_TYPES[member.type_name]
    return json_values.dump(json_values.serialize(member, value)), _JSON_TYPE


def _located_headers(shape: Any, result: dict[str, Any]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for name, value in result.items():
        member = json_values.known_member(shape, name)
        place = member.serialization.get("location")
        key = member.serialization.get("name", name)
        if value is None:
            continue
        if place == "headers":
            headers += [(key + name, header_text(name, str(item))) for name, item in value.items()]
        elif place == "header" and not (member.type_name == "list" and not value):
            headers.append((key, header_text(key, _format_header(member, value))))
    return headers


def _format_header(member: Any, value: Any) -> str:
    if member.serialization.get("jsonvalue"):
        return base64.b64encode(json_values.dump(value)).decode("ascii")
    if member.type_name != "list":
        return values.format_text(member, value, timestamp_style=_HEADER_STYLE)
    texts = [
        values.format_text(member.member, item, timestamp_style=_HEADER_STYLE) for item in value
    ]
    if member.member.type_name == "string":
        texts = [_quoted(text) if '"' in text or "," in text else text for text in texts]
    return ", ".join(texts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
