"""gRPC's server reflection: which services there are, and their files' descriptions.

Tools such as grpcurl and Postman learn from it how to call the server without its `.proto` files.
It says nothing of models. What can't be found is an answer of its own, and the call goes on.

Source: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2

from penstock.api.oip.grpc_status import GrpcStatus
from penstock.api.oip.grpc_stream_calls import StreamCall
from penstock.errors import CallerError
from penstock.wire import grpc_health, grpc_reflection, oip_messages
from penstock.wire.grpc_reflection import ReflectionVersion

#: Of a request, which is a name. It comes back with the answer.
REQUEST_BYTES_MAX: Final = 16 << 10

_FILES: Final = (
    oip_messages.FILE,
    grpc_health.FILE,
    *(version.file for version in grpc_reflection.VERSIONS),
)


class _Unknown(Exception):
    """There is no such thing: the code, and the message of the answer."""

    def __init__(self, words: str, code: GrpcStatus = GrpcStatus.NOT_FOUND) -> None:
        super().__init__(words)
        self.words = words
        self.code = code


class GrpcReflection:
    """The method of the service, in one of its versions."""

    def __init__(self, version: ReflectionVersion) -> None:
        self._version = version
        self._by_name = {file.name: file for file in _FILES}
        self._by_symbol = {symbol: file for file in _FILES for symbol in _symbols(file)}
        self._services = sorted(
            f"{file.package}.{service.name}" for file in _FILES for service in file.service
        )

    async def serve(self, call: StreamCall) -> None:
        """Answers each request of a call. Raises CallerError for what is no request."""
        async for message in call:
            await call.write(self._answer(message))

    def _answer(self, message: bytes) -> bytes:
        try:
            asked = self._version.request_class.FromString(message)
        except Exception as cause:
            raise CallerError("bad-protobuf", f"The message can't be read: {cause}") from cause
        answer = self._version.response_class(valid_host=asked.host, original_request=asked)
        try:
            self._fill(answer, asked)
        except _Unknown as error:
            answer.error_response.error_code = error.code
            answer.error_response.error_message = error.words
        return bytes(answer.SerializeToString())

    def _fill(self, answer: Any, asked: Any) -> None:
        """Raises _Unknown."""
        kind = asked.WhichOneof("message_request")
        if kind == "list_services":
            for service in self._services:
                answer.list_services_response.service.add(name=service)
        elif kind == "file_by_filename":
            _put_file(answer, self._by_name, asked.file_by_filename)
        elif kind == "file_containing_symbol":
            _put_file(answer, self._by_symbol, asked.file_containing_symbol)
        elif kind == "all_extension_numbers_of_type":
            name = asked.all_extension_numbers_of_type
            _found(self._by_symbol, name)
            answer.all_extension_numbers_response.base_type_name = name  # `proto3` has none
        elif kind == "file_containing_extension":
            extension = asked.file_containing_extension
            raise _Unknown(
                f"There is no extension {extension.extension_number} "
                f"of {extension.containing_type[:80]!r}."
            )
        else:
            raise _Unknown("The request asks for nothing.", GrpcStatus.INVALID_ARGUMENT)


_Files = dict[str, descriptor_pb2.FileDescriptorProto]


def _found(files: _Files, name: str) -> descriptor_pb2.FileDescriptorProto:
    file = files.get(name)
    if file is None:
        raise _Unknown(f"There is no {name[:80]!r}.")
    return file


def _put_file(answer: Any, files: _Files, name: str) -> None:
    # None of the files imports another one, which would have to come along.
    described = _found(files, name).SerializeToString()
    answer.file_descriptor_response.file_descriptor_proto.append(described)


def _symbols(file: descriptor_pb2.FileDescriptorProto) -> Iterator[str]:
    """Full names of all that a file declares."""
    for service in file.service:
        name = f"{file.package}.{service.name}"
        yield name
        yield from (f"{name}.{method.name}" for method in service.method)
    yield from _symbols_of_messages(file.message_type, file.package)
    yield from _symbols_of_enums(file.enum_type, file.package)


def _symbols_of_messages(
    messages: Iterable[descriptor_pb2.DescriptorProto], outer: str
) -> Iterator[str]:
    for message in messages:
        name = f"{outer}.{message.name}"
        yield name
        yield from (f"{name}.{field.name}" for field in message.field)
        yield from (f"{name}.{oneof.name}" for oneof in message.oneof_decl)
        yield from _symbols_of_messages(message.nested_type, name)
        yield from _symbols_of_enums(message.enum_type, name)


def _symbols_of_enums(
    enums: Iterable[descriptor_pb2.EnumDescriptorProto], outer: str
) -> Iterator[str]:
    for enum in enums:
        yield f"{outer}.{enum.name}"
        # In protobuf, values are names beside their enumeration and not within it.
        yield from (f"{outer}.{value.name}" for value in enum.value)
