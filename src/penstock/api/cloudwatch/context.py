"""What the CloudWatch operations need from the server."""

from __future__ import annotations

from typing import Protocol

from penstock.clock import Clock
from penstock.control.alarms.driver import AlarmsDriver
from penstock.control.store.store_thread import StoreThread
from penstock.metrics.series.store import MetricStore


class CloudWatchContext(Protocol):
    """One account and region; the store is shared by all regions that a server answers for."""

    @property
    def store(self) -> MetricStore: ...

    @property
    def database(self) -> StoreThread: ...

    @property
    def alarms(self) -> AlarmsDriver: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def region(self) -> str: ...

    @property
    def account_id(self) -> str: ...
