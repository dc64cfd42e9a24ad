"""The CloudWatch operations over a store, on literal timelines."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.api.cloudwatch import get_metric_data
from penstock.api.cloudwatch.operations import OPERATIONS
from penstock.clock import ManualClock
from penstock.metrics.math.evaluate import Evaluator
from penstock.metrics.math.time_series import TimeSeries
from penstock.metrics.series.series import metric_key
from penstock.metrics.series.statistics import StatisticSet
from penstock.metrics.series.store import MetricStore, StoreLimits
from penstock.wire.aws.errors import AwsError, fault_of
from penstock.wire.aws.models import CLOUDWATCH, service_model

T0 = 1_700_002_800  # a full hour
HOUR_S, DAY_S = 3600, 86400


@dataclass
class OperationsContext:
    store: MetricStore = field(default_factory=MetricStore)
    clock: ManualClock = field(default_factory=lambda: ManualClock(wall_s=T0 + 600.0))
    region: str = "us-east-1"
    account_id: str = "123456789012"


@pytest.fixture
def context() -> OperationsContext:
    return OperationsContext()


def call(context: OperationsContext, name: str, **params: Any) -> dict[str, Any]:
    return asyncio.run(OPERATIONS[name](context, params))


def refusal(context: OperationsContext, name: str, **params: Any) -> AwsError:
    with pytest.raises(AwsError) as caught:
        call(context, name, **params)
    fault = fault_of(service_model(CLOUDWATCH), caught.value)
    assert (fault.status, fault.sender) == (400, True)
    return caught.value


def put(context: OperationsContext, *data: dict[str, Any], namespace: str = "Shop") -> None:
    assert call(context, "PutMetricData", Namespace=namespace, MetricData=list(data)) == {}


def put_minutes(
    context: OperationsContext, name: str, values: dict[int, float], **more: Any
) -> None:
    """One value in each of the given minutes after T0."""
    for minute, value in values.items():
        moment = datetime.fromtimestamp(T0 + 60 * minute, UTC)
        put(context, {"MetricName": name, "Value": value, "Timestamp": moment, **more})


def statistics(context: OperationsContext, **more: Any) -> list[dict[str, Any]]:
    params = {
        "Namespace": "Shop",
        "MetricName": "Clicks",
        "StartTime": datetime.fromtimestamp(T0, UTC),
        "EndTime": datetime.fromtimestamp(T0 + 600, UTC),
        "Period": 60,
        "Statistics": ["Sum"],
    }
    given = {name: value for name, value in (params | more).items() if value is not None}
    answer = call(context, "GetMetricStatistics", **given)
    assert answer["Label"] == "Clicks"
    return answer["Datapoints"]


# PutMetricData


def test_a_value_a_list_and_a_statistic_set_add_up(context: OperationsContext) -> None:
    at = {"MetricName": "Clicks", "Timestamp": float(T0), "Unit": "Count"}
    put(
        context,
        at | {"Value": 2.0},
        at | {"Values": [1.0, 4.0], "Counts": [3.0, 1.0]},
        at | {"StatisticValues": {"SampleCount": 2, "Sum": 15.0, "Minimum": 5.0, "Maximum": 10.0}},
    )
    names = ["SampleCount", "Sum", "Average", "Minimum", "Maximum"]
    assert statistics(context, Statistics=names) == [
        {
            "Timestamp": float(T0),
            "Unit": "Count",
            "SampleCount": 7,
            "Sum": 24.0,
            "Average": pytest.approx(24 / 7),
            "Minimum": 1.0,
            "Maximum": 10.0,
        }
    ]
    # A statistic set hides how its samples lie, so there are no percentiles any more.
    assert statistics(context, Statistics=None, ExtendedStatistics=["p50"]) == []


def test_without_a_timestamp_a_value_is_of_now_and_without_a_unit_of_none(
    context: OperationsContext,
) -> None:
    put(context, {"MetricName": "Clicks", "Value": 1.0})
    (datapoint,) = statistics(context, EndTime=float(T0 + 700))
    assert datapoint == {"Timestamp": float(T0 + 600), "Unit": "None", "Sum": 1.0}


def test_entities_are_accepted_and_their_samples_kept(context: OperationsContext) -> None:
    entity = {
        "Entity": {"KeyAttributes": {"Type": "Service"}},
        "MetricData": [{"MetricName": "Clicks", "Value": 3.0, "Timestamp": float(T0)}],
    }
    assert call(context, "PutMetricData", Namespace="Shop", EntityMetricData=[entity]) == {}
    assert [datapoint["Sum"] for datapoint in statistics(context)] == [3.0]


@pytest.mark.parametrize("namespace", ["AWS/SageMaker", "AWS/Own", "/aws/sagemaker/Endpoints"])
def test_the_platforms_namespaces_are_reserved(context: OperationsContext, namespace: str) -> None:
    error = refusal(
        context,
        "PutMetricData",
        Namespace=namespace,
        MetricData=[{"MetricName": "Clicks", "Value": 1.0}],
    )
    assert error.code == "InvalidParameterValue"
    assert f"The value {namespace} for parameter Namespace is invalid" in error.message


STATISTIC_SET = {"SampleCount": 1.0, "Sum": 1.0, "Minimum": 1.0, "Maximum": 1.0}


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        ({}, "MissingParameter", "MetricData.member.2.Value is required"),
        (
            {"Value": 1.0, "Values": [1.0]},
            "InvalidParameterValue",
            "The parameters MetricData.member.2.Value and MetricData.member.2.Values are mutually "
            "exclusive and you have specified both.",
        ),
        (
            {"Value": 1.0, "StatisticValues": STATISTIC_SET},
            "InvalidParameterCombination",
            "The parameters MetricData.member.2.Value and MetricData.member.2.StatisticValues are "
            "mutually exclusive and you have specified both.",
        ),
        ({"Value": 1.0, "Counts": [1.0]}, "InvalidParameterCombination", "Counts"),
        ({"Value": float("nan")}, "InvalidParameterValue", "Value"),
        ({"Value": float("inf")}, "InvalidParameterValue", "Value"),
        ({"Value": 2.0**361}, "InvalidParameterValue", "360"),
        ({"Values": []}, "InvalidParameterValue", "1 to 150"),
        ({"Values": [1.0] * 151}, "InvalidParameterValue", "1 to 150"),
        ({"Values": [1.0], "Counts": [1.0, 2.0]}, "InvalidParameterValue", "same size"),
        ({"Values": [1.0], "Counts": [0.0]}, "InvalidParameterValue", "Counts"),
        (
            {"StatisticValues": STATISTIC_SET | {"SampleCount": 0}},
            "InvalidParameterValue",
            "above 0",
        ),
        ({"StatisticValues": STATISTIC_SET | {"Maximum": 0}}, "InvalidParameterValue", "Minimum"),
        (
            {"Value": 1.0, "Timestamp": T0 + 600 - 14 * DAY_S - 1},
            "InvalidParameterValue",
            "MetricData.member.2.Timestamp must specify a time within the past two weeks",
        ),
        (
            {"Value": 1.0, "Timestamp": T0 + 600 + 2 * HOUR_S + 1},
            "InvalidParameterValue",
            "two hours",
        ),
        ({"Value": 1.0, "StorageResolution": 5}, "InvalidParameterValue", "must be 1 or 60"),
        (
            {
                "Value": 1.0,
                "Dimensions": [{"Name": "a", "Value": "1"}, {"Name": "a", "Value": "2"}],
            },
            "InvalidParameterValue",
            "more than once",
        ),
        (
            {"Value": 1.0, "Dimensions": [{"Name": ":a", "Value": "1"}]},
            "InvalidParameterValue",
            "':'",
        ),
        (
            {"Value": 1.0, "Dimensions": [{"Name": "a", "Value": " "}]},
            "InvalidParameterValue",
            "ASCII",
        ),
        (
            {"Value": 1.0, "Dimensions": [{"Name": f"d{n}", "Value": "1"} for n in range(31)]},
            "InvalidParameterValue",
            "greater than 30",
        ),
    ],
)
def test_one_wrong_datum_refuses_the_whole_call(
    context: OperationsContext, wrong: dict[str, Any], code: str, named: str
) -> None:
    data = [{"MetricName": "Clicks", "Value": 1.0}, {"MetricName": "Clicks"} | wrong]
    error = refusal(context, "PutMetricData", Namespace="Shop", MetricData=data)
    assert error.code == code
    assert named in error.message
    assert len(context.store) == 0


def test_values_may_come_with_their_statistics(context: OperationsContext) -> None:
    """The service takes both; the values are what is kept: percentiles need them."""
    put(context, {"MetricName": "Clicks", "Values": [1.0, 3.0], "StatisticValues": STATISTIC_SET})
    (found,) = statistics(context, EndTime=float(T0 + 900))
    assert found["Sum"] == 4.0


def test_a_call_holds_a_thousand_metrics_and_not_none(context: OperationsContext) -> None:
    data = [{"MetricName": f"M{n}", "Value": 1.0} for n in range(1001)]
    assert (
        refusal(context, "PutMetricData", Namespace="Shop", MetricData=data).code
        == "InvalidParameterValue"
    )
    assert refusal(context, "PutMetricData", Namespace="Shop").code == "MissingParameter"
    put(context, *data[:1000])
    assert len(context.store) == 1000


def test_a_full_store_refuses_with_a_limit() -> None:
    context = OperationsContext(store=MetricStore(StoreLimits(series_max=1)))
    put(context, {"MetricName": "Clicks", "Value": 1.0})
    data = [{"MetricName": "Other", "Value": 1.0}]
    error = refusal(context, "PutMetricData", Namespace="Shop", MetricData=data)
    assert error.code == "LimitExceeded"


# GetMetricStatistics


def test_percentiles_come_under_the_names_asked_for(context: OperationsContext) -> None:
    put(
        context,
        {
            "MetricName": "Clicks",
            "Timestamp": float(T0),
            "Values": [float(n) for n in range(1, 101)],
        },
    )
    (datapoint,) = statistics(
        context, Statistics=None, ExtendedStatistics=["p50", "p99.9", "tm90", "PR(:50)"]
    )
    assert datapoint["ExtendedStatistics"] == {
        "p50": pytest.approx(50, rel=0.02),
        "p99.9": pytest.approx(99, rel=0.02),
        "tm90": pytest.approx(45.5, rel=0.02),
        "PR(:50)": pytest.approx(50, rel=0.02),
    }


def test_each_unit_has_its_own_datapoints(context: OperationsContext) -> None:
    put_minutes(context, "Clicks", {0: 1.0}, Unit="Seconds")
    put_minutes(context, "Clicks", {0: 2.0}, Unit="Milliseconds")
    found = [(datapoint["Unit"], datapoint["Sum"]) for datapoint in statistics(context)]
    assert found == [("Milliseconds", 2.0), ("Seconds", 1.0)]
    assert [d["Sum"] for d in statistics(context, Unit="Seconds")] == [1.0]
    assert statistics(context, Unit="Bytes") == []


def test_dimensions_must_match_exactly(context: OperationsContext) -> None:
    page = {"Name": "Page", "Value": "search"}
    host = {"Name": "Host", "Value": "a"}
    put_minutes(context, "Clicks", {0: 1.0}, Dimensions=[page, host])
    assert len(statistics(context, Dimensions=[host, page])) == 1
    assert statistics(context, Dimensions=[host]) == []
    assert statistics(context) == []


def test_periods_are_whole_and_the_end_is_open(context: OperationsContext) -> None:
    put_minutes(context, "Clicks", {0: 1.0, 1: 2.0, 5: 4.0, 9: 8.0, 10: 16.0})
    found = statistics(context, StartTime=float(T0 + 90), Period=300)
    assert [(d["Timestamp"] - T0, d["Sum"]) for d in found] == [(0, 3.0), (300, 12.0)]


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        ({"Statistics": None}, "InvalidParameterCombination", "Must specify either Statistics or"),
        ({"ExtendedStatistics": ["p99"]}, "InvalidParameterCombination", "mutually exclusive"),
        (
            {"Statistics": None, "ExtendedStatistics": ["p101"]},
            "InvalidParameterValue",
            "'p101' is not a statistic",
        ),
        ({"Period": 45}, "InvalidParameterValue", "multiple of 60"),
        ({"Period": 0}, "InvalidParameterValue", "multiple of 60"),
        ({"EndTime": float(T0)}, "InvalidParameterValue", "StartTime must be less than"),
        ({"EndTime": T0 + 0.9}, "InvalidParameterValue", "StartTime must be less than"),
        (
            {"EndTime": float(T0 + 1441 * 60)},
            "InvalidParameterCombination",
            "You have requested up to 1,441 datapoints, which exceeds the limit of 1,440.",
        ),
    ],
)
def test_what_statistics_refuse(
    context: OperationsContext, wrong: dict[str, Any], code: str, named: str
) -> None:
    with pytest.raises(AwsError) as caught:
        statistics(context, **wrong)
    assert caught.value.code == code
    assert named in caught.value.message


# GetMetricData


def stat(query_id: str, name: str, **more: Any) -> dict[str, Any]:
    metric = {"Namespace": "Shop", "MetricName": name, "Dimensions": more.pop("Dimensions", [])}
    inner = {"Metric": metric, "Period": 60, "Stat": "Sum"}
    inner |= {key: more.pop(key) for key in ("Period", "Stat", "Unit") if key in more}
    return {"Id": query_id, "MetricStat": inner, **more}


def data(context: OperationsContext, *queries: dict[str, Any], **more: Any) -> dict[str, Any]:
    params = {
        "StartTime": datetime.fromtimestamp(T0, UTC),
        "EndTime": datetime.fromtimestamp(T0 + 300, UTC),
        "ScanBy": "TimestampAscending",
    }
    return call(context, "GetMetricData", **(params | {"MetricDataQueries": list(queries)} | more))


def rows(answer: dict[str, Any]) -> list[tuple[str, list[tuple[float, float]]]]:
    return [
        (
            result["Id"],
            [
                ((at - T0) / 60, value)
                for at, value in zip(result["Timestamps"], result["Values"], strict=True)
            ],
        )
        for result in answer["MetricDataResults"]
    ]


def test_metrics_and_math_in_one_call(context: OperationsContext) -> None:
    put_minutes(context, "Clicks", {0: 10.0, 1: 20.0, 3: 40.0})
    put_minutes(context, "Orders", {0: 1.0, 3: 8.0})
    answer = data(
        context,
        stat("clicks", "Clicks", ReturnData=False),
        stat("orders", "Orders", Label="Bought"),
        {"Id": "share", "Expression": "100 * FILL(orders, 0) / clicks", "Label": "Share"},
    )
    assert answer["MetricDataResults"] == [
        {
            "Id": "orders",
            "Label": "Bought",
            "Timestamps": [float(T0), float(T0 + 180)],
            "Values": [1.0, 8.0],
            "StatusCode": "Complete",
        },
        {
            "Id": "share",
            "Label": "Share",
            "Timestamps": [float(T0), float(T0 + 60), float(T0 + 180)],
            "Values": [10.0, 0.0, 20.0],
            "StatusCode": "Complete",
        },
    ]
    assert answer["Messages"] == []


def test_the_newest_come_first_unless_asked_otherwise(context: OperationsContext) -> None:
    put_minutes(context, "Clicks", {0: 1.0, 1: 2.0})
    assert rows(data(context, stat("m", "Clicks"), ScanBy=None)) == [("m", [(1, 2.0), (0, 1.0)])]


def test_a_metric_without_data_has_an_empty_result(context: OperationsContext) -> None:
    assert rows(data(context, stat("m", "Nothing"))) == [("m", [])]


def test_units_are_read_together_unless_one_is_named(context: OperationsContext) -> None:
    put_minutes(context, "Clicks", {0: 1.0}, Unit="Count")
    put_minutes(context, "Clicks", {0: 2.0}, Unit="None")
    assert rows(data(context, stat("m", "Clicks"))) == [("m", [(0, 3.0)])]
    assert rows(data(context, stat("m", "Clicks", Unit="Count"))) == [("m", [(0, 1.0)])]


def test_percentiles_of_high_resolution_metrics(context: OperationsContext) -> None:
    for second in range(30):
        put(
            context,
            {
                "MetricName": "Wait",
                "Value": float(second),
                "Timestamp": T0 + second,
                "StorageResolution": 1,
            },
        )
    answer = data(context, stat("m", "Wait", Period=10, Stat="p90"))
    assert answer["MetricDataResults"][0]["Values"] == pytest.approx([8, 18, 28], rel=0.02)
    assert answer["MetricDataResults"][0]["Timestamps"] == [T0, T0 + 10, T0 + 20]


def test_pages_hold_as_many_datapoints_as_asked_and_lose_none(context: OperationsContext) -> None:
    put_minutes(context, "Clicks", {0: 1.0, 1: 2.0, 2: 3.0})
    put_minutes(context, "Orders", {0: 4.0, 1: 5.0})
    queries = [stat("a", "Clicks"), stat("none", "Nothing"), stat("b", "Orders")]
    pages, token = [], None
    while not pages or token:
        more = {"NextToken": token} if token else {}
        answer = data(context, *queries, MaxDatapoints=2, **more)
        pages.append(
            [(i, points, r["StatusCode"]) for (i, points), r in
             zip(rows(answer), answer["MetricDataResults"], strict=True)]
        )  # fmt: skip
        token = answer.get("NextToken")
        put_minutes(context, "Clicks", {0: 0.0})  # a write in between changes no place
    assert pages == [
        [("a", [(0, 1.0), (1, 2.0)], "PartialData")],
        [("a", [(2, 3.0)], "Complete"), ("none", [], "Complete"), ("b", [(0, 4.0)], "PartialData")],
        [("b", [(1, 5.0)], "Complete")],
    ]


def test_a_token_belongs_to_its_request(context: OperationsContext) -> None:
    put_minutes(context, "Clicks", {0: 1.0, 1: 2.0})
    token = data(context, stat("m", "Clicks"), MaxDatapoints=1)["NextToken"]
    for wrong in ({"MaxDatapoints": 2, "NextToken": token}, {"NextToken": "x"}):
        with pytest.raises(AwsError) as caught:
            data(context, stat("m", "Clicks"), **wrong)
        assert caught.value.code == "InvalidNextToken"


def test_search_gives_a_result_for_each_metric_found(context: OperationsContext) -> None:
    for page in ("search", "home"):
        put_minutes(context, "Clicks", {0: 1.0}, Dimensions=[{"Name": "Page", "Value": page}])
    query = {"Id": "e", "Expression": "SEARCH('{Shop,Page} Clicks', 'Sum', 60)"}
    answer = data(context, query)
    assert rows(answer) == [("e", [(0, 1.0)]), ("e", [(0, 1.0)])]
    labels = [result["Label"] for result in answer["MetricDataResults"]]
    assert labels == ["home Clicks", "search Clicks"]
    total = {"Id": "e", "Expression": "SUM(SEARCH('{Shop,Page} Clicks', 'Sum', 60))"}
    assert rows(data(context, total)) == [("e", [(0, 2.0)])]


def test_formulas_are_evaluated_beside_the_loop(
    context: OperationsContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of formulas over what one SEARCH finds take a second: others go on."""
    threads = set()

    class ThreadNotingEvaluator(Evaluator):
        def series_of(self, query_id: str) -> list[TimeSeries]:
            threads.add(threading.get_ident())
            return super().series_of(query_id)

    monkeypatch.setattr(get_metric_data, "Evaluator", ThreadNotingEvaluator)
    put_minutes(context, "Clicks", {0: 1.0})
    answer = data(context, {"Id": "e", "Expression": "SEARCH('{Shop} Clicks', 'Sum', 60)"})
    assert rows(answer) == [("e", [(0, 1.0)])]
    assert threads
    assert threading.get_ident() not in threads


