"""What is larger than anybody needs is refused before it costs anything, in the caller's words."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from penstock.api.cloudwatch.operations import OPERATIONS as CLOUDWATCH_OPERATIONS
from penstock.api.oip.http import inflate
from penstock.api.sagemaker.operations import OPERATIONS as SAGEMAKER_OPERATIONS
from penstock.errors import CallerError
from penstock.wire.aws import json_rpc, query, sigv4, validate
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import BODY_BYTES_MAX, HttpRequest, readable_body
from penstock.wire.aws.models import CLOUDWATCH, SAGEMAKER, service_model


def refusal(call: Any) -> tuple[str, int | None, str]:
    with pytest.raises(AwsError) as caught:
        call()
    return caught.value.code, caught.value.status, caught.value.message


@pytest.mark.parametrize("zipped", [False, True])
def test_a_body_of_the_control_plane_has_a_mebibyte_at_most(zipped: bool) -> None:
    def body(size: int) -> bytes:
        http = HttpRequest("POST", "/", "", {"content-encoding": "gzip"} if zipped else {})
        http.body = gzip.compress(bytes(size)) if zipped else bytes(size)
        return readable_body(http)

    assert len(body(BODY_BYTES_MAX)) == BODY_BYTES_MAX
    assert refusal(lambda: body(BODY_BYTES_MAX + 1))[:2] == ("RequestEntityTooLarge", 413)


def form(text: str) -> Any:
    http = HttpRequest("POST", "/", "", {}, text.encode())
    return query.parse_request(service_model(CLOUDWATCH), http, served=CLOUDWATCH_OPERATIONS)


@pytest.mark.parametrize(
    "text",
    [
        "&".join(f"a{n}" for n in range(query.FIELDS_MAX + 1)),
        "&".join(f"a{n}.b.c" for n in range(query.PARTS_MAX // 3 + 1)),
        ".".join(["a"] * (query.DOTS_MAX + 2)),
    ],
    ids=["fields", "parts", "depth"],
)
def test_a_form_has_as_many_names_as_cloudwatch_has_use_for(text: str) -> None:
    assert refusal(lambda: form(f"Action=ListMetrics&{text}"))[0] == "SerializationException"


def test_the_largest_put_metric_data_fits() -> None:
    data = "&".join(
        f"MetricData.member.{n}.MetricName=m&MetricData.member.{n}.Value=1"
        f"&MetricData.member.{n}.Dimensions.member.1.Name=a"
        f"&MetricData.member.{n}.Dimensions.member.1.Value=b"
        for n in range(1, 1001)
    )
    assert len(form(f"Action=PutMetricData&Namespace=n&{data}").params["MetricData"]) == 1000


def test_a_list_that_is_too_long_is_named_once_and_not_read_to_its_end() -> None:
    tags = ",".join(['{"Key":"a"}'] * 5000)
    http = HttpRequest("POST", "/", "", {"x-amz-target": "SageMaker.AddTags"})
    http.body = f'{{"ResourceArn":"arn:aws:x","Tags":[{tags}]}}'.encode()
    operation, params = json_rpc.parse_request(
        service_model(SAGEMAKER), http, served=SAGEMAKER_OPERATIONS
    )
    assert len(params["Tags"]) == 51
    message = refusal(lambda: validate.validate(operation.input_shape, params))[2]
    assert "'tags' failed to satisfy constraint: Member must have length less than or equal" in (
        message
    )


def test_a_query_that_is_signed_has_a_thousand_parameters_at_most() -> None:
    assert sigv4.canonical_query("&".join(["a=1"] * 1000)).count("&") == 999
    code, status, _ = refusal(lambda: sigv4.canonical_query("&".join(["a=1"] * 1001)))
    assert (code, status) == ("IncompleteSignatureException", 403)


def test_an_authorization_header_that_is_too_long_is_not_read() -> None:
    """Sixty kilobytes of spaces once took half a minute."""
    text = "AWS4-HMAC-SHA256 x" + " " * 60_000 + "!"
    assert refusal(lambda: sigv4.parse_authorization({"authorization": text}))[:2] == (
        "IncompleteSignatureException",
        403,
    )


def test_a_small_body_of_a_model_does_not_become_a_large_one() -> None:
    assert len(inflate(gzip.compress(bytes(1 << 20)), b"gzip", 6 << 20)) == 1 << 20
    with pytest.raises(CallerError) as caught:
        inflate(gzip.compress(bytes(6 << 20)), b"gzip", 6 << 20)
    assert (caught.value.code, caught.value.status) == ("body-too-large", 413)
