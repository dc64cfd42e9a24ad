"""Whatever comes in, the reading side says `AwsError` or gives values; nothing else gets out."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any
from urllib.parse import urlencode

from botocore.serialize import JSONSerializer, QuerySerializer
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.aws import bearer, json_rpc, models, query, rest_json, sigv4
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.validate import validate

SAGEMAKER = models.service_model(models.SAGEMAKER)
RUNTIME = models.service_model(models.RUNTIME)
CLOUDWATCH = models.service_model(models.CLOUDWATCH)

LATIN = st.text(st.characters(max_codepoint=255), max_size=80)
HEADERS = st.dictionaries(
    st.sampled_from(
        (
            "content-encoding",
            "content-type",
            "x-amzn-sagemaker-inference-id",
            "x-amz-date",
            "date",
            "host",
            "x-amz-content-sha256",
            "x-amz-security-token",
        )
    ),
    LATIN | st.sampled_from(["gzip", "20231114T221320Z", "UNSIGNED-PAYLOAD"]),
)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
)


def nested(names: list[str]) -> Any:
    """JSON that uses the right names with values of any kind."""
    return st.recursive(
        SCALARS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(names) | st.text(max_size=5), inner, max_size=4)
        ),
        max_leaves=12,
    )


NAMES = ["EndpointConfigName", "ProductionVariants", "VariantName", "InitialInstanceCount", "Tags"]
NAMES += ["InstanceType", "InitialVariantWeight", "AsyncInferenceConfig", "OutputConfig", "Key"]
FORM_NAMES = [
    "Namespace",
    "MetricData",
    "member",
    "1",
    "2",
    "Values",
    "Dimensions",
    "Name",
    "x",
    "",
]


JSON_BODIES = nested(NAMES).map(lambda value: json.dumps(value).encode())
FORMS = st.lists(
    st.tuples(st.lists(st.sampled_from(FORM_NAMES), max_size=6).map(".".join), LATIN), max_size=8
).map(lambda pairs: "&".join(["Action=PutMetricData"] + [f"{k}={v}" for k, v in pairs]))


def read_and_validate(module: Any, model: Any, http: HttpRequest) -> None:
    with contextlib.suppress(AwsError):
        parsed = module.parse_request(model, http)
        validate(parsed.operation.input_shape, parsed.params)


@settings(max_examples=300, deadline=None)
@given(body=st.binary(max_size=200) | JSON_BODIES, headers=HEADERS)
def test_json(body: bytes, headers: dict[str, str]) -> None:
    target = {"X-Amz-Target": "SageMaker.CreateEndpointConfig"}
    read_and_validate(json_rpc, SAGEMAKER, HttpRequest("POST", "/", "", headers | target, body))


@settings(max_examples=300, deadline=None)
@given(form=FORMS, body=st.binary(max_size=100), headers=HEADERS)
def test_query(form: str, body: bytes, headers: dict[str, str]) -> None:
    encoded = form.encode("latin-1")
    read_and_validate(query, CLOUDWATCH, HttpRequest("POST", "/", "", headers, encoded))
    read_and_validate(query, CLOUDWATCH, HttpRequest("POST", "/", form, headers))
    read_and_validate(query, CLOUDWATCH, HttpRequest("POST", "/", "", headers, encoded + body))


@settings(max_examples=300, deadline=None)
@given(name=LATIN, text=LATIN, body=st.binary(max_size=50), headers=HEADERS)
def test_rest_json(name: str, text: str, body: bytes, headers: dict[str, str]) -> None:
    path = f"/endpoints/{name}/invocations"
    read_and_validate(rest_json, RUNTIME, HttpRequest("POST", path, text, headers, body))
    read_and_validate(rest_json, RUNTIME, HttpRequest("POST", text, "", headers, body))


CREDENTIALS = st.just("AK/20231114/us-east-1/sagemaker/aws4_request") | LATIN
AUTHORIZATIONS = st.builds(
    lambda credential, names, signature: (
        f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={names}, Signature={signature}"
    ),
    CREDENTIALS,
    st.sampled_from(["host;x-amz-date", "date;host", "host;x-amz-date;x-amz-security-token"]),
    st.just("0" * 64) | LATIN,
)


@settings(max_examples=300, deadline=None)
@given(authorization=AUTHORIZATIONS | LATIN, path=LATIN, text=LATIN, headers=HEADERS)
def test_signatures(authorization: str, path: str, text: str, headers: dict[str, str]) -> None:
    http = HttpRequest("POST", path, text, headers | {"authorization": authorization}, b"x")
    with contextlib.suppress(AwsError):
        signed = sigv4.parse_authorization(http.headers)
        sigv4.verify(http, signed, "secret", now_wall_s=1.7e9, service_expected="sagemaker")
        raise AssertionError("let in")


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=60), pairs=st.dictionaries(st.text(max_size=9), st.text(max_size=9)))
def test_bearer_tokens(text: str, pairs: dict[str, str]) -> None:
    with contextlib.suppress(AwsError):
        bearer.verify_bearer(bearer.parse_bearer(text), "secret", now_wall_s=1.7e9)
    url = "sagemaker.amazonaws.com/?" + "&".join(f"{k}={v}" for k, v in pairs.items())
    with contextlib.suppress(AwsError):
        bearer.verify_bearer(bearer.parse_bearer(wrapped(url)), "secret", now_wall_s=1.7e9)


def wrapped(url: str) -> str:
    return bearer.PREFIX + base64.b64encode(url.encode()).decode()


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
NUMBERS = st.floats(allow_nan=False)
DATA = st.lists(
    st.fixed_dictionaries(
        {"MetricName": TEXT},
        optional={
            "Value": NUMBERS,
            "Values": st.lists(NUMBERS, min_size=1, max_size=3),
            "Unit": st.sampled_from(["Count", "Percent"]),
            "StorageResolution": st.integers(0, 2**31 - 1),
            "Dimensions": st.lists(
                st.fixed_dictionaries({"Name": TEXT, "Value": TEXT}), min_size=1, max_size=3
            ),
        },
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(namespace=TEXT, data=DATA)
def test_what_botocore_sends_arrives_over_either_protocol(namespace: str, data: Any) -> None:
    params = {"Namespace": namespace, "MetricData": data}
    operation = CLOUDWATCH.operation_model("PutMetricData")
    for serializer, module in ((JSONSerializer(), json_rpc), (QuerySerializer(), query)):
        sent = serializer.serialize_to_request(params, operation)
        body = sent["body"] if module is json_rpc else urlencode(sent["body"]).encode()
        http = HttpRequest(sent["method"], sent["url_path"], "", sent["headers"], body)
        assert module.parse_request(CLOUDWATCH, http).params == params