def test_a_wide_search_says_that_it_left_some_out(context: OperationsContext) -> None:
    put(context, *({"MetricName": f"M{n}", "Value": 1.0} for n in range(101)))
    answer = data(context, {"Id": "e", "Expression": "SEARCH('{Shop} M', 'Sum', 60)"})
    assert len(answer["MetricDataResults"]) == 100
    assert answer["Messages"][0]["Code"] == "MaxMetricsExceeded"


def test_a_long_range_reads_all_that_is_kept(context: OperationsContext) -> None:
    """From 1970 to the far future, a second at a time: what can hold nothing is not looked at."""
    for second in range(0, 3 * HOUR_S - 60, 60):
        at = T0 + 600 - second
        context.store.put(
            metric_key("Shop", "Clicks", {}),
            at,
            StatisticSet.of(1.0),
            now=T0 + 600,
            high_resolution=True,
        )
    answer = data(context, stat("m", "Clicks", Period=1), StartTime=0.0, EndTime=253_402_300_799.0)
    assert len(answer["MetricDataResults"][0]["Values"]) == 179


@pytest.mark.parametrize(
    ("queries", "named"),
    [
        ([], "from 1 to 500"),
        ([stat("m", "A"), stat("m", "B")], "unique"),
        ([stat("M", "A")], "lowercase"),
        ([{"Id": "m"}], "Exactly one"),
        ([stat("m", "A", Expression="1")], "Exactly one"),
        ([stat("m", "A", ReturnData=False)], "ReturnData"),
        ([stat("m", "A", Period=45)], "multiple of 60"),
        ([stat("m", "A", Stat="median")], "'median' is not a statistic"),
        ([{"Id": "e", "Expression": "m1 +"}], "Invalid metrics expression"),
        ([{"Id": "e", "Expression": "m1"}], "'m1' is neither"),
        ([{"Id": "e", "Expression": "e"}], "refers to itself"),
        ([{"Id": "e", "Expression": "1 + 1"}], "time series"),
        ([{"Id": "e", "Expression": "SEARCH('x', 'Sum', 7)"}], "multiple of 60"),
        ([{"Id": "e", "Expression": "SEARCH('x', 'median')"}], "'median' is not a statistic"),
        (
            [{"Id": f"e{n}", "Expression": f"SEARCH('x{n}', 'Sum')"} for n in range(6)],
            "5 different SEARCH",
        ),
    ],
)
def test_what_metric_data_refuses(
    context: OperationsContext, queries: list[dict[str, Any]], named: str
) -> None:
    with pytest.raises(AwsError) as caught:
        data(context, *queries)
    assert caught.value.code == "ValidationError"
    assert named in caught.value.message


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"MaxDatapoints": -1}, "MaxDatapoints"),
        ({"MaxDatapoints": 100_801}, "MaxDatapoints"),
        ({"EndTime": 0.0}, "The parameter EndTime must be greater than StartTime."),
        ({"EndTime": T0}, "The parameter StartTime must not equal parameter EndTime."),
        ({"EndTime": T0 + 0.9}, "The parameter StartTime must not equal parameter EndTime."),
    ],
)
def test_bad_bounds_of_metric_data(
    context: OperationsContext, wrong: dict[str, Any], named: str
) -> None:
    with pytest.raises(AwsError) as caught:
        data(context, stat("m", "A"), **wrong)
    assert caught.value.code == "ValidationError"
    assert named in caught.value.message


