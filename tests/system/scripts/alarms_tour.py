"""Alarms by an unmodified boto3 of any version: make, wait, tag, set, read, fail, delete.

Run by tests/system/test_alarms.py in the client's own environment: alarms_tour.py URL NAME. Prints
one JSON object of what it saw.
"""

import json
import sys
import time

import boto3
from botocore.exceptions import ClientError

url, name = sys.argv[1:3]
cloudwatch = boto3.client(
    "cloudwatch",
    endpoint_url=url,
    region_name="us-east-1",
    aws_access_key_id="none",
    aws_secret_access_key="none",
)
topic = "arn:aws:sns:us-east-1:123456789012:on-call"
seen = {}


def plain(alarm, **more):
    members = {
        "AlarmName": alarm,
        "Namespace": "Tour",
        "MetricName": "Queue",
        "Dimensions": [{"Name": "Client", "Value": name}],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 3,
        "DatapointsToAlarm": 2,
        "Threshold": 5.5,
        "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        "TreatMissingData": "ignore",  # what is set stays: nothing ever arrives
        "AlarmActions": [topic],
        "OKActions": [],
    }
    cloudwatch.put_metric_alarm(**{**members, **more})


def code_of(call, **members):
    try:
        call(**members)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


plain(name, Tags=[{"Key": "team", "Value": "search"}])
cloudwatch.get_waiter("alarm_exists").wait(
    AlarmNames=[name], WaiterConfig={"Delay": 1, "MaxAttempts": 3}
)
(alarm,) = cloudwatch.describe_alarms(AlarmNamePrefix=name)["MetricAlarms"]
shown = ("AlarmArn", "Period", "Threshold", "DatapointsToAlarm", "Dimensions", "AlarmActions")
seen["shown"] = {key: alarm[key] for key in shown}
seen["is_recent"] = abs(alarm["StateUpdatedTimestamp"].timestamp() - time.time()) < 600
cloudwatch.put_metric_alarm(
    AlarmName=f"{name}-math",
    Metrics=[
        {
            "Id": "m1",
            "MetricStat": {
                "Metric": {"Namespace": "Tour", "MetricName": "Queue"},
                "Period": 60,
                "Stat": "p99",
            },
            "ReturnData": False,
        },
        {"Id": "e1", "Expression": "m1 * 2", "Label": "twice"},
    ],
    EvaluationPeriods=1,
    Threshold=1,
    ComparisonOperator="LessThanThreshold",
    TreatMissingData="ignore",
)
(math,) = cloudwatch.describe_alarms(AlarmNames=[f"{name}-math"])["MetricAlarms"]
seen["math"] = [query.get("Expression") or query["MetricStat"]["Stat"] for query in math["Metrics"]]
arn = alarm["AlarmArn"]
cloudwatch.tag_resource(ResourceARN=arn, Tags=[{"Key": "cost", "Value": "7"}])
cloudwatch.untag_resource(ResourceARN=arn, TagKeys=["team"])
seen["tags"] = cloudwatch.list_tags_for_resource(ResourceARN=arn)["Tags"]
cloudwatch.disable_alarm_actions(AlarmNames=[name])
cloudwatch.enable_alarm_actions(AlarmNames=[name])
cloudwatch.set_alarm_state(
    AlarmName=name, StateValue="ALARM", StateReason="a drill", StateReasonData='{"drill":1}'
)
seen["metric"] = [
    found["AlarmName"]
    for found in cloudwatch.describe_alarms_for_metric(
        Namespace="Tour", MetricName="Queue", Dimensions=[{"Name": "Client", "Value": name}]
    )["MetricAlarms"]
]
pages = cloudwatch.get_paginator("describe_alarm_history").paginate(
    AlarmName=name, PaginationConfig={"PageSize": 2}
)
seen["history"] = [
    item["HistorySummary"].partition(". Error")[0]
    for page in pages
    for item in page["AlarmHistoryItems"]
][::-1]
seen["errors"] = [
    code_of(cloudwatch.put_composite_alarm, AlarmName="c", AlarmRule=f"ALARM({name})"),
    code_of(cloudwatch.set_alarm_state, AlarmName="?", StateValue="OK", StateReason="?"),
    code_of(
        cloudwatch.set_alarm_state,
        AlarmName=name,
        StateValue="OK",
        StateReason="?",
        StateReasonData="{",
    ),
    code_of(plain, alarm="bad", Period=61),
    code_of(plain, alarm="bad", ExtendedStatistic="p99"),
    code_of(cloudwatch.delete_alarms, AlarmNames=[name, f"{name}-math", "?"]),
]
seen["left"] = cloudwatch.describe_alarms(AlarmNamePrefix=name)["MetricAlarms"]
print(json.dumps(seen))
