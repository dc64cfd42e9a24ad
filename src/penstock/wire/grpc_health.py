"""Messages of gRPC's health checking protocol (package `grpc.health.v1`), in a pool of their own.

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md. The pool is private, so
that a program may import this module and `grpcio-health-checking`, which registers the same names.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE: Final = "grpc.health.v1.Health"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3
_PACKAGE: Final = "grpc.health.v1"
_STATUSES: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def _build() -> tuple[Any, Any]:
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="penstock/grpc_health.proto", package=_PACKAGE, syntax="proto3"
    )
    asked = file.message_type.add(name="HealthCheckRequest")
    asked.field.add(name="service", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    answered = file.message_type.add(name="HealthCheckResponse")
    enum = answered.enum_type.add(name="ServingStatus")
    for number, name in enumerate(_STATUSES):
        enum.value.add(name=name, number=number)
    answered.field.add(
        name="status",
        number=1,
        type=field.TYPE_ENUM,
        type_name=f".{_PACKAGE}.HealthCheckResponse.ServingStatus",
        label=field.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    request, response = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("HealthCheckRequest", "HealthCheckResponse")
    )
    return request, response


HealthCheckRequest, HealthCheckResponse = _build()
