"""The protocols, by botocore's names."""

from __future__ import annotations

from collections.abc import Container
from types import MappingProxyType
from typing import Any, Protocol

from botocore.model import OperationModel, ServiceModel

from penstock.wire.aws import json_rpc, query, rest_json
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, HttpResponse, ParsedRequest


class WireProtocol(Protocol):
    """The functions of each protocol module."""

    def parse_request(
        self, model: ServiceModel, http: HttpRequest, *, served: Container[str] | None = None
    ) -> ParsedRequest: ...

    def serialize_response(
        self, operation: OperationModel, result: dict[str, Any], *, request_id: str
    ) -> HttpResponse: ...

    def serialize_error(
        self,
        model: ServiceModel,
        error: AwsError,
        *,
        request_id: str,
    ) -> HttpResponse: ...


PROTOCOLS: MappingProxyType[str, WireProtocol] = MappingProxyType(
    {"json": json_rpc, "rest-json": rest_json, "query": query}
)
