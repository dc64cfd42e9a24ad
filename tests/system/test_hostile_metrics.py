"""A real server under what strangers write into its doors for expressions: none of its answers is
an error of its own, and an alarm of somebody else enters its states meanwhile, and after a kill."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from tests.kit.hostile_expressions import EXPRESSIONS
from tests.kit.polling import wait_until
from tests.kit.servers import EXAMPLES, Server

pytestmark = [pytest.mark.system, pytest.mark.integration]

UNCHECKED = Config(retries={"total_max_attempts": 1}, read_timeout=60, parameter_validation=False)
TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/echo/variant/all",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
#: Start and end in s from now, and the period: most are none.
TIMES = (
    (-3600.0, 0.0, 60), (0.0, -3600.0, 60), (0.0, 0.0, 60), (-3600.0, 0.0, 0), (-3600.0, 0.0, -60),
    (-3600.0, 0.0, 7), (-3600.0, 0.0, 2**31 - 1), (-3600.0, 0.0, 2**40), (-6e9, 6e9, 1),
    (-6e9, 6e9, 86_400), (-6e10, 2e11, 60),
)  # fmt: skip
#: No client sends them: they are written into a form.
MOMENTS = ("1e18", "-1e18", "1e308", "1e999", "NaN", "Infinity", "-1", "0", "", "soon", "9" * 400)


class Doors:
    """Sends to all doors, and counts what they answer."""

    def __init__(self, server: Server) -> None:
        self.answers: Counter[int] = Counter()
        self.wrong: list[object] = []
        self._cloudwatch = server.client("cloudwatch", config=UNCHECKED)
        self._scaling = server.client("application-autoscaling", config=UNCHECKED)
        self._numbers = count()
        self._server = server

    def send(self, operation: Callable[..., Any], what: object, **members: Any) -> None:
        try:
            operation(**members)
            status = 200
        except ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        self.answers[status] += 1
        if status not in (200, 400):
            self.wrong.append((operation.__name__, what, status))

    def expression(self, text: str) -> None:
        self.data(queries(text), text)
        self.send(
            self._cloudwatch.put_metric_alarm,
            text,
            AlarmName=f"hostile-{next(self._numbers):04d}",
            Metrics=queries(text),
            EvaluationPeriods=2,
            Threshold=5.0,
            ComparisonOperator="GreaterThanThreshold",
        )
        self.send(
            self._scaling.put_scaling_policy,
            text,
            **TARGET,
            PolicyName=f"p{next(self._numbers) % 40}",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": 5.0,
                "CustomizedMetricSpecification": {"Metrics": queries(text, period=False)},
            },
        )

    def data(self, asked: list[dict[str, Any]], what: object, *times: float) -> None:
        now = datetime.now(UTC)
        start, end = (now + timedelta(seconds=one) for one in times or (-3600.0, 0.0))
        self.send(
            self._cloudwatch.get_metric_data,
            what,
            MetricDataQueries=asked,
            StartTime=start,
            EndTime=end,
        )

    def form(self, start: str, end: str) -> None:
        """As clients of before JSON ask for FILL(m1,0)."""
        fields = {
            "Action": "GetMetricData",
            "Version": "2010-08-01",
            "StartTime": start,
            "EndTime": end,
            "MetricDataQueries.member.1.Id": "e1",
            "MetricDataQueries.member.1.Expression": "TIME_SERIES(1)",
            "MetricDataQueries.member.1.Period": "60",
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _ = self._server.post("/", urlencode(fields).encode(), headers)
        self.answers[status] += 1
        if status not in (200, 400):
            self.wrong.append((start, end, status))


def queries(text: str, *, period: bool = True, period_s: int = 60) -> list[dict[str, Any]]:
    stat: dict[str, Any] = {"Metric": {"Namespace": "Shop", "MetricName": "Queue"}, "Stat": "Sum"}
    if period:
        stat["Period"] = period_s
    return [
        {"Id": "m1", "MetricStat": stat, "ReturnData": False},
        {"Id": "e1", "Expression": text, "ReturnData": True},
    ]


def test_hostile_expressions_are_nobodys_trouble_but_their_senders(fresh_server: Server) -> None:
    fresh_server.deploy("echo", EXAMPLES / "echo" / "python")
    client = fresh_server.client("cloudwatch")
    fresh_server.client("application-autoscaling").register_scalable_target(
        **TARGET, MinCapacity=1, MaxCapacity=1
    )
    client.put_metric_alarm(
        AlarmName="witness",
        Namespace="Shop",
        MetricName="Witness",
        Statistic="Maximum",
        Period=10,
        EvaluationPeriods=1,
        Threshold=5,
        ComparisonOperator="GreaterThanThreshold",
    )
    doors = Doors(fresh_server)
    stop = threading.Event()

    def strangers() -> None:
        while not stop.is_set():
            for text in EXPRESSIONS:
                doors.expression(text)
            for start, end, period_s in TIMES:
                doors.data(queries("FILL(m1,0)", period_s=period_s), (start, end), start, end)
            for moment in MOMENTS:
                doors.form(moment, "2026-01-01T00:00:00Z")
                doors.form("2026-01-01T00:00:00Z", moment)
            doors.data([queries("m1")[0] | {"Id": f"m{n}"} for n in range(500)], "500")
            many = [{"Id": f"e{n}", "Expression": f"e{n + 1}"} for n in range(499)]
            doors.data([*many, {"Id": "e499", "Expression": "e0"}], "a circle of 500")

    def reaches(state: str, value: float) -> None:
        def there() -> bool:
            sample = {"MetricName": "Witness", "Value": value, "StorageResolution": 1}
            client.put_metric_data(Namespace="Shop", MetricData=[sample])
            found = client.describe_alarms(AlarmNames=["witness"])["MetricAlarms"]
            return bool(found[0]["StateValue"] == state)

        wait_until(there, seconds=90, what=state)

    thread = threading.Thread(target=strangers)
    thread.start()
    try:
        reaches("ALARM", 9.0)
        reaches("OK", 1.0)
    finally:
        stop.set()
        thread.join()
    assert doors.wrong == []
    assert doors.answers[400] > len(EXPRESSIONS) < doors.answers[200]
    fresh_server.kill()  # what was taken of them is on record, and is read again
    fresh_server.start()
    reaches("ALARM", 9.0)
    metrics = fresh_server.client("cloudwatch").describe_alarms(AlarmNamePrefix="hostile-")
    assert metrics["MetricAlarms"]
    print(dict(doors.answers))
