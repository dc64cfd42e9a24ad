"""Schedules over a real database and a clock that is told the time; jobs are names in a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.artifacts.sources.named_places import NamedPlaces
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import ManualClock
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.errors import CallerError
from penstock.jobs.schedules.driver import SchedulesDriver
from penstock.jobs.schedules.records import RunRecord, ScheduleRecord
from penstock.metrics.counts.work_counts import WorkCounts

JOB = {
    "ModelName": "m",
    "TransformInput": {"DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://i"}}},
    "TransformOutput": {"S3OutputPath": "s3://o/{date}"},
    "TransformResources": {"InstanceType": "ml.local.small", "InstanceCount": 1},
}  # fmt: skip


def at(text: str) -> float:
    """A time in UTC; only hours and minutes are those of 2 March 2026."""
    whole = text if "T" in text else f"2026-03-02T{text}"
    return datetime.fromisoformat(whole).replace(tzinfo=UTC).timestamp()


class Killed(BaseException):
    """The process ends here."""


class ControlPlane:
    """Where jobs are created and described; it outlives every kill."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.owners: list[tuple[str, str]] = []  #: of what was asked
        self.status: dict[str, str] = {}
        self.refusal: CallerError | None = None

    async def call(
        self, operation: str, members: dict[str, Any], *, owner: str = ""
    ) -> dict[str, Any]:
        self.owners.append((operation, owner))
        self.asked.append((operation, members))
        if operation == "DescribeModel":
            return {}
        name = members["TransformJobName"]
        if operation == "CreateTransformJob":
            if self.refusal is not None:
                raise self.refusal
            if name in self.status:
                raise CallerError("ResourceInUse", f"there is a job {name}")
            self.created.append(name)
            self.status[name] = "InProgress"
            return {}
        if name not in self.status:
            raise CallerError("ValidationException", f"Could not find job {name}")
        return {"TransformJobStatus": self.status[name], "FailureReason": "bad"}


class Database(StoreThread):
    """Tells when each call is about to be made, and when it was."""

    def __init__(self, state_dir: Path, step: Callable[[str], None]) -> None:
        super().__init__(lambda: Store(state_dir))
        self._step = step

    async def call(self, method: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._step(f"before {method.__name__}")
        answer = await super().call(method, *args, **kwargs)
        self._step(f"after {method.__name__}")
        return answer


class SchedulesSite:
    """One server's schedules; `restart` is what a kill and a new start leave."""

    def __init__(self, state_dir: Path, now: str) -> None:
        self.runner = asyncio.Runner()
        self.clock = ManualClock(wall_s=at(now))
        self.plane = ControlPlane()
        self.steps = 0
        self.kill_at = 0  #: the step at which the process ends; 0: it doesn't
        self._state_dir = state_dir
        self.counts = WorkCounts()
        self._open()

    def restart(self) -> None:
        self.kill_at = 0
        self.runner.run(self._database.close())
        self.counts = WorkCounts()
        self._open()

    def close(self) -> None:
        self.runner.run(self._database.close())
        self.runner.close()

    def create(self, name: str = "nightly", **members: Any) -> ScheduleRecord:
        record = ScheduleRecord(name=name, created=self.clock.wall(), **({"job": JOB} | members))
        return self.runner.run(self.schedules.create(record))

    def tick(self, now: str = "") -> float:
        if now:
            self.clock.advance(at(now) - self.clock.wall())
        return self.runner.run(self.schedules.tick())

    def runs(self, name: str = "nightly") -> list[RunRecord]:
        """Oldest first."""
        return self.runner.run(self.schedules.describe(name, 100))[1][::-1]

    def told(self, name: str = "nightly") -> list[str]:
        return [f"{one.job or '-'} {one.state} {one.reason}" for one in self.runs(name)]

    def _open(self) -> None:
        self._database = Database(self._state_dir, self._step)
        self.runner.run(self._database.open())
        self.schedules = SchedulesDriver(
            database=self._database,
            call=self._call,
            clock=self.clock,
            counts=self.counts,
            places=NamedPlaces(ArtifactSettings()),
        )

    async def _call(
        self, operation: str, members: dict[str, Any], *, owner: str = ""
    ) -> dict[str, Any]:
        self._step(f"before {operation}")
        answer = await self.plane.call(operation, members, owner=owner)
        self._step(f"after {operation}")
        return answer

    def _step(self, _what: str) -> None:
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed
