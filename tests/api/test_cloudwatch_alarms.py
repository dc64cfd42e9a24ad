"""The operations on alarms, by an unmodified boto3, and by forms of older clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from tests.kit.alarms import ACCOUNT, T0, AlarmSite

from penstock.api.cloudwatch import put_metric_alarm
from penstock.control.alarms import rows
from penstock.control.store.rows import TAG_COUNT_MAX
from penstock.control.store.store import Store

POLICY = (
    f"arn:aws:autoscaling:eu-central-1:{ACCOUNT}:scalingPolicy:1:"
    "resource/sagemaker/endpoint/e/variant/v:policyName/p"
)
TOPIC = f"arn:aws:sns:eu-central-1:{ACCOUNT}:on-call"


def arn(name: str) -> str:
    return f"arn:aws:cloudwatch:eu-central-1:{ACCOUNT}:alarm:{name}"


def plain(name: str = "busy", **members: Any) -> dict[str, Any]:
    """PutMetricAlarm of a plain metric; members that are None are left out."""
    made: dict[str, Any] = {
        "AlarmName": name,
        "Namespace": "Shop",
        "MetricName": "Queue",
        "Dimensions": [{"Name": "Zone", "Value": "1"}, {"Name": "Host", "Value": "a"}],
        "Statistic": "Average",
        "Period": 10,
        "EvaluationPeriods": 2,
        "Threshold": 5,
        "ComparisonOperator": "GreaterThanThreshold",
    }
    return {key: value for key, value in (made | members).items() if value is not None}


def math(expression: str = "m1 / m2", **members: Any) -> dict[str, Any]:
    """The same of math over two metrics."""
    stats = [
        {
            "Id": key,
            "MetricStat": {
                "Metric": {"Namespace": "Shop", "MetricName": name},
                "Period": 60,
                "Stat": "Sum",
            },
            "ReturnData": False,
        }
        for key, name in (("m1", "Waiting"), ("m2", "Copies"))
    ]
    queries = [*stats, {"Id": "e1", "Expression": expression, "Label": "per copy"}]
    none = ("Namespace", "MetricName", "Dimensions", "Statistic", "Period")
    return plain(**(dict.fromkeys(none) | {"Metrics": queries} | members))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[AlarmSite]:
    made = AlarmSite(tmp_path / "state")
    yield made
    made.close()


@pytest.fixture
def client(site: AlarmSite) -> Any:
    return site.client()


def names(client: Any, **filters: Any) -> list[str]:
    found = client.describe_alarms(**filters)["MetricAlarms"]
    return [alarm["AlarmName"] for alarm in found]


def samples(client: Any, *values: float) -> None:
    """One in each ten seconds from T0 on."""
    client.put_metric_data(
        Namespace="Shop",
        MetricData=[
            {
                "MetricName": "Queue",
                "Dimensions": [{"Name": "Host", "Value": "a"}, {"Name": "Zone", "Value": "1"}],
                "Timestamp": datetime.fromtimestamp(T0 + 10 * number, UTC),
                "Value": value,
                "StorageResolution": 1,
            }
            for number, value in enumerate(values)
        ],
    )


def test_an_alarm_is_shown_as_it_was_put(client: Any) -> None:
    client.put_metric_alarm(
        **plain(
            AlarmDescription="too many wait",
            AlarmActions=[POLICY, TOPIC],
            OKActions=["https://example.org/hook"],
            Unit="Count",
            DatapointsToAlarm=1,
            TreatMissingData="notBreaching",
        )
    )
    (alarm,) = client.describe_alarms()["MetricAlarms"]
    moment = datetime.fromtimestamp(T0, UTC)
    assert alarm == {
        "AlarmName": "busy",
        "AlarmArn": arn("busy"),
        "AlarmDescription": "too many wait",
        "AlarmConfigurationUpdatedTimestamp": moment,
        "ActionsEnabled": True,
        "OKActions": ["https://example.org/hook"],
        "AlarmActions": [POLICY, TOPIC],
        "InsufficientDataActions": [],
        "StateValue": "INSUFFICIENT_DATA",
        "StateReason": "Unchecked: Initial alarm creation",
        "StateUpdatedTimestamp": moment,
        "StateTransitionedTimestamp": moment,
        "MetricName": "Queue",
        "Namespace": "Shop",
        "Statistic": "Average",
        "Dimensions": [{"Name": "Host", "Value": "a"}, {"Name": "Zone", "Value": "1"}],
        "Period": 10,
        "Unit": "Count",
        "EvaluationPeriods": 2,
        "DatapointsToAlarm": 1,
        "Threshold": 5.0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
    }


def test_what_was_left_out_is_not_shown(client: Any) -> None:
    """Tools that compare their wish with what is shown would else see a difference for ever."""
    client.put_metric_alarm(**plain())
    (alarm,) = client.describe_alarms()["MetricAlarms"]
    left_out = {"DatapointsToAlarm", "TreatMissingData", "AlarmDescription", "Unit"}
    assert left_out & set(alarm) == set()


def test_math_and_percentiles_are_shown_as_they_were_put(client: Any) -> None:
    wanted = math()
    client.put_metric_alarm(**wanted)
    client.put_metric_alarm(
        **plain(
            "slow",
            Statistic=None,
            ExtendedStatistic="p99.9",
            EvaluateLowSampleCountPercentile="ignore",
        )
    )
    shown, slow = client.describe_alarms()["MetricAlarms"]
    queries = [query | {"ReturnData": query["Id"] == "e1"} for query in wanted["Metrics"]]
    for query in queries[:2]:
        query["MetricStat"]["Metric"]["Dimensions"] = []
    assert shown["Metrics"] == queries
    assert {"MetricName", "Statistic", "Period", "Dimensions"} & set(shown) == set()
    assert slow["ExtendedStatistic"] == "p99.9"
    assert slow["EvaluateLowSampleCountPercentile"] == "ignore"
    assert "Statistic" not in slow


def test_the_waiter_sees_that_an_alarm_exists(client: Any) -> None:
    client.put_metric_alarm(**plain())
    client.get_waiter("alarm_exists").wait(
        AlarmNames=["busy"], WaiterConfig={"Delay": 1, "MaxAttempts": 1}
    )


def test_an_alarm_fires_tells_its_history_and_comes_back(site: AlarmSite, client: Any) -> None:
    client.put_metric_alarm(**plain(AlarmActions=[POLICY], OKActions=[TOPIC]))
    samples(client, 1.0, 9.0, 9.0, 9.0, 1.0)
    site.until(35)
    (alarm,) = client.describe_alarms(StateValue="ALARM")["MetricAlarms"]
    assert alarm["StateUpdatedTimestamp"] == datetime.fromtimestamp(T0 + 32, UTC)
    assert alarm["StateReason"] == (
        "Threshold Crossed: 2 out of the last 2 datapoints [9.0 (14/11/23 22:14:20), 9.0 "
        "(14/11/23 22:14:10)] were greater than the threshold (5.0) (minimum 2 datapoints for "
        "OK -> ALARM transition)."
    )
    assert json.loads(alarm["StateReasonData"])["recentDatapoints"] == [9.0, 9.0]
    assert [(one.arn, one.action, one.state, one.values) for one in site.fired] == [
        (arn("busy"), POLICY, "ALARM", (9.0, 9.0))
    ]
    site.until(55)
    told = client.describe_alarm_history(AlarmName="busy", ScanBy="TimestampAscending")
    items = told["AlarmHistoryItems"]
    assert [(one["HistoryItemType"], one["HistorySummary"]) for one in items] == [
        ("ConfigurationUpdate", 'Alarm "busy" created'),
        ("StateUpdate", "Alarm updated from INSUFFICIENT_DATA to OK"),
        ("Action", f"Failed to execute action {TOPIC}. Error: This server has no target for such"
                   " an action."),
        ("StateUpdate", "Alarm updated from OK to ALARM"),
        ("Action", f"Successfully executed action {POLICY}"),
        ("StateUpdate", "Alarm updated from ALARM to OK"),
        ("Action", f"Failed to execute action {TOPIC}. Error: This server has no target for such"
                   " an action."),
    ]  # fmt: skip
    update = json.loads(items[3]["HistoryData"])
    assert (update["oldState"]["stateValue"], update["newState"]["stateValue"]) == ("OK", "ALARM")
    assert update["newState"]["stateReasonData"]["threshold"] == 5.0


def test_history_in_pages_by_kind_and_time(site: AlarmSite, client: Any) -> None:
    client.put_metric_alarm(**plain("a"))
    site.until(10)
    client.put_metric_alarm(**plain("b"))
    client.set_alarm_state(AlarmName="b", StateValue="OK", StateReason="set")
    pages = client.get_paginator("describe_alarm_history").paginate(
        PaginationConfig={"PageSize": 1}
    )
    told = [item["HistorySummary"] for page in pages for item in page["AlarmHistoryItems"]]
    assert told == [
        "Alarm updated from INSUFFICIENT_DATA to OK", 'Alarm "b" created', 'Alarm "a" created'
    ]  # fmt: skip

    def summaries(**filters: Any) -> list[str]:
        found = client.describe_alarm_history(**filters)["AlarmHistoryItems"]
        return [item["HistorySummary"] for item in found]

    assert summaries(HistoryItemType="StateUpdate") == told[:1]
    assert summaries(EndDate=datetime.fromtimestamp(T0 + 5, UTC)) == told[2:]
    assert summaries(StartDate=datetime.fromtimestamp(T0 + 5, UTC)) == told[:2]
    assert summaries(AlarmTypes=["CompositeAlarm"]) == []


def test_a_state_that_was_set_goes_back_at_the_next_look(site: AlarmSite, client: Any) -> None:
    client.put_metric_alarm(**plain(AlarmActions=[POLICY]))
    samples(client, 1.0, 1.0, 1.0)
    site.until(15)
    data = '{"drill": true}'
    client.set_alarm_state(
        AlarmName="busy", StateValue="ALARM", StateReason="a drill", StateReasonData=data
    )
    (alarm,) = client.describe_alarms()["MetricAlarms"]
    assert (alarm["StateValue"], alarm["StateReason"], alarm["StateReasonData"]) == (
        "ALARM", "a drill", data
    )  # fmt: skip
    assert [one.reason for one in site.fired] == ["a drill"]
    site.until(25)
    assert client.describe_alarms()["MetricAlarms"][0]["StateValue"] == "OK"


def test_lists_are_filtered_and_paged(client: Any) -> None:
    for name in ("api-high", "api-low", "API-x", "db"):
        client.put_metric_alarm(**plain(name, AlarmActions=[POLICY] if name == "db" else None))
    client.set_alarm_state(AlarmName="db", StateValue="OK", StateReason="")
    assert names(client) == ["API-x", "api-high", "api-low", "db"]
    assert names(client, AlarmNamePrefix="api-") == ["api-high", "api-low"]
    assert names(client, AlarmNames=["db", "api-low", "unheard"]) == ["api-low", "db"]
    assert names(client, StateValue="OK") == ["db"]
    assert names(client, ActionPrefix="arn:aws:autoscaling") == ["db"]
    assert names(client, AlarmTypes=["CompositeAlarm"]) == []
    assert names(client, AlarmTypes=["MetricAlarm", "CompositeAlarm"])[0] == "API-x"
    assert names(client, ParentsOfAlarmName="db") == []
    pages = client.get_paginator("describe_alarms").paginate(PaginationConfig={"PageSize": 3})
    assert [len(page["MetricAlarms"]) for page in pages] == [3, 1]


def test_alarms_of_just_one_metric(client: Any) -> None:
    client.put_metric_alarm(**plain("average"))
    client.put_metric_alarm(**plain("sum", Statistic="Sum", Period=60, Unit="Count"))
    client.put_metric_alarm(**plain("elsewhere", Dimensions=None))
    client.put_metric_alarm(**math())  # also watches metrics, but not just one

    def found(**more: Any) -> list[str]:
        dimensions = [{"Name": "Host", "Value": "a"}, {"Name": "Zone", "Value": "1"}]
        asked = {"Namespace": "Shop", "MetricName": "Queue", "Dimensions": dimensions} | more
        alarms = client.describe_alarms_for_metric(**asked)["MetricAlarms"]
        return [alarm["AlarmName"] for alarm in alarms]

    assert found() == ["average", "sum"]
    assert found(Statistic="Sum") == found(Period=60) == found(Unit="Count") == ["sum"]
    assert found(ExtendedStatistic="p99") == []
    assert found(Dimensions=[]) == ["elsewhere"]


def test_actions_are_switched_off_and_on(client: Any) -> None:
    client.put_metric_alarm(**plain(ActionsEnabled=False))
    client.enable_alarm_actions(AlarmNames=["busy", "unheard"])
    assert client.describe_alarms()["MetricAlarms"][0]["ActionsEnabled"] is True
    client.disable_alarm_actions(AlarmNames=["busy"])
    assert client.describe_alarms()["MetricAlarms"][0]["ActionsEnabled"] is False


def test_known_alarms_are_deleted_even_if_others_are_unknown(client: Any) -> None:
    client.put_metric_alarm(**plain("a"))
    client.put_metric_alarm(**plain("b"))
    with pytest.raises(client.exceptions.ResourceNotFound) as caught:
        client.delete_alarms(AlarmNames=["unheard", "a"])
    assert caught.value.response["Error"]["Message"] == "There is no alarm named unheard."
    assert names(client) == ["b"]
    client.delete_alarms(AlarmNames=["b"])
    assert names(client) == []


def test_an_update_keeps_state_and_tags(client: Any) -> None:
    client.put_metric_alarm(**plain(Tags=[{"Key": "team", "Value": "search"}]))
    client.set_alarm_state(AlarmName="busy", StateValue="ALARM", StateReason="set")
    client.put_metric_alarm(**plain(Threshold=7, Tags=[{"Key": "ignored", "Value": "x"}]))
    (alarm,) = client.describe_alarms()["MetricAlarms"]
    assert (alarm["StateValue"], alarm["StateReason"], alarm["Threshold"]) == ("ALARM", "set", 7.0)
    tags = client.list_tags_for_resource(ResourceARN=arn("busy"))["Tags"]
    assert tags == [{"Key": "team", "Value": "search"}]


def test_an_alarm_that_a_policy_made_is_an_ordinary_one(site: AlarmSite, client: Any) -> None:
    """It is shown, may be changed and deleted by hand, and stays its policy's."""
    client.put_metric_alarm(**plain("AlarmHigh"))

    def owned(store: Store) -> list[str]:
        with store.begin() as db:
            return [record.name for record in rows.find_owned(db, POLICY)]

    def adopt(store: Store) -> None:
        with store.begin() as db:
            record = rows.get(db, "AlarmHigh")
            assert record is not None
            rows.put(db, replace(record, owner=POLICY), now=T0)

    asyncio.run(site.database.call(adopt))
    client.put_metric_alarm(**plain("AlarmHigh", Threshold=9))
    (alarm,) = client.describe_alarms(AlarmNamePrefix="AlarmH")["MetricAlarms"]
    assert alarm["Threshold"] == 9.0
    assert asyncio.run(site.database.call(owned)) == ["AlarmHigh"]
    client.delete_alarms(AlarmNames=["AlarmHigh"])
    assert asyncio.run(site.database.call(owned)) == []


