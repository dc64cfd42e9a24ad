"""The admin API of schedules of transform jobs.

GET    /admin/schedules                 all, by name
POST   /admin/schedules/{name}          creates one from the JSON object in the body (below)
GET    /admin/schedules/{name}?runs=N   one, with its latest runs, latest first
DELETE /admin/schedules/{name}          deletes it with its runs; jobs under way go on
POST   /admin/schedules/{name}/pause    no run is due until it is resumed
POST   /admin/schedules/{name}/resume
POST   /admin/schedules/{name}/run-now  an extra run; refused while a run has not ended,
                                        unless runs may overlap

Members of the body: `expression` (cron(...), rate(...) or at(...)), `time_zone` (UTC), `missed`
(skip, run-once or run-all), `overlap`, `paused`, `starts` and `ends` (seconds since the epoch), and
`job`: members of CreateTransformJob, with placeholders (`core/jobs/schedules.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.routing import Route

from penstock.api.admin.answers import answered, whole_number
from penstock.core.apply.plan import ENDPOINT_NAME
from penstock.core.jobs.schedules import MISSED_RULES, RUN_ONCE
from penstock.errors import CallerError
from penstock.jobs.schedules.driver import SchedulesDriver
from penstock.jobs.schedules.records import RunRecord, ScheduleRecord
from penstock.jobs.schedules.rows import RUNS_KEPT
from penstock.wire.aws import json_rpc, validate
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.models import SAGEMAKER, service_model
from penstock.wire.aws.values import TIMESTAMP_S_MAX

#: A job's name has 63 characters at most: the schedule's name, and the time.
NAME_CHARS_MAX: Final = 40
_RUNS_DEFAULT: Final = 20
#: Our key ids are shorter; without access control a caller may send any text.
OWNER_CHARS_MAX: Final = 128
KeyOf = Callable[[HttpRequest], str]
_ONE: Final = "/schedules/{name}"
_MEMBERS: Final = (
    *("expression", "time_zone", "missed", "overlap", "paused", "starts", "ends", "job"),
)


def routes(schedules: SchedulesDriver, key_of: KeyOf) -> list[Route]:
    """The routes below /admin. `key_of`: id of the key that a request carries; empty = none."""
    pages = _SchedulePages(schedules, key_of)
    return [
        Route("/schedules", answered(pages.index)),
        *(
            Route(f"{_ONE}/{action}", answered(getattr(pages, method)), methods=["POST"])
            for action, method in (("pause", "pause"), ("resume", "resume"), ("run-now", "run_now"))
        ),
        Route(_ONE, answered(pages.create), methods=["POST"]),
        Route(_ONE, answered(pages.delete), methods=["DELETE"]),
        Route(_ONE, answered(pages.describe)),
    ]


class _SchedulePages:
    """One method for each path; raises PenstockError."""

    def __init__(self, schedules: SchedulesDriver, key_of: KeyOf) -> None:
        self._schedules = schedules
        self._key_of = key_of

    async def index(self, _request: Request) -> dict[str, Any]:
        return {"schedules": [_described(one) for one in await self._schedules.all()]}

    async def create(self, request: Request) -> dict[str, Any]:
        record = record_of(
            request.path_params["name"], await request.body(), self._schedules.clock.wall()
        )
        scope, headers = request.scope, request.headers.raw
        head = HttpRequest.received(request.method, scope["raw_path"], b"", headers)
        owner = self._key_of(head)[:OWNER_CHARS_MAX]
        return _described(await self._schedules.create(replace(record, owner=owner)))

    async def describe(self, request: Request) -> dict[str, Any]:
        count = whole_number(request.query_params.get("runs", str(_RUNS_DEFAULT)), RUNS_KEPT)
        if count is None:
            raise _invalid("runs", f"a whole number from 1 to {RUNS_KEPT}")
        record, runs = await self._schedules.describe(request.path_params["name"], count)
        return _described(record) | {"runs": [_described_run(run) for run in runs]}

    async def delete(self, request: Request) -> dict[str, Any]:
        await self._schedules.delete(request.path_params["name"])
        return {}

    async def pause(self, request: Request) -> dict[str, Any]:
        await self._schedules.pause(request.path_params["name"])
        return {}

    async def resume(self, request: Request) -> dict[str, Any]:
        await self._schedules.resume(request.path_params["name"])
        return {}

    async def run_now(self, request: Request) -> dict[str, Any]:
        return _described_run(await self._schedules.run_now(request.path_params["name"]))


def record_of(name: str, body: bytes, now: float) -> ScheduleRecord:
    """The requested schedule. Raises CallerError: `schedule-invalid`, `schedule-job-invalid`."""
    if not ENDPOINT_NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise _invalid("name", f"at most {NAME_CHARS_MAX} letters, digits and hyphens between them")
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise _invalid("body", "a JSON object") from error
    if not isinstance(given, dict):
        raise _invalid("body", "a JSON object")
    for member in given:
        if member not in _MEMBERS:
            raise _invalid(member[:64], f"none of {', '.join(_MEMBERS)}")
    job = given.get("job")
    if not isinstance(job, dict):
        raise _invalid("job", "an object of CreateTransformJob's members")
    _check_job(job)
    return ScheduleRecord(
        name=name,
        expression=_text(given, "expression", ""),
        timezone=_text(given, "time_zone", "UTC"),
        missed=_one_of(given, "missed", MISSED_RULES, RUN_ONCE),
        overlap=_one_of(given, "overlap", (False, True), False),
        paused=_one_of(given, "paused", (False, True), False),
        starts=_moment(given, "starts"),
        ends=_moment(given, "ends"),
        job=job,
        created=float(int(now)),
    )


def _check_job(job: dict[str, Any]) -> None:
    """Checks a job as CreateTransformJob would, so that a wrong member is reported at once."""
    # A name's pattern excludes placeholders: `run_template.check` checks the name.
    members = job | {"TransformJobName": "job"}
    headers = {"x-amz-target": "SageMaker.CreateTransformJob"}
    http = HttpRequest("POST", "/", "", headers, orjson.dumps(members))
    try:
        operation, params = json_rpc.parse_request(service_model(SAGEMAKER), http)
        validate.validate(operation.input_shape, params)
    except AwsError as error:
        raise CallerError(
            "schedule-job-invalid", error.message, hint="Its members are CreateTransformJob's."
        ) from error


def _text(given: dict[str, Any], member: str, default: str) -> str:
    value = given.get(member, default)
    if not isinstance(value, str):
        raise _invalid(member, "a text")
    return value


def _one_of(given: dict[str, Any], member: str, allowed: tuple[Any, ...], default: Any) -> Any:
    value = given.get(member, default)
    if not any(value is one or (isinstance(value, str) and value == one) for one in allowed):
        raise _invalid(member, " or ".join(orjson.dumps(one).decode() for one in allowed))
    return value


def _moment(given: dict[str, Any], member: str) -> float | None:
    value = given.get(member)
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= TIMESTAMP_S_MAX:  # false for NaN, too
        raise _invalid(member, "seconds since the epoch, before the year 10000")
    return float(value)


def _invalid(member: str, allowed: str) -> CallerError:
    return CallerError("schedule-invalid", f"{member} is not right", hint=f"It is {allowed}.")


def _described(record: ScheduleRecord) -> dict[str, Any]:
    members = asdict(record)
    members["time_zone"] = members.pop("timezone")
    del members["unreadable"]
    return members | {"fault": record.fault}


def _described_run(run: RunRecord) -> dict[str, Any]:
    members = asdict(run)
    del members["schedule_key"]
    return members
