"""Unmodified boto3 clients whose requests go to a function in place of the network."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.config import Config

from penstock.wire.aws.http import HttpRequest, HttpResponse


class RawBody(io.BytesIO):
    """A response's body as botocore reads it from its HTTP library."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        while chunk := self.read(7):
            yield chunk


def client_of(
    service: str,
    answer: Callable[[HttpRequest], HttpResponse],
    *,
    checks: bool = True,
    key: str = "test",
    secret: str = "test",
) -> Any:
    """Without `checks` it sends whatever it is given."""
    client = boto3.client(
        service, region_name="eu-central-1", endpoint_url="http://127.0.0.1:1",
        aws_access_key_id=key, aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}, parameter_validation=checks),
    )  # fmt: skip

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        url = urlsplit(request.url)
        pairs = [(name, _text(value)) for name, value in request.headers.items()]
        body = request.body or b""
        http = HttpRequest(
            request.method, url.path or "/", url.query, [*pairs, ("Host", url.netloc)],
            body.encode() if isinstance(body, str) else body,
        )  # fmt: skip
        answered = answer(http)
        headers = HeadersDict(answered.headers)
        return AWSResponse(request.url, answered.status, headers, RawBody(answered.body))

    client.meta.events.register("before-send", send)
    return client


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
