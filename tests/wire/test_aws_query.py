"""Query as older CloudWatch clients speak it: forms in, XML out."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from botocore.awsrequest import HeadersDict
from botocore.parsers import QueryParser
from botocore.serialize import QuerySerializer

from penstock.wire.aws import models, query
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, HttpResponse

MODEL = models.service_model(models.CLOUDWATCH)

METRICS: dict[str, Any] = {
    "Namespace": "AWS/SageMaker",
    "MetricData": [
        {
            "MetricName": "Invocations",
            "Dimensions": [
                {"Name": "EndpointName", "Value": "e & co = 100 %"},
                {"Name": "VariantName", "Value": "blue"},
            ],
            "Timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "Values": [1.0, 2.5],
            "Counts": [3.0, 1.0],
            "Unit": "Count",
            "StorageResolution": 1,
        },
        {"MetricName": "Latency", "StatisticValues": {"SampleCount": 1, "Sum": 2, "Minimum": 1}},
    ],
}


def form(fields: dict[str, Any] | str, headers: dict[str, str] | None = None) -> HttpRequest:
    body = fields if isinstance(fields, str) else urlencode(fields)
    return HttpRequest("POST", "/", "", headers or {}, body.encode())


def refusal(http: HttpRequest) -> AwsError:
    with pytest.raises(AwsError) as refused:
        query.parse_request(MODEL, http)
    return refused.value


def read_by_botocore(response: HttpResponse, shape: Any) -> Any:
    raw = {
        "status_code": response.status,
        "headers": HeadersDict(response.headers),
        "body": response.body,
    }
    return QueryParser().parse(raw, shape)


def test_what_botocore_puts_into_a_form_is_read_from_it() -> None:
    operation = MODEL.operation_model("PutMetricData")
    sent = QuerySerializer().serialize_to_request(METRICS, operation)
    parsed = query.parse_request(MODEL, form(sent["body"], sent["headers"]))
    expected = {
        "Namespace": "AWS/SageMaker",
        "MetricData": [
            METRICS["MetricData"][0] | {"Timestamp": 1_700_000_000.0},
            METRICS["MetricData"][1],
        ],
    }
    assert parsed.operation.name == "PutMetricData"
    assert parsed.params == expected


def test_a_compressed_form_is_inflated() -> None:
    body = gzip.compress(b"Action=ListMetrics&Namespace=N")
    http = HttpRequest("POST", "/", "", {"Content-Encoding": "gzip"}, body)
    assert query.parse_request(MODEL, http).params == {"Namespace": "N"}


def test_the_query_string_counts_where_there_is_no_body() -> None:
    http = HttpRequest("GET", "/", "Action=ListMetrics&Namespace=a%20b+c")
    assert query.parse_request(MODEL, http).params == {"Namespace": "a b c"}


def test_items_are_ordered_by_their_numbers_which_may_leave_gaps() -> None:
    fields = {"Action": "DeleteAlarms", "AlarmNames.member.10": "b", "AlarmNames.member.2": "a"}
    assert query.parse_request(MODEL, form(fields)).params == {"AlarmNames": ["a", "b"]}


def test_an_empty_list_is_sent_as_an_empty_value() -> None:
    fields = {"Action": "DeleteAlarms", "AlarmNames": ""}
    assert query.parse_request(MODEL, form(fields)).params == {"AlarmNames": []}


@pytest.mark.parametrize(
    "fields",
    [
        {"AlarmNames.member.x": "a"},
        {"AlarmNames.member.-1": "a"},
        {"AlarmNames.member.\u0661": "a"},
        {"AlarmNames": "a"},
        {"AlarmNames.other.1": "a"},
        {"AlarmNames.member.1.deeper": "a"},
        {"." * 200: "a"},
    ],
)
def test_a_malformed_name_is_refused(fields: dict[str, str]) -> None:
    assert refusal(form({"Action": "DeleteAlarms"} | fields)).code == "SerializationException"


def test_a_value_of_the_wrong_kind_is_refused_with_its_place() -> None:
    error = refusal(form({"Action": "DescribeAlarms", "MaxRecords": "many"}))
    assert error.message == "At 'MaxRecords': expected an integer, found 'many'."


@pytest.mark.parametrize("fields", [{}, {"Action": ""}, {"Action": "CreateEndpoint"}])
def test_a_form_without_a_known_action_is_unknown(fields: dict[str, str]) -> None:
    assert refusal(form(fields)).code == "UnknownOperationException"


def test_a_form_that_is_not_utf8_is_refused() -> None:
    assert refusal(form("Action=ListMetrics&Namespace=%ff")).code == "SerializationException"


def test_an_answer_is_wrapped_and_botocore_reads_it() -> None:
    operation = MODEL.operation_model("GetMetricStatistics")
    result = {
        "Label": "Invocations <&> \x01",
        "Datapoints": [{"Timestamp": 1_700_000_000.0, "Sum": 5.0, "Unit": "Count"}],
    }
    response = query.serialize_response(operation, result, request_id="id-1")
    assert response.body.startswith(
        b'<GetMetricStatisticsResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/">'
        b"<GetMetricStatisticsResult><Label>Invocations &lt;&amp;&gt; \xef\xbf\xbd</Label>"
    )
    assert ("x-amzn-RequestId", "id-1") in response.headers
    parsed = read_by_botocore(response, operation.output_shape)
    assert parsed["Label"] == "Invocations <&> \ufffd"
    assert parsed["Datapoints"] == [
        {
            "Timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
            "Sum": 5.0,
            "Unit": "Count",
        }
    ]
    assert parsed["ResponseMetadata"]["RequestId"] == "id-1"


def test_an_operation_without_output_has_no_result_element() -> None:
    operation = MODEL.operation_model("PutMetricData")
    assert query.serialize_response(operation, {}, request_id="id-1").body == (
        b'<PutMetricDataResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/">'
        b"<ResponseMetadata><RequestId>id-1</RequestId></ResponseMetadata></PutMetricDataResponse>"
    )


def test_an_error_has_the_older_code_and_says_whose_fault_it_is() -> None:
    error = AwsError("InvalidParameterValueException", "1 < 2")
    response = query.serialize_error(MODEL, error, request_id="id-1")
    assert response.status == 400
    assert response.body == (
        b'<ErrorResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/"><Error>'
        b"<Type>Sender</Type><Code>InvalidParameterValue</Code><Message>1 &lt; 2</Message>"
        b"</Error><RequestId>id-1</RequestId></ErrorResponse>"
    )
    parsed = read_by_botocore(response, None)
    assert parsed["Error"] == {
        "Type": "Sender",
        "Code": "InvalidParameterValue",
        "Message": "1 < 2",
    }
