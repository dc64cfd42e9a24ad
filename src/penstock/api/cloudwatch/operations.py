"""The CloudWatch operations by name, for the AWS front door.

Each takes a `CloudWatchContext` and the parsed, checked parameters, and returns the result in the
service model's shape, timestamps as wall seconds. Errors are `AwsError` with CloudWatch's codes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.api.cloudwatch.alarms.change import (
    delete_alarms,
    disable_alarm_actions,
    enable_alarm_actions,
    list_tags_for_resource,
    put_composite_alarm,
    set_alarm_state,
    tag_resource,
    untag_resource,
)
from penstock.api.cloudwatch.alarms.describe import (
    describe_alarm_history,
    describe_alarms,
    describe_alarms_for_metric,
)
from penstock.api.cloudwatch.alarms.put_metric_alarm import put_metric_alarm
from penstock.api.cloudwatch.context import CloudWatchContext
from penstock.api.cloudwatch.get_metric_data import get_metric_data
from penstock.api.cloudwatch.get_metric_statistics import get_metric_statistics
from penstock.api.cloudwatch.list_metrics import list_metrics
from penstock.api.cloudwatch.put_metric_data import put_metric_data

Operation = Callable[[CloudWatchContext, dict[str, Any]], Awaitable[dict[str, Any]]]

OPERATIONS: Final[dict[str, Operation]] = {
    "PutMetricData": put_metric_data,
    "GetMetricData": get_metric_data,
    "GetMetricStatistics": get_metric_statistics,
    "ListMetrics": list_metrics,
    "PutMetricAlarm": put_metric_alarm,
    "PutCompositeAlarm": put_composite_alarm,
    "DescribeAlarms": describe_alarms,
    "DescribeAlarmsForMetric": describe_alarms_for_metric,
    "DescribeAlarmHistory": describe_alarm_history,
    "SetAlarmState": set_alarm_state,
    "EnableAlarmActions": enable_alarm_actions,
    "DisableAlarmActions": disable_alarm_actions,
    "DeleteAlarms": delete_alarms,
    "TagResource": tag_resource,
    "UntagResource": untag_resource,
    "ListTagsForResource": list_tags_for_resource,
}