def test_a_label_names_the_statistic_where_one_metric_is_asked_for_several(
    context: OperationsContext,
) -> None:
    page = {"Name": "Page", "Value": "home"}
    answer = data(
        context,
        stat("a", "Clicks", Stat="Sum"),
        stat("b", "Clicks", Stat="p99"),
        stat("c", "Clicks", Stat="Average", Label="Mine"),
        stat("d", "Clicks", Stat="Sum", Dimensions=[page]),
        stat("e", "Orders", Stat="Sum"),
        stat("f", "Orders", Stat="Sum", Period=300),
    )
    labels = [result["Label"] for result in answer["MetricDataResults"]]
    assert labels == ["Clicks Sum", "Clicks p99", "Mine", "Clicks", "Orders", "Orders"]


# ListMetrics


def listed(context: OperationsContext, **params: Any) -> list[str]:
    answer = call(context, "ListMetrics", **params)
    return [
        "/".join([m["Namespace"], m["MetricName"], *(d["Value"] for d in m["Dimensions"])])
        for m in answer["Metrics"]
    ]


def test_metrics_are_filtered_by_every_condition(context: OperationsContext) -> None:
    page, host = {"Name": "Page", "Value": "home"}, {"Name": "Host", "Value": "a"}
    put(
        context,
        {"MetricName": "Clicks", "Value": 1.0, "Dimensions": [page]},
        {"MetricName": "Clicks", "Value": 1.0, "Dimensions": [page, host], "Unit": "Count"},
        {"MetricName": "Clicks", "Value": 1.0, "Dimensions": [page, host], "Unit": "Bytes"},
        {"MetricName": "Orders", "Value": 1.0},
    )
    put(context, {"MetricName": "Orders", "Value": 1.0}, namespace="Other")
    everything = ["Other/Orders", "Shop/Clicks/a/home", "Shop/Clicks/home", "Shop/Orders"]
    assert listed(context) == everything
    assert listed(context, Namespace="Other") == everything[:1]
    assert listed(context, MetricName="Orders") == ["Other/Orders", "Shop/Orders"]
    assert listed(context, Dimensions=[{"Name": "Page"}]) == everything[1:3]
    assert listed(context, Dimensions=[{"Name": "Page"}, host]) == everything[1:2]
    assert listed(context, Dimensions=[{"Name": "Host", "Value": "b"}]) == []


