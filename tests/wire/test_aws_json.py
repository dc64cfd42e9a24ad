"""JSON 1.0 and 1.1 as SageMaker, Application Auto Scaling and CloudWatch speak them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from math import inf, isnan, nan
from typing import Any

import pytest

from penstock.errors import InternalError
from penstock.wire.aws import json_rpc, json_values, models, values
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest

PREFIX = {models.SAGEMAKER: "SageMaker", models.CLOUDWATCH: "GraniteServiceVersion20100801"}


def call(operation: str, body: Any, service: str = models.SAGEMAKER) -> dict[str, Any]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"X-Amz-Target": f"{PREFIX[service]}.{operation}"}
    http = HttpRequest("POST", "/", "", headers, raw)
    return json_rpc.parse_request(models.service_model(service), http).params


def refusal(operation: str, body: Any, service: str = models.SAGEMAKER) -> AwsError:
    with pytest.raises(AwsError) as refused:
        call(operation, body, service)
    return refused.value


def test_members_are_read_and_what_is_unknown_or_null_is_left_out() -> None:
    body = {
        "EndpointName": "e",
        "EndpointConfigName": "c",
        "DeploymentConfig": None,
        "FromTheFuture": {"x": 1},
        "Tags": [{"Key": "k", "Value": "v", "Colour": "red"}],
    }
    assert call("CreateEndpoint", body) == {
        "EndpointName": "e",
        "EndpointConfigName": "c",
        "Tags": [{"Key": "k", "Value": "v"}],
    }


def test_no_body_is_an_empty_object() -> None:
    assert call("ListEndpoints", b"") == {}


def test_nulls_inside_lists_and_maps_stay_so_that_validation_can_name_them() -> None:
    assert call("CreateEndpoint", {"Tags": [None]}) == {"Tags": [None]}


def test_timestamps_are_seconds_whatever_they_came_as() -> None:
    for given in (1_700_000_000, 1_700_000_000.0, "2023-11-14T22:13:20Z", "1700000000"):
        assert call("ListEndpoints", {"CreationTimeAfter": given}) == {
            "CreationTimeAfter": 1_700_000_000.0
        }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "The body is not JSON"),
        (b'{"EndpointName": NaN}', "The body is not JSON"),
        (b"\xff", "The body is not JSON"),
        (b"[]", "At 'the top level': expected an object, found a list."),
        ({"EndpointName": 1}, "At 'EndpointName': expected a string, found a number."),
        ({"Tags": {}}, "At 'Tags': expected a list, found an object."),
        ({"Tags": [{"Key": True}]}, "At 'Tags[0].Key': expected a string, found a boolean."),
        ({"Tags": ["x"]}, "At 'Tags[0]': expected an object, found a string."),
    ],
)
def test_what_is_not_of_its_kind_is_refused_with_its_place(body: Any, message: str) -> None:
    error = refusal("CreateEndpoint", body)
    assert error.code == "SerializationException"
    assert error.message.startswith(message)


@pytest.mark.parametrize("value", ["5", True, 1.5, 2**31, [], 10**30])
def test_an_integer_is_a_whole_number_of_its_size(value: Any) -> None:
    assert refusal("ListEndpoints", {"MaxResults": value}).code == "SerializationException"


def test_a_whole_float_is_an_integer() -> None:
    assert call("ListEndpoints", {"MaxResults": 5.0}) == {"MaxResults": 5}


@pytest.mark.parametrize("value", [1e300, "never", "", True, {}, -1e18])
def test_a_timestamp_lies_between_the_years_1_and_9999(value: Any) -> None:
    error = refusal("ListEndpoints", {"CreationTimeAfter": value})
    assert error.code == "SerializationException"


def test_a_body_that_nests_without_end_is_refused() -> None:
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    assert call("CreateEndpoint", b'{"Unknown":' + deep + b"}") == {}
    assert refusal("CreateEndpoint", b"[" * 100_000).code == "SerializationException"


@pytest.mark.parametrize(
    "target", [None, "", "CreateEndpoint", "Other.CreateEndpoint", "SageMaker."]
)
def test_a_target_that_names_no_operation_is_unknown(target: str | None) -> None:
    http = HttpRequest("POST", "/", "", {} if target is None else {"X-Amz-Target": target}, b"{}")
    with pytest.raises(AwsError) as refused:
        json_rpc.parse_request(models.service_model(models.SAGEMAKER), http)
    assert refused.value.code == "UnknownOperationException"


def test_an_answer_leaves_out_what_has_no_value_and_writes_milliseconds() -> None:
    operation = models.service_model(models.SAGEMAKER).operation_model("DescribeEndpoint")
    result = {
        "EndpointName": "e",
        "FailureReason": None,
        "CreationTime": 1_700_000_000.123456,
        "LastModifiedTime": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
    }
    response = json_rpc.serialize_response(operation, result, request_id="id-1")
    assert response.status == 200
    assert response.headers == [
        ("Content-Type", "application/x-amz-json-1.1"),
        ("x-amzn-RequestId", "id-1"),
    ]
    assert response.body == (
        b'{"EndpointName":"e","CreationTime":1700000000.123,"LastModifiedTime":1700000000}'
    )


def test_an_operation_without_output_answers_an_empty_object() -> None:
    operation = models.service_model(models.SAGEMAKER).operation_model("DeleteEndpoint")
    assert json_rpc.serialize_response(operation, {}, request_id="id-1").body == b"{}"


def test_a_result_that_the_model_does_not_know_is_our_bug() -> None:
    operation = models.service_model(models.SAGEMAKER).operation_model("DescribeEndpoint")
    with pytest.raises(InternalError):
        json_rpc.serialize_response(operation, {"EndpointNam": "e"}, request_id="id-1")


def test_members_of_our_own_go_out_as_they_are_beside_aws_ones() -> None:
    """SDKs pass over what they do not know; whoever reads the JSON itself sees it."""
    operation = models.service_model(models.SAGEMAKER).operation_model("DescribeTransformJob")
    result = {"TransformJobName": "j", "PenstockProgress": {"Records": 3, "EtaSeconds": None}}
    body = json_rpc.serialize_response(operation, result, request_id="id-1").body
    assert body == (b'{"TransformJobName":"j","PenstockProgress":{"Records":3,"EtaSeconds":null}}')


def test_half_a_surrogate_pair_does_not_break_an_answer() -> None:
    operation = models.service_model(models.SAGEMAKER).operation_model("DescribeEndpoint")
    result = {"FailureReason": "no file bad\udcff.onnx"}
    body = json_rpc.serialize_response(operation, result, request_id="id-1").body
    assert json.loads(body) == {"FailureReason": "no file bad?.onnx"}


def test_an_error_names_its_type_in_the_body() -> None:
    model = models.service_model(models.SAGEMAKER)
    error = AwsError("ValidationException", 'Could not find endpoint "x".')
    response = json_rpc.serialize_error(model, error, request_id="id-1")
    assert response.status == 400
    assert ("x-amzn-RequestId", "id-1") in response.headers
    assert json.loads(response.body) == {
        "__type": "ValidationException",
        "message": 'Could not find endpoint "x".',
    }
    modelled = json_rpc.serialize_error(model, AwsError("ResourceInUse", "no"), request_id="i")
    assert json.loads(modelled.body) == {"__type": "ResourceInUse", "Message": "no"}


def test_cloudwatch_keeps_its_older_codes_in_a_header() -> None:
    model = models.service_model(models.CLOUDWATCH)
    response = json_rpc.serialize_error(
        model, AwsError("InvalidParameterValueException", "no"), request_id="id-1"
    )
    headers = dict(response.headers)
    assert headers["Content-Type"] == "application/x-amz-json-1.0"
    assert headers["x-amzn-query-error"] == "InvalidParameterValue;Sender"
    assert json.loads(response.body)["__type"] == "InvalidParameterValueException"
    ours = json_rpc.serialize_error(model, AwsError("InternalServiceFault"), request_id="id-1")
    assert dict(ours.headers)["x-amzn-query-error"] == "InternalServiceError;Receiver"
    assert ours.status == 500


def test_floats_that_json_lacks_go_by_name() -> None:
    model = models.service_model(models.CLOUDWATCH)
    shape = model.shape_for("DatapointValues")
    assert json_values.serialize(shape, [1.5, inf, -inf, nan]) == [
        1.5,
        "Infinity",
        "-Infinity",
        "NaN",
    ]
    read = json_values.parse(shape, [2, "Infinity", "NaN"])
    assert read[:2] == [2.0, inf]
    assert isnan(read[2])


def test_timestamps_are_written_in_each_style() -> None:
    moment = datetime(2023, 11, 15, 0, 13, 20, 123_456, tzinfo=timezone(timedelta(hours=2)))
    assert values.format_timestamp(moment, "iso8601") == "2023-11-14T22:13:20.123Z"
    assert values.format_timestamp(1_700_000_000, "iso8601") == "2023-11-14T22:13:20Z"
    assert values.format_timestamp(moment, "rfc822") == "Tue, 14 Nov 2023 22:13:20 GMT"
    assert values.format_timestamp(moment, "unixtimestamp") == 1_700_000_000.123
    assert values.format_timestamp(-0.5, "unixtimestamp") == -0.5
