"""Writes XML by a service model's shapes: the answers of the protocol Query."""

from __future__ import annotations

import re
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from penstock.wire.aws import values
from penstock.wire.aws.json_values import clean_text, known_member

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
            out.append(f"<{name}{_namespace(shape)}>")
            _write_pair(shape, key, item, out)
            out.append(f"</{name}>")
    else:
        out.append(f"<{name}{_namespace(shape)}{_attributes(shape, value)}>")
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


def _namespace(shape: Any) -> str:
    namespace = shape.serialization.get("xmlNamespace")
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
