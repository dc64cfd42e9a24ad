"""SetAlarmState, EnableAlarmActions, DisableAlarmActions, DeleteAlarms.

TagResource, UntagResource, ListTagsForResource: for alarms, the only resources with tags here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from sqlalchemy import Connection

from penstock.api.cloudwatch.context import CloudWatchContext
from penstock.api.cloudwatch.rules import invalid_value, validation_error
from penstock.control.alarms import rows, tags
from penstock.control.store.records import TooManyTags
from penstock.control.store.rows import TAG_COUNT_MAX
from penstock.control.store.store import Store
from penstock.wire.aws.errors import AwsError


async def set_alarm_state(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    """Sets a state that lasts until the next evaluation, when the metric decides again."""
    data = params.get("StateReasonData") or ""
    if data:
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise AwsError("InvalidFormat", "Data was not syntactically valid JSON") from error
    name = params["AlarmName"]
    if not await context.alarms.set_state(name, params["StateValue"], params["StateReason"], data):
        raise _unknown([name])
    return {}


async def enable_alarm_actions(
    context: CloudWatchContext, params: dict[str, Any]
) -> dict[str, Any]:
    return await _switch(context, params, enabled=True)


async def disable_alarm_actions(
    context: CloudWatchContext, params: dict[str, Any]
) -> dict[str, Any]:
    return await _switch(context, params, enabled=False)


async def delete_alarms(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    """Deletes the alarms that exist, even if others do not."""
    names = list(params["AlarmNames"])
    removed = await context.database.call(_remove, names, context.clock.wall())
    unknown = sorted(set(names) - set(removed))
    if unknown:
        raise _unknown(unknown)
    return {}


async def put_composite_alarm(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    raise validation_error(
        "Composite alarms are not supported; make metric alarms with PutMetricAlarm, with metric "
        "math over several metrics where one is not enough."
    )


async def _switch(
    context: CloudWatchContext, params: dict[str, Any], *, enabled: bool
) -> dict[str, Any]:
    def write(store: Store) -> None:
        with store.begin() as db:
            rows.enable_actions(db, params["AlarmNames"], enabled=enabled, now=context.clock.wall())

    await context.database.call(write)
    return {}


def _remove(store: Store, names: list[str], now: float) -> list[str]:
    with store.begin() as db:
        return rows.remove(db, names, now=now)


def _unknown(names: list[str]) -> AwsError:
    return AwsError("ResourceNotFound", f"There is no alarm named {', '.join(names)}.")


async def tag_resource(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    arn, given = params["ResourceARN"], tags_of(params["Tags"])

    def write(store: Store) -> None:
        with store.begin() as db:
            _require(db, arn)
            add_tags(db, arn, given)

    await context.database.call(write)
    return {}


async def untag_resource(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    arn, names = params["ResourceARN"], params["TagKeys"]

    def write(store: Store) -> None:
        with store.begin() as db:
            _require(db, arn)
            tags.remove(db, arn, names)

    await context.database.call(write)
    return {}


async def list_tags_for_resource(
    context: CloudWatchContext, params: dict[str, Any]
) -> dict[str, Any]:
    arn = params["ResourceARN"]

    def read(store: Store) -> dict[str, str]:
        with store.read() as db:
            _require(db, arn)
            return tags.of(db, arn)

    found = await context.database.call(read)
    return {"Tags": [{"Key": name, "Value": value} for name, value in found.items()]}


def tags_of(given: Iterable[dict[str, Any]] | None) -> dict[str, str]:
    """The request's tags as a map. Raises AwsError if a key occurs twice, or there are too many."""
    found: dict[str, str] = {}
    for tag in given or ():
        if tag["Key"] in found:
            raise invalid_value(f"The tag key {tag['Key']} was given twice.")
        found[tag["Key"]] = tag["Value"]
    if len(found) > TAG_COUNT_MAX:
        raise invalid_value(f"An alarm must not have more than {TAG_COUNT_MAX} tags.")
    return found


def add_tags(db: Connection, arn: str, given: dict[str, str]) -> None:
    """Adds tags. Raises AwsError if there would be too many."""
    try:
        tags.add(db, arn, given)
    except TooManyTags as error:
        raise invalid_value(error.message) from error


def _require(db: Connection, arn: str) -> None:
    name = arn.split(":alarm:", 1)[-1]
    record = rows.get(db, name)
    if record is None or record.arn != arn:
        raise AwsError("ResourceNotFoundException", f"There is no alarm with the ARN {arn}.")