def test_metrics_are_listed_for_two_weeks_and_recent_ones_for_three_hours(
    context: OperationsContext,
) -> None:
    put(context, {"MetricName": "Clicks", "Value": 1.0})
    context.clock.advance(4 * HOUR_S)
    assert listed(context) == ["Shop/Clicks"]
    assert listed(context, RecentlyActive="PT3H") == []
    context.clock.advance(14 * DAY_S)
    assert listed(context) == []


def test_five_hundred_metrics_fill_a_page(context: OperationsContext) -> None:
    put(context, *({"MetricName": f"M{n:04}", "Value": 1.0} for n in range(1000)))
    first = call(context, "ListMetrics", Namespace="Shop")
    assert len(first["Metrics"]) == 500
    second = call(context, "ListMetrics", Namespace="Shop", NextToken=first["NextToken"])
    assert second["Metrics"][0]["MetricName"] == "M0500"
    assert len(second["Metrics"]) == 500
    assert "NextToken" not in second


def test_a_token_of_another_listing_is_refused(context: OperationsContext) -> None:
    put(context, *({"MetricName": f"M{n:04}", "Value": 1.0} for n in range(501)))
    token = call(context, "ListMetrics")["NextToken"]
    error = refusal(context, "ListMetrics", Namespace="Shop", NextToken=token)
    assert error.code == "InvalidParameterValue"
