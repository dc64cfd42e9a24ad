"""Messages of gRPC's server reflection, in both packages that clients ask in.

Source: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md. `v1alpha` has the same
messages under another name, and older clients know no other.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2

from penstock.wire.protobuf_schema import described_file, message_classes

_SERVICE: Final = "ServerReflection"
METHOD: Final = "ServerReflectionInfo"
_REQUEST: Final = "ServerReflectionRequest"
_RESPONSE: Final = "ServerReflectionResponse"
_MESSAGES: Final = {
    _REQUEST: (
        "host:string=1 file_by_filename:string=3|message_request "
        "file_containing_symbol:string=4|message_request "
        "file_containing_extension:ExtensionRequest=5|message_request "
        "all_extension_numbers_of_type:string=6|message_request "
        "list_services:string=7|message_request"
    ),
    "ExtensionRequest": "containing_type:string=1 extension_number:int32=2",
    _RESPONSE: (
        "valid_host:string=1 original_request:ServerReflectionRequest=2 "
        "file_descriptor_response:FileDescriptorResponse=4|message_response "
        "all_extension_numbers_response:ExtensionNumberResponse=5|message_response "
        "list_services_response:ListServiceResponse=6|message_response "
        "error_response:ErrorResponse=7|message_response"
    ),
    "FileDescriptorResponse": "file_descriptor_proto:*bytes=1",
    "ExtensionNumberResponse": "base_type_name:string=1 extension_number:*int32=2",
    "ListServiceResponse": "service:*ServiceResponse=1",
    "ServiceResponse": "name:string=1",
    "ErrorResponse": "error_code:int32=1 error_message:string=2",
}


class ReflectionVersion(NamedTuple):
    """The protocol in one of its packages."""

    service: str
    file: descriptor_pb2.FileDescriptorProto
    request_class: Any
    response_class: Any


def _version(package: str) -> ReflectionVersion:
    name = package.replace(".", "_")
    file = described_file(
        f"penstock/{name}.proto",
        package,
        _MESSAGES,
        services={_SERVICE: {METHOD: (_REQUEST, _RESPONSE, True, True)}},
    )
    classes = message_classes(file)
    return ReflectionVersion(f"{package}.{_SERVICE}", file, classes[_REQUEST], classes[_RESPONSE])


VERSIONS: Final = tuple(map(_version, ("grpc.reflection.v1", "grpc.reflection.v1alpha")))
