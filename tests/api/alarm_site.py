"""The CloudWatch door over a real database, with boto3 on it and a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config

from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.cloudwatch.operations import OPERATIONS
from penstock.api.cloudwatch.rules import CloudWatchContext
from penstock.clock import ManualClock
from penstock.control.alarms.driver import AlarmsDriver
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.alarms.spec import AlarmFired
from penstock.metrics.series.store import MetricStore
from penstock.wire.aws.http import HttpRequest, HttpResponse
from penstock.wire.aws.models import CLOUDWATCH

T0 = 1_700_000_040  # a full minute
ACCOUNT = "123456789012"


class Raw:
    """What botocore reads an answer's body from."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


class AlarmSite:
    def __init__(self, state_dir: Path) -> None:
        self.clock = ManualClock(wall_s=float(T0))
        self.metrics = MetricStore()
        self.fired: list[AlarmFired] = []
        self.database = StoreThread(lambda: Store(state_dir))
        self.driver = AlarmsDriver(self.database, self.metrics, self.clock, self._act)
        service = AwsService(CLOUDWATCH, OPERATIONS, self._context)
        self.door = AwsFrontDoor((service,), region_default="us-east-1")
        asyncio.run(self._open())

    def _context(self, region: str) -> CloudWatchContext:
        return CloudWatchContext(
            self.metrics, self.database, self.driver, self.clock, region, ACCOUNT
        )

    async def _open(self) -> None:
        await self.database.open()
        await self.driver.tick()

    async def _act(self, fired: AlarmFired) -> None:
        self.fired.append(fired)

    def close(self) -> None:
        asyncio.run(self.database.close())

    def until(self, second: int) -> None:
        """The driver's seconds up to T0 + `second`."""

        async def tick() -> None:
            while self.clock.wall() < T0 + second:
                self.clock.advance(1.0)
                await self.driver.tick()

        asyncio.run(tick())

    def client(self) -> Any:
        return client_of(self.door)

    def query(self, form: str) -> HttpResponse:
        return query(self.door, form)


def client_of(door: AwsFrontDoor) -> Any:
    """A boto3 client whose requests go to the front door without a socket."""
    client = boto3.client(
        "cloudwatch",
        region_name="eu-central-1",
        endpoint_url="http://127.0.0.1:1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )

    def send(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        headers = {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in request.headers.items()
        }
        body = request.body or b""
        if isinstance(body, str):
            body = body.encode()
        parts = urlsplit(request.url)
        http = HttpRequest(request.method, parts.path, parts.query, headers, body)
        answer = asyncio.run(door.handle(http, "request-1"))
        return AWSResponse(request.url, answer.status, dict(answer.headers), Raw(answer.body))

    client.meta.events.register("before-send.cloudwatch", send)
    return client


def query(door: AwsFrontDoor, form: str) -> HttpResponse:
    """As clients of before JSON send it."""
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    body = f"{form}&Version=2010-08-01".encode()
    return asyncio.run(door.handle(HttpRequest("POST", "/", headers=headers, body=body), "r-1"))
