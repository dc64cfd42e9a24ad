"""Where the driver of transform jobs is asked and rung, for tests of the front door alone."""

from __future__ import annotations

from typing import Any

from penstock.core.jobs.spec import TransformSpec
from penstock.errors import PenstockError
from penstock.jobs.transform.records import JobRecord


class Jobs:
    """Finds nothing wrong with a job, unless it is told to."""

    def __init__(self) -> None:
        self.checked: list[TransformSpec] = []
        self.rung: list[str] = []
        self.fault: PenstockError | None = None

    async def check(self, spec: TransformSpec) -> None:
        self.checked.append(spec)
        if self.fault is not None:
            raise self.fault

    def notify(self, job: str) -> None:
        self.rung.append(job)

    def progress(self, record: JobRecord) -> dict[str, Any]:
        return {"Records": record.totals.records}