def test_tags_belong_to_one_alarm_and_go_with_it(client: Any) -> None:
    """Names have case: the tags of `Busy` are not those of `busy`."""
    for name in ("busy", "Busy"):
        client.put_metric_alarm(**plain(name, Tags=[{"Key": "name", "Value": name}]))
    client.tag_resource(ResourceARN=arn("busy"), Tags=[{"Key": "team", "Value": "search"}])
    client.untag_resource(ResourceARN=arn("busy"), TagKeys=["name", "unheard"])

    def tags(name: str) -> list[dict[str, str]]:
        return list(client.list_tags_for_resource(ResourceARN=arn(name))["Tags"])

    assert tags("busy") == [{"Key": "team", "Value": "search"}]
    assert tags("Busy") == [{"Key": "name", "Value": "Busy"}]
    client.delete_alarms(AlarmNames=["Busy"])
    client.put_metric_alarm(**plain("Busy"))
    assert tags("Busy") == []
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.list_tags_for_resource(ResourceARN=arn("unheard"))
    many = [{"Key": f"k{number}", "Value": ""} for number in range(TAG_COUNT_MAX)]
    with pytest.raises(client.exceptions.InvalidParameterValueException):
        client.tag_resource(ResourceARN=arn("busy"), Tags=many)


def test_names_as_long_as_they_may_be(client: Any) -> None:
    name = "ä" * 255
    client.put_metric_alarm(**plain(name, Tags=[{"Key": "k", "Value": "v"}]))
    assert names(client, AlarmNames=[name]) == [name]
    assert client.list_tags_for_resource(ResourceARN=arn(name))["Tags"] != []


