"""The protocol Query: a form of dotted names in, XML out. Older CloudWatch clients use it.

Action=PutMetricData&Version=2010-08-01&MetricData.member.1.MetricName=Invocations
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from typing import Any, Final, TypeVar
from xml.sax.saxutils import escape, quoteattr

from botocore.model import OperationModel, ServiceModel

from penstock.wire.aws import json_values, values
from penstock.wire.aws.errors import AwsError, fault_of, unknown_operation, unreadable
from penstock.wire.aws.http import (
    HttpRequest,
    HttpResponse,
    ParsedRequest,
    percent_decoded,
    readable_body,
)
from penstock.wire.aws.json_values import clean_text, known_member
from penstock.wire.aws.models import operation_named

_Empty = TypeVar("_Empty", list[Any], dict[str, Any])

#: A form of the largest size has no room for more of CloudWatch's fields, whose names are long.
FIELDS_MAX: Final = 40_000
#: Parts of all names together; a shared part counts once.
PARTS_MAX: Final = 80_000
#: Bounds the depth of recursive shapes: a name can't nest deeper than it has dots.
DOTS_MAX: Final = 40


class Field:
    """A node of the tree that dotted names form."""

    __slots__ = ("inner", "text")

    def __init__(self) -> None:
        self.text: str | None = None
        self.inner: dict[str, Field] = {}


def parse_request(
    model: ServiceModel, http: HttpRequest, *, served: Container[str] | None = None
) -> ParsedRequest:
    """The operation and its parameters, from the body, or from the query string if that is empty.

    Raises:
        AwsError: UnknownOperationException, SerializationException.
    """
    body = readable_body(http)
    root = parse_form(body.decode("latin-1") if body else http.query)
    action = root.inner.get("Action")
    if action is None or action.text is None:
        raise unknown_operation("The form has no Action.")
    operation = operation_named(model, action.text, served=served)
    shape = operation.input_shape
    return ParsedRequest(operation, {} if shape is None else _parse_structure(shape, root, ""))


def serialize_response(
    operation: OperationModel, result: dict[str, Any], *, request_id: str
) -> HttpResponse:
    """The answer of a successful operation."""
    shape = operation.output_shape
    name = operation.name
    out = [f"<{name}Response{_namespace(operation.service_model.metadata)}>"]
    if shape is not None:
        wrapper = shape.serialization.get("resultWrapper", f"{name}Result")
        out.append(f"<{wrapper}>")
        write_members(shape, result, out)
        out.append(f"</{wrapper}>")
    metadata = f"<RequestId>{escaped(request_id)}</RequestId>"
    out.append(f"<ResponseMetadata>{metadata}</ResponseMetadata></{name}Response>")
    return _answer(200, out, request_id)


def serialize_error(model: ServiceModel, error: AwsError, *, request_id: str) -> HttpResponse:
    """The answer to a request that was refused or failed."""
    fault = fault_of(model, error)
    origin = "Sender" if fault.sender else "Receiver"
    out = [f"<ErrorResponse{_namespace(model.metadata)}><Error><Type>{origin}</Type>"]
    out.append(f"<Code>{escaped(fault.code)}</Code>")
    if error.message:
        out.append(f"<Message>{escaped(error.message)}</Message>")
    if fault.shape is not None:
        known = {
            name: value for name, value in error.members.items() if name in fault.shape.members
        }
        write_members(fault.shape, known, out)
    out.append(f"</Error><RequestId>{escaped(request_id)}</RequestId></ErrorResponse>")
    return _answer(fault.status, out, request_id)


def parse_form(text: str) -> Field:
    """The tree of a form's dotted names; if a name occurs twice, the last one counts.

    Raises:
        AwsError: SerializationException: not UTF-8, too many fields, names too deep.
    """
    if text.count("&") >= FIELDS_MAX:
        raise unreadable(f"The form has more than {FIELDS_MAX} fields.")
    root = Field()
    parts = 0
    for pair in text.split("&"):
        name, _, value = pair.partition("=")
        key = percent_decoded(name, plus_is_space=True)
        if key.count(".") > DOTS_MAX:
            raise unreadable(f"A name in the form has more than {DOTS_MAX} parts.")
        field = root
        for part in key.split("."):
            inner = field.inner.get(part)
            if inner is None:
                parts += 1
                inner = field.inner[part] = Field()
            field = inner
        if parts > PARTS_MAX:
            raise unreadable(f"The names in the form have more than {PARTS_MAX} parts.")
        field.text = percent_decoded(value, plus_is_space=True)
    return root


def _parse(shape: Any, field: Field, at: str) -> Any:
    match shape.type_name:
        case "structure":
            return _parse_structure(shape, field, at)
        case "list":
            return _parse_list(shape, field, at)
        case "map":
            return _parse_map(shape, field, at)
    if field.text is None:
        raise values.wrong(at, f"a {shape.type_name}", "parts of one")
    return values.parse_text(shape, field.text, at)


def _parse_structure(shape: Any, field: Field, at: str) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for name, member in shape.members.items():
        inner = field.inner.get(element_name(name, member))
        if inner is not None:
            parsed[name] = _parse(member, inner, f"{at}.{name}" if at else name)
    if shape.is_tagged_union and len(parsed) != 1:
        raise values.wrong(at, "exactly one member of the union", f"{len(parsed)} known ones")
    return parsed


def _parse_list(shape: Any, field: Field, at: str) -> list[Any]:
    if not shape.serialization.get("flattened"):
        name = shape.member.serialization.get("name", "member")
        inner = field.inner.get(name) or field.inner.get("member")
        if inner is None:
            return _empty(field, at, [])
        field = inner
    numbered = _numbered(field, at)
    items_max = shape.metadata.get("max")
    if items_max is not None:  # one too many is enough for `validate` to say that there are
        del numbered[items_max + 1 :]
    return [_parse(shape.member, item, f"{at}[{index}]") for index, item in numbered]


def _parse_map(shape: Any, field: Field, at: str) -> dict[str, Any]:
    if not shape.serialization.get("flattened"):
        inner = field.inner.get("entry")
        if inner is None:
            return _empty(field, at, {})
        field = inner
    key_name = shape.key.serialization.get("name", "key")
    value_name = shape.value.serialization.get("name", "value")
    parsed: dict[str, Any] = {}
    for index, entry in _numbered(field, at):
        key, value = entry.inner.get(key_name), entry.inner.get(value_name)
        if key is None or key.text is None or value is None:
            raise values.wrong(f"{at}[{index}]", "a key and a value", "less")
        parsed[key.text] = _parse(shape.value, value, f"{at}[{key.text[:64]}]")
    return parsed


def _empty(field: Field, at: str, nothing: _Empty) -> _Empty:
    if field.inner or field.text:
        raise values.wrong(at, "numbered parts", "something else")
    return nothing


def _numbered(field: Field, at: str) -> list[tuple[int, Field]]:
    """The parts of a list in the order of their numbers; numbers may be left out."""
    numbered = []
    for number, item in field.inner.items():
        if not (number.isascii() and number.isdigit() and len(number) <= 9):
            raise values.wrong(at, "a number after the dot", repr(number))
        numbered.append((int(number), item))
    if len(numbered) > json_values.ITEMS_MAX:
        raise values.wrong(at, f"at most {json_values.ITEMS_MAX} items", f"{len(numbered)}")
    return sorted(numbered, key=lambda pair: pair[0])


def _answer(status: int, out: list[str], request_id: str) -> HttpResponse:
    headers = [("Content-Type", "text/xml"), ("x-amzn-RequestId", request_id)]
    return HttpResponse(status, headers, "".join(out).encode())


_TIMESTAMP_STYLE: Final = "iso8601"
#: Characters that XML 1.0 can't hold even escaped: most control characters, two non-characters.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def escaped(text: str) -> str:
    """Text between tags. A carriage return is written as a reference, since readers drop others."""
    return escape(_UNFIT.sub("\ufffd", clean_text(text)), {"\r": "&#13;"})


def element_name(name: str, member: Any) -> str:
    """The name of a structure's member in XML and in a form.

    Items of a flattened list use it too (Smithy's rule; botocore's readers prefer the items' own
    name, which no model served here has).
    """
    return str(member.serialization.get("name", name))


def write_members(shape: Any, value: dict[str, Any], out: list[str]) -> None:
    """Appends the elements of a structure's members that have a value.

    Raises:
        InternalError: a member that the shape doesn't have.
    """
    for name, item in value.items():
        member = known_member(shape, name)
        if item is not None and not member.serialization.get("xmlAttribute"):
            _write(element_name(name, member), member, item, out)


def _write(name: str, shape: Any, value: Any, out: list[str]) -> None:
    """Appends the element of one value, or the elements of a flattened one."""
    flattened = shape.serialization.get("flattened")
    if shape.type_name == "list" and flattened:
        for item in value:
            _write(name, shape.member, item, out)
    elif shape.type_name == "map" and flattened:
        for key, item in value.items():
            out.append(f"<{name}{_namespace(shape.serialization)}>")
            _write_pair(shape, key, item, out)
            out.append(f"</{name}>")
    else:
        out.append(f"<{name}{_namespace(shape.serialization)}{_attributes(shape, value)}>")
        _write_content(shape, value, out)
        out.append(f"</{name}>")


def _write_content(shape: Any, value: Any, out: list[str]) -> None:
    if shape.type_name == "structure":
        write_members(shape, value, out)
    elif shape.type_name == "list":
        item_name = shape.member.serialization.get("name", "member")
        for item in value:
            _write(item_name, shape.member, item, out)
    elif shape.type_name == "map":
        for key, item in value.items():
            out.append("<entry>")
            _write_pair(shape, key, item, out)
            out.append("</entry>")
    else:
        out.append(escaped(values.format_text(shape, value, timestamp_style=_TIMESTAMP_STYLE)))


def _write_pair(shape: Any, key: Any, value: Any, out: list[str]) -> None:
    _write(shape.key.serialization.get("name", "key"), shape.key, key, out)
    _write(shape.value.serialization.get("name", "value"), shape.value, value, out)


def _namespace(traits: Mapping[str, Any]) -> str:
    """`traits`: of a shape, or the metadata of a service."""
    namespace = traits.get("xmlNamespace")
    if not namespace:
        return ""
    if isinstance(namespace, str):
        namespace = {"uri": namespace}
    prefix = namespace.get("prefix")
    return f" xmlns{':' + prefix if prefix else ''}={quoteattr(namespace['uri'])}"


def _attributes(shape: Any, value: Any) -> str:
    """The members of a structure that are attributes of its element."""
    if shape.type_name != "structure":
        return ""
    attributes = []
    for name, item in value.items():
        member = known_member(shape, name)
        if item is not None and member.serialization.get("xmlAttribute"):
            text = values.format_text(member, item, timestamp_style=_TIMESTAMP_STYLE)
            attributes.append(f" {element_name(name, member)}={quoteattr(clean_text(text))}")
    return "".join(attributes)
