"""Messages of gRPC's health checking protocol (package `grpc.health.v1`).

Source: https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.protobuf_schema import described_file, message_classes

SERVICE: Final = "grpc.health.v1.Health"
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3

FILE: Final = described_file(
    "penstock/grpc_health.proto",
    "grpc.health.v1",
    {
        "HealthCheckRequest": "service:string=1",
        "HealthCheckResponse": "status:HealthCheckResponse.ServingStatus=1",
    },
    enums={"HealthCheckResponse.ServingStatus": "UNKNOWN SERVING NOT_SERVING SERVICE_UNKNOWN"},
    services={
        "Health": {
            "Check": ("HealthCheckRequest", "HealthCheckResponse", False, False),
            "Watch": ("HealthCheckRequest", "HealthCheckResponse", False, True),
        }
    },
)
_CLASSES: Final = message_classes(FILE)
HealthCheckRequest: Final = _CLASSES["HealthCheckRequest"]
HealthCheckResponse: Final = _CLASSES["HealthCheckResponse"]