LONG = {"Statistic": None, "ExtendedStatistic": "p99"}
COUNTED = {"Namespace": "Shop", "MetricName": "Queue"}


@pytest.mark.parametrize(
    ("members", "code", "text"),
    [
        (plain(MetricName=None), "ValidationError",
         "For each PutMetricAlarm operation, you must specify either MetricName, a Metrics array,"
         " or an EvaluationCriteria."),
        (plain(Namespace=None), "MissingParameter", "The parameter Namespace is required."),
        (plain(Period=None), "MissingParameter", "The parameter Period is required."),
        (plain(Threshold=None), "MissingParameter", "The parameter Threshold is required."),
        (plain(EvaluationPeriods=None), "MissingParameter",
         "The parameter EvaluationPeriods is required."),
        (plain(ComparisonOperator=None), "MissingParameter",
         "The parameter ComparisonOperator is required."),
        (plain(Statistic=None), "InvalidParameterCombination",
         "Must specify either Statistic or ExtendedStatistic"),
        (plain(ExtendedStatistic="p99"), "InvalidParameterCombination",
         "The parameters Statistic and ExtendedStatistic are mutually exclusive and you have"
         " specified both."),
        (plain(Statistic=None, ExtendedStatistic="q9"), "ValidationError",
         "The value 'q9' is not a statistic."),
        (plain(Statistic=None, ExtendedStatistic="Sum"), "ValidationError",
         "The value Sum is a Statistic, not an ExtendedStatistic."),
        (plain(Period=15), "ValidationError",
         "The value 15 for parameter Period is invalid. Period must be 10, 20, 30, or a multiple"
         " of 60."),
        (plain(Period=1), "ValidationError", "The value 1 for parameter Period is invalid."),
        (plain(Period=60, EvaluationPeriods=1441), "ValidationError",
         "Metrics cannot be checked across more than a day (EvaluationPeriods * Period must be <="
         " 86400)"),
        (plain(Period=86400, EvaluationPeriods=8), "ValidationError",
         "Metrics cannot be checked across more than a week (EvaluationPeriods * Period must be <="
         " 604800) for alarms using period >= 3600"),
        (plain(DatapointsToAlarm=3), "ValidationError",
         "DatapointsToAlarm (3) must be less than or equal to EvaluationPeriods (2)."),
        (plain(TreatMissingData="good"), "ValidationError",
         "The value good for parameter TreatMissingData is invalid. Use one of breaching,"
         " notBreaching, ignore, missing."),
        (plain(EvaluateLowSampleCountPercentile="ignore"), "InvalidParameterCombination",
         "EvaluateLowSampleCountPercentile can be used only with a percentile"),
        (plain(**LONG, EvaluateLowSampleCountPercentile="never"), "ValidationError",
         "The value never for parameter EvaluateLowSampleCountPercentile is invalid."),
        (plain(ComparisonOperator="GreaterThanUpperThreshold"), "ValidationError",
         "The ComparisonOperator GreaterThanUpperThreshold compares with an anomaly detection"
         " band, which is not supported."),
        (plain(ThresholdMetricId="ad1"), "ValidationError",
         "The parameter ThresholdMetricId is not supported."),
        (plain(Threshold=float("nan")), "ValidationError",
         "The value nan for parameter Threshold is invalid."),
        (plain(AlarmActions=["page me"]), "ValidationError", "Invalid arn syntax: page me"),
        (plain(OKActions=["arn:aws:sns"]), "ValidationError", "Invalid arn syntax: arn:aws:sns"),
        (plain("a\nb"), "ValidationError", "AlarmName must not contain control characters."),
        (plain(Dimensions=[{"Name": "a", "Value": "1"}, {"Name": "a", "Value": "2"}]),
         "InvalidParameterValue", "No dimension name may appear more than once in Dimensions."),
        (plain(Tags=[{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]),
         "InvalidParameterValue", "The tag key a was given twice."),
        (math(Namespace="Shop", Period=60), "ValidationError",
         "Metrics can't be used together with Namespace, Period."),
        (math("m1 +"), "ValidationError", "Error in expression 'e1': Invalid metrics expression:"),
        (math("m1 / m9"), "ValidationError", "'m9' is neither a query's Id nor a known word"),
        (math("e1 + 1"), "ValidationError", "e1 -> e1 refers to itself"),
        (math("METRICS()"), "ValidationError", "returns 2 time series; an alarm watches one."),
        (math("5 * 2"), "ValidationError", "is a number where a time series is needed"),
        (math("SUM(SEARCH('{Shop} Queue', 'Sum', 60))"), "ValidationError",
         "SEARCH is not supported on Metric Alarms."),
        (math("FORECAST(m1)"), "ValidationError", "the function FORECAST is not supported"),
        (math(Metrics=[{"Id": "E1", "Expression": "1"}]), "ValidationError",
         "must begin with a lowercase letter"),
        (math(Metrics=[{"Id": "e1"}]), "ValidationError",
         "Exactly one of Metrics.member.1.MetricStat and Metrics.member.1.Expression"),
        (math(Metrics=[{"Id": "e1", "Expression": "TIME_SERIES(1)"}]), "ValidationError",
         "The expression 'e1' needs a Period."),
        (math(Metrics=[{"Id": "e", "Expression": "TIME_SERIES(1)", "Period": 60}] * 2),
         "ValidationError", "The values for parameter Id in Metrics must be unique."),
        (math(Metrics=[{"Id": f"e{i}", "Expression": "TIME_SERIES(1)", "Period": 60}
                       for i in range(2)]), "ValidationError",
         "Exactly one element of the metrics list should return data."),
        (math(Metrics=[{"Id": f"e{i}", "Expression": "TIME_SERIES(1)"} for i in range(21)]),
         "ValidationError", "Metrics must have from 1 to 20 members."),
        (math(Metrics=[{"Id": f"m{i}", "MetricStat": {"Metric": COUNTED, "Period": 60,
                        "Stat": "Sum"}, "ReturnData": i == 0} for i in range(11)]),
         "ValidationError", "Metrics must have at most 10 members with MetricStat."),
        (math(Metrics=[{"Id": "m1", "MetricStat": {"Metric": COUNTED, "Period": 5,
                        "Stat": "Sum"}}]),
         "ValidationError", "The value 5 for parameter Period is invalid."),
        (math(Metrics=[{"Id": "m1", "MetricStat": {"Metric": {"MetricName": "Queue"}, "Period": 60,
                        "Stat": "Sum"}}]),
         "ValidationError", "Metrics.member.1.MetricStat.Metric.Namespace is required."),
        (math(Metrics=[{"Id": "m1", "AccountId": "999999999999", "MetricStat": {
                        "Metric": COUNTED, "Period": 60, "Stat": "Sum"}}]),
         "ValidationError", f"The Metrics.member.1.AccountId is another account than {ACCOUNT}."),
    ],
)  # fmt: skip
def test_what_can_never_be_an_alarm_is_refused_and_nothing_is_kept(
    client: Any, members: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(ClientError) as caught:
        client.put_metric_alarm(**members)
    error = caught.value.response["Error"]
    assert error["Code"] == code
    assert text in error["Message"]
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert names(client) == []


def test_other_refusals_name_what_is_wrong(site: AlarmSite, client: Any) -> None:
    def refused(operation: str, **members: Any) -> tuple[str, str]:
        with pytest.raises(ClientError) as caught:
            getattr(client, operation)(**members)
        error = caught.value.response["Error"]
        return error["Code"], error["Message"]

    assert refused("set_alarm_state", AlarmName="x", StateValue="OK", StateReason="") == (
        "ResourceNotFound", "There is no alarm named x."
    )  # fmt: skip
    assert refused(
        "set_alarm_state", AlarmName="x", StateValue="OK", StateReason="", StateReasonData="{"
    ) == ("InvalidFormat", "Data was not syntactically valid JSON")
    assert refused("describe_alarms", AlarmNames=["x"], AlarmNamePrefix="x")[0] == (
        "InvalidParameterCombination"
    )
    assert refused("describe_alarms", NextToken="stale")[0] == "InvalidNextToken"
    assert refused("describe_alarm_history", NextToken="stale")[0] == "InvalidNextToken"
    code, message = refused("put_composite_alarm", AlarmName="x", AlarmRule="ALARM(y)")
    assert (code, message[:39]) == ("ValidationError", "Composite alarms are not supported; mak")
    code, message = refused("set_alarm_state", AlarmName="x", StateValue="BAD", StateReason="")
    assert (code, message) == (
        "ValidationError",
        "1 validation error detected: Value 'BAD' at 'stateValue' failed to satisfy constraint: "
        "Member must satisfy enum value set: [INSUFFICIENT_DATA, ALARM, OK]",
    )


def test_a_token_of_another_request_is_refused(client: Any) -> None:
    for name in ("a", "b"):
        client.put_metric_alarm(**plain(name))
    token = client.describe_alarms(MaxRecords=1)["NextToken"]
    with pytest.raises(client.exceptions.InvalidNextToken):
        client.describe_alarms(MaxRecords=1, AlarmNamePrefix="b", NextToken=token)


def test_there_is_an_end_to_how_many(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(put_metric_alarm, "ALARMS_MAX", 2)
    for name in ("a", "b", "a"):  # replacing one is no other
        client.put_metric_alarm(**plain(name))
    with pytest.raises(client.exceptions.LimitExceededFault):
        client.put_metric_alarm(**plain("c"))


def test_older_clients_speak_query(site: AlarmSite, client: Any) -> None:
    """Lists as `.member.N`, empty ones as an empty member, answers as XML."""
    put = site.query(
        "Action=PutMetricAlarm&AlarmName=busy&Namespace=Shop&MetricName=Queue&Statistic=Average"
        "&Period=10&EvaluationPeriods=2&Threshold=5.0&ComparisonOperator=GreaterThanThreshold"
        "&Dimensions.member.1.Name=Zone&Dimensions.member.1.Value=1&OKActions="
        "&Dimensions.member.2.Name=Host&Dimensions.member.2.Value=a&ActionsEnabled=true"
        f"&AlarmActions.member.1={POLICY}"
    )
    assert put.status == 200, put.body
    (alarm,) = client.describe_alarms()["MetricAlarms"]
    assert (alarm["AlarmActions"], alarm["OKActions"], alarm["Threshold"]) == ([POLICY], [], 5.0)
    samples(client, 9.0, 9.0)
    site.until(25)
    shown = site.query("Action=DescribeAlarms&AlarmNames.member.1=busy").body.decode()
    assert "<StateValue>ALARM</StateValue>" in shown
    assert "<StateUpdatedTimestamp>2023-11-14T22:14:22" in shown
    history = site.query("Action=DescribeAlarmHistory&AlarmName=busy&MaxRecords=1").body.decode()
    assert f"<HistorySummary>Successfully executed action {POLICY}</HistorySummary>" in history
    refused = site.query("Action=SetAlarmState&AlarmName=x&StateValue=OK&StateReason=r")
    assert refused.status == 404
    assert b"<Code>ResourceNotFound</Code>" in refused.body
    assert site.query("Action=DeleteAlarms&AlarmNames.member.1=busy").status == 200
    assert names(client) == []
