"""The CloudWatch door over a real database, with boto3 on it and a clock that the test moves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.kit.boto3_clients import client_of

from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.cloudwatch.operations import OPERATIONS
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


class AlarmContext:
    """What the operations are given."""

    account_id = ACCOUNT

    def __init__(self, site: AlarmSite, region: str) -> None:
        self.store = site.metrics
        self.database = site.database
        self.alarms = site.driver
        self.clock = site.clock
        self.region = region


class AlarmSite:
    def __init__(self, state_dir: Path) -> None:
        self.clock = ManualClock(wall_s=float(T0))
        self.metrics = MetricStore()
        self.fired: list[AlarmFired] = []
        self.database = StoreThread(lambda: Store(state_dir))
        self.driver = AlarmsDriver(self.database, self.metrics, self.clock, self._act)
        service = AwsService(CLOUDWATCH, OPERATIONS, lambda region: AlarmContext(self, region))
        self.door = AwsFrontDoor((service,), region_default="us-east-1")
        asyncio.run(self._open())

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
        return client_of("cloudwatch", self.answer)

    def answer(self, http: HttpRequest) -> HttpResponse:
        return asyncio.run(self.door.handle(http, "request-1"))

    def query(self, form: str) -> HttpResponse:
        """As clients of before JSON send it."""
        headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
        body = f"{form}&Version=2010-08-01".encode()
        return self.answer(HttpRequest("POST", "/", headers=headers, body=body))
