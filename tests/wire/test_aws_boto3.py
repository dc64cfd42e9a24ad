"""Unmodified boto3 clients against our side of the wire, a function in place of the network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, EventStreamError
from tests.kit.boto3_clients import client_of
from tests.wire.aws_vectors import PROTOCOLS

from penstock.clock import SystemClock
from penstock.wire.aws import eventstream, models, sigv4
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, HttpResponse, ParsedRequest
from penstock.wire.aws.validate import validate

SECRET = "correct horse battery staple"
Answer = dict[str, Any] | AwsError


class Service:
    """A client, and a server that notes what it was asked and answers what it was told to."""

    def __init__(self, service: str, protocol: str, answer: Answer, events: bytes = b"") -> None:
        self.asked: list[ParsedRequest] = []
        self._model = models.service_model(service)
        self._protocol = PROTOCOLS[protocol]
        self._answer = answer
        self._events = events
        self.client = client_of(service, self._answered, key="AKIDEXAMPLE", secret=SECRET)

    def _answered(self, http: HttpRequest) -> HttpResponse:
        try:
            response = self._serve(http)
        except AwsError as error:
            response = self._protocol.serialize_error(self._model, error, request_id="id-1")
        return HttpResponse(response.status, response.headers, response.body + self._events)

    def _serve(self, http: HttpRequest) -> HttpResponse:
        signed = sigv4.parse_authorization(http.headers)
        service, now = self._model.signing_name, SystemClock().wall()
        sigv4.verify(http, signed, SECRET, now_wall_s=now, service_expected=service)
        parsed = self._protocol.parse_request(self._model, http)
        validate(parsed.operation.input_shape, parsed.params)
        self.asked.append(parsed)
        if isinstance(self._answer, AwsError):
            raise self._answer
        return self._protocol.serialize_response(parsed.operation, self._answer, request_id="id-1")


def failure(call: Callable[..., Any], **params: Any) -> ClientError:
    with pytest.raises(ClientError) as failed:
        call(**params)
    error: ClientError = failed.value
    return error


def test_the_control_plane() -> None:
    service = Service(models.SAGEMAKER, "json", {"EndpointArn": "arn:aws:sagemaker:x:1:endpoint/e"})
    answer = service.client.create_endpoint(EndpointName="e", EndpointConfigName="c")
    assert answer["EndpointArn"] == "arn:aws:sagemaker:x:1:endpoint/e"
    assert answer["ResponseMetadata"]["RequestId"] == "id-1"
    assert service.asked[0].params == {"EndpointName": "e", "EndpointConfigName": "c"}


def test_what_a_client_does_not_check_the_server_does() -> None:
    service = Service(models.SAGEMAKER, "json", {})
    error = failure(service.client.create_endpoint, EndpointName="a_b", EndpointConfigName="c")
    assert error.response["Error"]["Code"] == "ValidationException"
    assert "at 'endpointName' failed" in error.response["Error"]["Message"]


def test_a_modelled_error_is_raised_typed() -> None:
    service = Service(models.AUTOSCALING, "json", AwsError("ObjectNotFoundException", "no"))
    error = failure(
        service.client.delete_scaling_policy,
        PolicyName="p",
        ServiceNamespace="sagemaker",
        ResourceId="endpoint/e/variant/v",
        ScalableDimension="sagemaker:variant:DesiredInstanceCount",
    )
    assert isinstance(error, service.client.exceptions.ObjectNotFoundException)
    assert error.response["Error"]["Message"] == "no"


def test_metrics_large_enough_to_be_compressed() -> None:
    service = Service(models.CLOUDWATCH, "json", {})
    data = [{"MetricName": f"Metric{number}", "Value": number + 0.5} for number in range(500)]
    service.client.put_metric_data(Namespace="Own", MetricData=data)
    assert service.asked[0].params == {"Namespace": "Own", "MetricData": data}


def test_cloudwatchs_errors_keep_the_code_they_had_in_query() -> None:
    service = Service(models.CLOUDWATCH, "json", AwsError("InvalidParameterValueException", "no"))
    error = failure(service.client.list_metrics)
    assert error.response["Error"]["Code"] == "InvalidParameterValue"
    assert isinstance(error, service.client.exceptions.InvalidParameterValueException)


def test_an_invocation_and_its_answer() -> None:
    result = {"Body": b"[1]", "ContentType": "application/json", "InvokedProductionVariant": "v"}
    service = Service(models.RUNTIME, "rest-json", result)
    answer = service.client.invoke_endpoint(EndpointName="e", Body=b"\x00", Accept="a/b")
    assert answer["Body"].read() == b"[1]"
    assert answer["InvokedProductionVariant"] == "v"
    assert service.asked[0].params == {"EndpointName": "e", "Body": b"\x00", "Accept": "a/b"}


def test_a_model_that_fails() -> None:
    error = AwsError("ModelError", "m", members={"OriginalStatusCode": 422, "OriginalMessage": "o"})
    service = Service(models.RUNTIME, "rest-json", error)
    failed = failure(service.client.invoke_endpoint, EndpointName="e", Body=b"")
    assert isinstance(failed, service.client.exceptions.ModelError)
    assert failed.response["OriginalStatusCode"] == 422
    assert failed.response["ResponseMetadata"]["HTTPStatusCode"] == 424


def test_a_streamed_answer_that_breaks() -> None:
    frames = eventstream.payload_part(b"a b") + eventstream.model_stream_error("gone")
    service = Service(models.RUNTIME, "rest-json", {"ContentType": "text/plain"}, frames)
    answer = service.client.invoke_endpoint_with_response_stream(EndpointName="e", Body=b"x")
    stream = iter(answer["Body"])
    assert answer["ContentType"] == "text/plain"
    assert next(stream) == {"PayloadPart": {"Bytes": b"a b"}}
    with pytest.raises(EventStreamError) as broken:
        next(stream)
    assert broken.value.response["Error"] == {"Code": "ModelStreamError", "Message": "gone"}


def test_another_secret() -> None:
    service = Service(models.SAGEMAKER, "json", {})
    service.client._request_signer._credentials.secret_key = "another"
    error = failure(service.client.list_endpoints)
    assert error.response["Error"]["Code"] == "InvalidSignatureException"
    assert service.asked == []
