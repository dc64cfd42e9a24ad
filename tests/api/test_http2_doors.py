"""The doors over HTTP/2: they see what they see over HTTP/1.1, and their answers arrive."""

from __future__ import annotations

import pytest
from tests.kit.doors import door_site
from tests.kit.gateway import run
from tests.kit.http2_clients import Http2Client

from penstock.wire import frames

pytestmark = pytest.mark.loop(by=run)

ECHO = "/endpoints/echo/invocations"


async def test_an_invocation_reaches_the_model_with_its_headers_and_the_answer_its_caller() -> None:
    async with door_site() as served:
        client = await Http2Client.to(served.server.port)
        health = await client.ask("GET", "/v2/health/live")
        assert (health.status, health.body) == (200, b"")
        got = await client.ask(
            "POST", ECHO, b"rows",
            ("content-type", "text/csv"),
            ("accept", "application/json"),
            ("x-amzn-sagemaker-custom-attributes", "trace=1"),
            ("x-amzn-sagemaker-inference-id", "id-7"),
        )  # fmt: skip
        [invoke] = served.instance.invokes
        assert frames.decode_request_meta(invoke.meta) == frames.RequestMeta(
            "text/csv", "application/json", "trace=1", "id-7"
        )
        assert (got.status, got.body) == (200, b"rows")
        assert got.headers["content-type"] == "text/csv"
        assert got.headers["x-amzn-invoked-production-variant"] == "AllTraffic"
        assert got.headers["x-amzn-sagemaker-custom-attributes"] == "trace=1"
        client.close()
