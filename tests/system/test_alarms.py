"""Alarms of a real server, by unmodified clients, and over a kill."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.kit.polling import wait_until
from tests.kit.servers import Server
from tests.system.test_clients import client_python, tour

pytestmark = [pytest.mark.system, pytest.mark.integration]

TOPIC = "arn:aws:sns:us-east-1:123456789012:on-call"


@pytest.mark.parametrize("version", ["boto3-oldest", "boto3-newest"])
def test_boto3_makes_reads_and_deletes_alarms(server: Server, version: str) -> None:
    name = f"tour-{version}"
    assert tour(client_python(version), "alarms_tour.py", server.url, name) == {
        "shown": {
            "AlarmArn": f"arn:aws:cloudwatch:us-east-1:123456789012:alarm:{name}",
            "Period": 60,
            "Threshold": 5.5,
            "DatapointsToAlarm": 2,
            "Dimensions": [{"Name": "Client", "Value": name}],
            "AlarmActions": [TOPIC],
        },
        "is_recent": True,
        "math": ["p99", "m1 * 2"],
        "tags": [{"Key": "cost", "Value": "7"}],
        "metric": [name],
        "history": [
            f'Alarm "{name}" created',
            f'Alarm "{name}" updated',
            f'Alarm "{name}" updated',
            "Alarm updated from INSUFFICIENT_DATA to ALARM",
            f"Failed to execute action {TOPIC}",
        ],
        "errors": [
            "ValidationError",
            "ResourceNotFound",
            "InvalidFormat",
            "ValidationError",
            "InvalidParameterCombination",
            "ResourceNotFound",
        ],
        "left": [],
    }


def test_a_kill_neither_loses_a_state_nor_enters_it_twice(fresh_server: Server) -> None:
    """The sample is lost with the server, and the alarm stays what it was until the next one."""
    client = fresh_server.client("cloudwatch")
    client.put_metric_alarm(
        AlarmName="busy",
        Namespace="Shop",
        MetricName="Queue",
        Statistic="Average",
        Period=10,
        EvaluationPeriods=3,
        DatapointsToAlarm=1,
        Threshold=5,
        ComparisonOperator="GreaterThanThreshold",
        AlarmActions=[TOPIC],
    )

    def shown() -> Any:
        return client.describe_alarms(AlarmNames=["busy"])["MetricAlarms"][0]

    def told() -> list[str]:
        items = client.describe_alarm_history(AlarmName="busy", ScanBy="TimestampAscending")
        return [item["HistorySummary"] for item in items["AlarmHistoryItems"]]

    def reaches(state: str, value: float) -> Any:
        sample = {"MetricName": "Queue", "Value": value, "StorageResolution": 1}
        client.put_metric_data(Namespace="Shop", MetricData=[sample])
        return wait_until(lambda: shown() if shown()["StateValue"] == state else None, state, 90)

    started = datetime.now(UTC)
    alarm = reaches("ALARM", 9.0)
    assert alarm["StateUpdatedTimestamp"] > started
    before = [
        'Alarm "busy" created',
        "Alarm updated from INSUFFICIENT_DATA to ALARM",
        f"Failed to execute action {TOPIC}. Error: This server has no target for such an action.",
    ]
    wait_until(lambda: told() == before, "the action's history", 30)
    fresh_server.kill()
    fresh_server.start()
    assert shown() == alarm
    assert told() == before
    assert [
        (row["alarm"], row["state"]) for row in fresh_server.get("/admin/alarms")["alarms"]
    ] in (
        [],  # not yet read back
        [("busy", "ALARM")],
    )
    reaches("OK", 1.0)
    assert told() == [*before, "Alarm updated from ALARM to OK"]
