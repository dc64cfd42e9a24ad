"""Protobuf files in a short notation, and the classes of their messages.

A message is `field:type=number field:type=number ...`, with `*` before a repeated type, `{T}` for a
map from string to T (`{K,T}` from K), and `|name` for the oneof that the field belongs to. The
names of nested messages and enumerations have a dot, and stand behind those around them.

The classes live in a private descriptor pool for each file, so that a program may import both our
modules and a client library that registers the same names globally.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: (request, response, client streams, server streams)
Method = tuple[str, str, bool, bool]

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "double": _Field.TYPE_DOUBLE,
    "float": _Field.TYPE_FLOAT,
    "int64": _Field.TYPE_INT64,
    "uint64": _Field.TYPE_UINT64,
    "int32": _Field.TYPE_INT32,
    "uint32": _Field.TYPE_UINT32,
    "bool": _Field.TYPE_BOOL,
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
}


def described_file(
    name: str,
    package: str,
    messages: Mapping[str, str],
    *,
    services: Mapping[str, Mapping[str, Method]],
    enums: Mapping[str, str] | None = None,
) -> descriptor_pb2.FileDescriptorProto:
    """The description of a file (`proto3`).

    Args:
        messages: name -> fields, in the notation above.
        services: name -> its methods.
        enums: name -> its values, from 0 on.
    """
    enums = enums or {}
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3")
    made: dict[str, Any] = {}
    for full_name, fields in messages.items():
        outer, _, inner = full_name.rpartition(".")
        message = made[outer].nested_type.add() if outer else file.message_type.add()
        message.name = inner
        made[full_name] = message
        _Fields(package, frozenset(enums), message, full_name).add(fields)
    for full_name, values in enums.items():
        outer, _, inner = full_name.rpartition(".")
        enum = made[outer].enum_type.add() if outer else file.enum_type.add()
        enum.name = inner
        for number, value in enumerate(values.split()):
            enum.value.add(name=value, number=number)
    for service_name, methods in services.items():
        service = file.service.add(name=service_name)
        for method, (request, response, client_streams, server_streams) in methods.items():
            service.method.add(
                name=method,
                input_type=f".{package}.{request}",
                output_type=f".{package}.{response}",
                # Absent where it is false, as a descriptor pool has it.
                client_streaming=client_streams or None,
                server_streaming=server_streams or None,
            )
    return file


def message_classes(file: descriptor_pb2.FileDescriptorProto) -> dict[str, Any]:
    """The class of each message of a file, by its name within the package."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found: dict[str, Any] = {}

    def add(messages: Any, outer: str) -> None:
        for message in messages:
            name = outer + message.name
            descriptor = pool.FindMessageTypeByName(f"{file.package}.{name}")
            found[name] = message_factory.GetMessageClass(descriptor)
            add((each for each in message.nested_type if not each.options.map_entry), f"{name}.")

    add(file.message_type, "")
    return found


class _Fields:
    """Adds fields to one message."""

    def __init__(self, package: str, enums: frozenset[str], message: Any, full_name: str) -> None:
        self._package = package
        self._enums = enums
        self._message = message
        self._full_name = full_name

    def add(self, fields: str) -> None:
        oneofs: list[str] = []
        for part in fields.split():
            declaration, _, oneof = part.partition("|")
            name, _, typed = declaration.partition(":")
            kind, _, number = typed.partition("=")
            field = self._message.field.add(
                name=name, number=int(number), label=_Field.LABEL_OPTIONAL
            )
            if kind.startswith("{"):
                self._add_map(field, kind[1:-1])
                continue
            if kind.startswith("*"):
                field.label = _Field.LABEL_REPEATED
                kind = kind[1:]
            self._set_type(field, kind)
            if oneof:
                if oneof not in oneofs:
                    oneofs.append(oneof)
                    self._message.oneof_decl.add(name=oneof)
                field.oneof_index = oneofs.index(oneof)

    def _add_map(self, field: Any, kinds: str) -> None:
        """A map is a repeated nested message of key and value, marked as an entry."""
        key_kind, _, value_kind = kinds.rpartition(",")
        entry = self._message.nested_type.add()
        entry.name = "".join(part.capitalize() for part in field.name.split("_")) + "Entry"
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL)
        self._set_type(key, key_kind or "string")
        value = entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL)
        self._set_type(value, value_kind)
        field.label = _Field.LABEL_REPEATED
        field.type = _Field.TYPE_MESSAGE
        field.type_name = f".{self._package}.{self._full_name}.{entry.name}"

    def _set_type(self, field: Any, kind: str) -> None:
        if kind in _SCALARS:
            field.type = _SCALARS[kind]
            return
        field.type = _Field.TYPE_ENUM if kind in self._enums else _Field.TYPE_MESSAGE
        field.type_name = f".{self._package}.{kind}"
