"""The CloudWatch operations by name, for the AWS front door.

Each takes a `CloudWatchContext` and the parsed, checked parameters, and returns the result in the
service model's shape, timestamps as wall seconds. Errors are `AwsError` with CloudWatch's codes.
"""

from __future__ import annotations

from typing import Final

from penstock.api.aws import Operation
from penstock.api.cloudwatch import alarms, metrics
from penstock.api.cloudwatch.get_metric_data import get_metric_data
from penstock.api.cloudwatch.put_metric_alarm import put_metric_alarm
from penstock.api.cloudwatch.put_metric_data import put_metric_data

OPERATIONS: Final[dict[str, Operation]] = {
    "PutMetricData": put_metric_data,
    "GetMetricData": get_metric_data,
    "GetMetricStatistics": metrics.get_metric_statistics,
    "ListMetrics": metrics.list_metrics,
    "PutMetricAlarm": put_metric_alarm,
    "PutCompositeAlarm": alarms.put_composite_alarm,
    "DescribeAlarms": alarms.describe_alarms,
    "DescribeAlarmsForMetric": alarms.describe_alarms_for_metric,
    "DescribeAlarmHistory": alarms.describe_alarm_history,
    "SetAlarmState": alarms.set_alarm_state,
    "EnableAlarmActions": alarms.enable_alarm_actions,
    "DisableAlarmActions": alarms.disable_alarm_actions,
    "DeleteAlarms": alarms.delete_alarms,
    "TagResource": alarms.tag_resource,
    "UntagResource": alarms.untag_resource,
    "ListTagsForResource": alarms.list_tags_for_resource,
}
