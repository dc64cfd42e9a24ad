"""PutScheduledAction, DescribeScheduledActions, DeleteScheduledAction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.api.autoscaling.context import (
    AutoscalingContext,
    check_filters,
    invalid,
    named,
    not_found,
    page,
    passes,
    target_words,
)
from penstock.api.autoscaling.targets import check_bounds
from penstock.api.aws import Members
from penstock.control.scaling import calls, loading
from penstock.control.scaling.records import (
    NoSuchScheduledAction,
    NoSuchTarget,
    ScheduledActionRecord,
)
from penstock.core.timetable.cron import CronError
from penstock.core.timetable.timetable import check_new


async def put_scheduled_action(context: AutoscalingContext, params: Members) -> Members:
    target, name = named(params), params["ScheduledActionName"]
    before = await context.call(
        params, calls.schedule_of, target.resource_id, target.dimension, name
    )
    record = _record(context, params, before, context.clock.wall())
    await context.call(params, calls.put_schedule, record)
    context.changed()
    return {}


def _record(
    context: AutoscalingContext,
    params: Members,
    before: ScheduledActionRecord | None,
    now: float,
) -> ScheduledActionRecord:
    """The record with the given members replaced. Raises ValidationException."""
    name = params["ScheduledActionName"]
    schedule = params.get("Schedule") or (before.schedule if before is not None else "")
    if not schedule:
        raise invalid("A schedule is required for a new scheduled action")
    action = params.get("ScalableTargetAction")
    if action is None and before is None:
        raise invalid("A scalable target action is required for a new scheduled action")
    low = before.capacity_min if before is not None else None
    high = before.capacity_max if before is not None else None
    if action is not None:
        low, high = action.get("MinCapacity"), action.get("MaxCapacity")
    check_bounds(low, high)
    if low is None and high is None:
        raise invalid("A scalable target action needs a minimum or a maximum capacity")
    record = ScheduledActionRecord(
        resource_id=params["ResourceId"],
        dimension=params["ScalableDimension"],
        name=name,
        arn=context.new_arn("scheduledAction", params["ResourceId"], f"scheduledActionName/{name}"),
        schedule=schedule,
        timezone=params.get("Timezone") or (before.timezone if before is not None else "UTC"),
        created=now,
        starts=params.get("StartTime", before and before.starts),
        ends=params.get("EndTime", before and before.ends),
        capacity_min=low,
        capacity_max=high,
    )
    if record.starts is not None and record.ends is not None and record.ends <= record.starts:
        raise invalid("The end time must be after the start time")
    try:
        if params.get("Schedule"):
            check_new(schedule)
        due = loading.action_of(record).timetable.next_due(after=now)
    except CronError as error:
        raise invalid(f"Invalid schedule expression. Details: {error}") from error
    if due is None:
        raise invalid(f"The schedule {schedule} never fires from now on")
    return replace(record, due=due)


async def describe_scheduled_actions(context: AutoscalingContext, params: Members) -> Members:
    check_filters(params)
    names = params.get("ScheduledActionNames")
    records = [
        one
        for one in await context.database.call(calls.schedules)
        if passes(params, one.resource_id, one.dimension) and (not names or one.name in names)
    ]
    found, rest = page(params, records, _key)
    return {"ScheduledActions": [_described(one) for one in found]} | rest


async def delete_scheduled_action(context: AutoscalingContext, params: Members) -> Members:
    try:
        await context.database.call(
            calls.delete_schedule,
            params["ResourceId"],
            params["ScalableDimension"],
            params["ScheduledActionName"],
        )
    except (NoSuchTarget, NoSuchScheduledAction) as error:
        raise not_found(
            f"No scheduled action found for {target_words(params)}, scheduled action name:"
            f" {params['ScheduledActionName']}"
        ) from error
    context.changed()
    return {}


def _key(record: ScheduledActionRecord) -> str:
    return f"{record.dimension}|{record.resource_id.lower()}|{record.name}"


def _described(record: ScheduledActionRecord) -> dict[str, Any]:
    action = {"MinCapacity": record.capacity_min, "MaxCapacity": record.capacity_max}
    described = {
        "ScheduledActionName": record.name,
        "ScheduledActionARN": record.arn,
        "ServiceNamespace": "sagemaker",
        "Schedule": record.schedule,
        "Timezone": record.timezone,
        "ResourceId": record.resource_id,
        "ScalableDimension": record.dimension,
        "StartTime": record.starts,
        "EndTime": record.ends,
        "ScalableTargetAction": {name: one for name, one in action.items() if one is not None},
        "CreationTime": record.created,
    }
    return {name: value for name, value in described.items() if value is not None}
