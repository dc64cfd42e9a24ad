"""SetAlarmState, EnableAlarmActions, DisableAlarmActions, DeleteAlarms."""

from __future__ import annotations

from typing import Any

import orjson

from penstock.api.cloudwatch.context import CloudWatchContext
from penstock.api.cloudwatch.rules import validation_error
from penstock.control.alarms import rows
from penstock.control.store.store import Store
from penstock.wire.aws.errors import AwsError


async def set_alarm_state(context: CloudWatchContext, params: dict[str, Any]) -> dict[str, Any]:
    """Until the next look: the state that follows from the metric comes back then."""
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
    """Those that exist are deleted, even if others do not."""
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
