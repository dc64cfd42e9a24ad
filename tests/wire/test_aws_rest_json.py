"""rest-json as SageMaker Runtime speaks it: path, headers, opaque bodies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.awsrequest import HeadersDict
from botocore.parsers import RestJSONParser

from penstock.errors import InternalError
from penstock.wire.aws import models, rest_json
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, HttpResponse

MODEL = models.service_model(models.RUNTIME)


def parse(path: str, headers: dict[str, str] | None = None, body: bytes = b"") -> Any:
    return rest_json.parse_request(MODEL, HttpRequest("POST", path, "", headers or {}, body))


def read_by_botocore(response: HttpResponse, shape: Any) -> Any:
    raw = {
        "status_code": response.status,
        "headers": HeadersDict(response.headers),
        "body": response.body,
    }
    return RestJSONParser().parse(raw, shape)


def test_an_invocation_is_read_from_path_headers_and_body() -> None:
    headers = {
        "content-type": "text/csv",
        "Accept": "application/json",
        "X-Amzn-SageMaker-Custom-Attributes": "trace=1",
        "X-Amzn-SageMaker-Target-Variant": "blue",
    }
    parsed = parse("/endpoints/query-intent/invocations", headers, b"\x00\xff")
    assert parsed.operation.name == "InvokeEndpoint"
    assert parsed.params == {
        "EndpointName": "query-intent",
        "ContentType": "text/csv",
        "Accept": "application/json",
        "CustomAttributes": "trace=1",
        "TargetVariant": "blue",
        "Body": b"\x00\xff",
    }


def test_a_compressed_invocation_is_handed_over_as_it_came() -> None:
    parsed = parse("/endpoints/e/invocations", {"Content-Encoding": "gzip"}, b"anything")
    assert parsed.params == {"EndpointName": "e", "Body": b"anything"}


def test_an_invocation_without_a_body_has_an_empty_one() -> None:
    assert parse("/endpoints/e/invocations").params == {"EndpointName": "e", "Body": b""}


def test_a_name_may_be_percent_encoded() -> None:
    assert parse("/endpoints/a%2Fb%20c/invocations").params["EndpointName"] == "a/b c"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/endpoints/e",
        "/endpoints//invocations",
        "/endpoints/e/invocations/",
        "/endpoints/a/b/invocations",
    ],
)
def test_any_other_path_is_no_operation(path: str) -> None:
    with pytest.raises(AwsError) as refused:
        parse(path)
    assert (refused.value.code, refused.value.status) == ("UnknownOperationException", 404)


def test_a_name_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(AwsError) as refused:
        parse("/endpoints/%ff/invocations")
    assert refused.value.code == "SerializationException"


def test_an_answer_carries_the_raw_body_and_its_members_in_headers() -> None:
    operation = MODEL.operation_model("InvokeEndpoint")
    result = {
        "Body": b"[1]",
        "ContentType": "text/csv",
        "InvokedProductionVariant": "blue",
        "CustomAttributes": None,
    }
    response = rest_json.serialize_response(operation, result, request_id="id-1")
    assert response == HttpResponse(
        200,
        [
            ("x-amzn-RequestId", "id-1"),
            ("Content-Type", "text/csv"),
            ("x-Amzn-Invoked-Production-Variant", "blue"),
        ],
        b"[1]",
    )


def test_a_header_cannot_be_split_by_its_value() -> None:
    operation = MODEL.operation_model("InvokeEndpoint")
    with pytest.raises(InternalError):
        rest_json.serialize_response(operation, {"ContentType": "a\r\nb"}, request_id="id-1")


def test_an_asynchronous_invocation_is_accepted_with_202() -> None:
    operation = MODEL.operation_model("InvokeEndpointAsync")
    result = {"InferenceId": "i", "OutputLocation": "s3://bucket/out"}
    response = rest_json.serialize_response(operation, result, request_id="id-1")
    assert response.status == 202
    assert dict(response.headers)["X-Amzn-SageMaker-OutputLocation"] == "s3://bucket/out"
    assert json.loads(response.body) == {"InferenceId": "i"}


def test_a_stream_has_its_headers_here_and_its_body_elsewhere() -> None:
    operation = MODEL.operation_model("InvokeEndpointWithResponseStream")
    result = {"ContentType": "text/plain", "InvokedProductionVariant": "blue"}
    response = rest_json.serialize_response(operation, result, request_id="id-1")
    assert dict(response.headers) == {
        "x-amzn-RequestId": "id-1",
        "X-Amzn-SageMaker-Content-Type": "text/plain",
        "x-Amzn-Invoked-Production-Variant": "blue",
        "Content-Type": "application/vnd.amazon.eventstream",
    }
    assert response.body == b""


def test_a_model_error_is_424_and_botocore_reads_all_of_it() -> None:
    error = AwsError(
        "ModelError",
        'Received client error (422) from primary with message "no".',
        members={
            "OriginalStatusCode": 422,
            "OriginalMessage": "no",
            "LogStreamArn": "",
            "ErrorCode": "CLIENT_ERROR_FROM_MODEL",
        },
    )
    response = rest_json.serialize_error(MODEL, error, request_id="id-1")
    headers = dict(response.headers)
    assert response.status == 424
    assert (headers["x-amzn-ErrorType"], headers["x-amzn-RequestId"]) == ("ModelError", "id-1")
    assert json.loads(response.body)["ErrorCode"] == "CLIENT_ERROR_FROM_MODEL"
    parsed = read_by_botocore(response, None)
    assert parsed["Error"]["Code"] == "ModelError"
    typed = read_by_botocore(response, MODEL.shape_for("ModelError"))
    assert (typed["OriginalStatusCode"], typed["OriginalMessage"]) == (422, "no")
    assert typed["Message"] == 'Received client error (422) from primary with message "no".'


def test_a_code_outside_the_model_is_sent_all_the_same() -> None:
    error = AwsError("InvalidSignatureException", "no", status=403)
    response = rest_json.serialize_error(MODEL, error, request_id="id-1")
    assert response.status == 403
    assert json.loads(response.body) == {"message": "no"}
    assert read_by_botocore(response, None)["Error"] == {
        "Code": "InvalidSignatureException",
        "Message": "no",
    }
