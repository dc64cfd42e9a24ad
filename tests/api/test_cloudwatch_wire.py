"""CloudWatch through the front door: an unmodified boto3 client, and forms of older clients."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.api.alarm_site import ACCOUNT, client_of, query

from penstock.api.aws import AwsFrontDoor, AwsService
from penstock.api.cloudwatch.operations import OPERATIONS
from penstock.api.cloudwatch.rules import CloudWatchContext
from penstock.clock import ManualClock
from penstock.metrics.series.store import MetricStore
from penstock.wire.aws.models import CLOUDWATCH

T0 = 1_700_002_800
START = datetime.fromtimestamp(T0, UTC)


@pytest.fixture
def door() -> AwsFrontDoor:
    store, clock, no_alarms = MetricStore(), ManualClock(wall_s=T0 + 600.0), None
    service = AwsService(
        CLOUDWATCH,
        OPERATIONS,
        lambda region: CloudWatchContext(store, no_alarms, no_alarms, clock, region, ACCOUNT),  # type: ignore[arg-type]
    )
    return AwsFrontDoor((service,), region_default="us-east-1")


@pytest.fixture
def client(door: AwsFrontDoor) -> Any:
    return client_of(door)


def test_boto3_writes_and_reads(client: Any) -> None:
    client.put_metric_data(
        Namespace="Shop",
        MetricData=[
            {
                "MetricName": "Clicks",
                "Dimensions": [{"Name": "Page", "Value": f"page {number}"}],
                "Timestamp": START + timedelta(seconds=number),
                "Values": [1.0, 2.0],
                "Counts": [1.0, 2.0],
                "Unit": "Count",
            }
            for number in range(200)  # more than 10 KB, which the client compresses
        ],
    )
    page = [{"Name": "Page", "Value": "page 7"}]
    found = client.get_metric_statistics(
        Namespace="Shop",
        MetricName="Clicks",
        Dimensions=page,
        StartTime=START,
        EndTime=START + timedelta(minutes=5),
        Period=60,
        Statistics=["Sum", "SampleCount"],
    )
    assert found["Datapoints"] == [
        {"Timestamp": START, "SampleCount": 3.0, "Sum": 5.0, "Unit": "Count"}
    ]
    metric = {"Namespace": "Shop", "MetricName": "Clicks", "Dimensions": page}
    pages = client.get_paginator("get_metric_data").paginate(
        MetricDataQueries=[
            {
                "Id": "m",
                "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Maximum"},
                "ReturnData": False,
            },
            {"Id": "e", "Expression": "m * 2", "Label": "Twice"},
        ],
        StartTime=START,
        EndTime=START + timedelta(minutes=5),
    )
    (result,) = [result for page in pages for result in page["MetricDataResults"]]
    assert (result["Label"], result["Timestamps"], result["Values"]) == ("Twice", [START], [4.0])
    listed = list(client.get_paginator("list_metrics").paginate(Namespace="Shop"))
    assert [len(page["Metrics"]) for page in listed] == [200]


def test_boto3_raises_the_modelled_exceptions(client: Any) -> None:
    with pytest.raises(client.exceptions.InvalidParameterValueException) as caught:
        client.put_metric_data(Namespace="AWS/Own", MetricData=[{"MetricName": "A", "Value": 1.0}])
    assert caught.value.response["Error"]["Code"] == "InvalidParameterValue"
    with pytest.raises(client.exceptions.MissingRequiredParameterException) as caught:
        client.put_metric_data(Namespace="Shop", MetricData=[{"MetricName": "A"}])
    assert caught.value.response["Error"]["Code"] == "MissingParameter"
    with pytest.raises(client.exceptions.InvalidNextToken):
        client.get_metric_data(
            MetricDataQueries=[{"Id": "e", "Expression": "TIME_SERIES(1)"}],
            StartTime=START,
            EndTime=START + timedelta(minutes=5),
            NextToken="nonsense",
        )
    with pytest.raises(client.exceptions.ClientError) as other:
        client.get_metric_data(
            MetricDataQueries=[{"Id": "e", "Expression": "1 +"}],
            StartTime=START,
            EndTime=START + timedelta(minutes=5),
        )
    assert other.value.response["Error"]["Code"] == "ValidationError"


def test_query_clients_write_and_read(door: AwsFrontDoor) -> None:
    written = query(
        door,
        "Action=PutMetricData&Namespace=Shop&MetricData.member.1.MetricName=Clicks"
        "&MetricData.member.1.Dimensions.member.1.Name=Page"
        "&MetricData.member.1.Dimensions.member.1.Value=home"
        "&MetricData.member.1.Value=3&MetricData.member.1.Timestamp=2023-11-14T23%3A00%3A00Z",
    )
    assert (written.status, b"<PutMetricDataResponse" in written.body) == (200, True)
    read = query(
        door,
        "Action=GetMetricStatistics&Namespace=Shop&MetricName=Clicks"
        "&Dimensions.member.1.Name=Page&Dimensions.member.1.Value=home"
        "&StartTime=2023-11-14T23%3A00%3A00Z&EndTime=2023-11-14T23%3A05%3A00Z&Period=60"
        "&Statistics.member.1=Sum",
    )
    assert read.status == 200
    for part in ("<Timestamp>2023-11-14T23:00:00", "<Sum>3.0</Sum>", "<Unit>None</Unit>"):
        assert part.encode() in read.body


def test_query_errors_carry_the_short_code(door: AwsFrontDoor) -> None:
    answer = query(
        door,
        "Action=GetMetricStatistics&Namespace=Shop&MetricName=Clicks&Period=60"
        "&StartTime=2023-11-14T23%3A00%3A00Z&EndTime=2023-11-14T23%3A05%3A00Z",
    )
    assert answer.status == 400
    assert b"<Type>Sender</Type><Code>InvalidParameterCombination</Code>" in answer.body
