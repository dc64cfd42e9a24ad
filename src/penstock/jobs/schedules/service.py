"""The front door's operations on schedules; each change wakes the driver."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.clock import Clock
from penstock.control.store.store_thread import StoreThread
from penstock.jobs.schedules import book
from penstock.jobs.schedules.driver import ControlPlaneCall, SchedulesDriver
from penstock.jobs.schedules.records import RunRecord, ScheduleRecord


@dataclass(frozen=True, slots=True)
class Schedules:
    """All schedules of one server. All methods raise CallerError as `book` does."""

    database: StoreThread
    driver: SchedulesDriver
    call: ControlPlaneCall
    clock: Clock
    places: NamedPlaces

    async def create(self, record: ScheduleRecord) -> ScheduleRecord:
        """Also raises what DescribeModel raises for a missing model, and what `NamedPlaces.check`
        raises for its job."""
        await self.places.check(record.job)
        checked = book.checked(record, now=self.clock.wall())
        await self.call("DescribeModel", {"ModelName": str(record.job.get("ModelName", ""))})
        await self.database.call(book.create, checked)
        self.driver.changed()
        return checked

    async def all(self) -> list[ScheduleRecord]:
        return await self.database.call(book.list_)

    async def describe(self, name: str, runs: int) -> tuple[ScheduleRecord, list[RunRecord]]:
        return await self.database.call(book.describe, name, runs)

    async def delete(self, name: str) -> None:
        await self.database.call(book.delete, name)
        self.driver.changed()

    async def pause(self, name: str) -> None:
        await self.database.call(book.pause, name)
        self.driver.changed()

    async def resume(self, name: str) -> None:
        await self.database.call(book.resume, name, now=self.clock.wall())
        self.driver.changed()

    async def run_now(self, name: str) -> RunRecord:
        run = await self.database.call(book.run_now, name, now=self.clock.wall())
        self.driver.changed()
        return run
