"""botocore's protocol vectors with the roles swapped: it is the client, we are the server.

Input: the request that a client must send is parsed here and must give the parameters it came from.
Output: the result or error that a client must read is written here, read by botocore's own parser,
and must come out as it went in; JSON and XML bodies must also equal the vector's own.
"""

from __future__ import annotations

import copy
import json
import math
import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest
from botocore.awsrequest import HeadersDict
from botocore.parsers import JSONParser, QueryParser, RestJSONParser
from tests.wire import aws_vectors
from tests.wire.aws_vectors import PROTOCOLS

from penstock.wire.aws import values
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest, HttpResponse

aws_vectors.require()

PARSERS = {"json": JSONParser, "query": QueryParser, "rest-json": RestJSONParser}

_COMPRESSED = "the vector has no body: test_aws_http.py holds gzip bodies"
_HOST_PATH = "the client's endpoint has a path of its own, which is not the server's"
_TOKEN = "the client fills in a token that its caller left out; the server sees a token"
_QUERY_MAP = "on the server's side the map has the whole query string, see Smithy's httpQueryParams"

#: Requests that don't say what the client's caller had said.
INPUT_LEFT_OUT = {
    "SDKAppliedContentEncoding_awsJson1_1": _COMPRESSED,
    "SDKAppendsGzipAndIgnoresHttpProvidedEncoding_awsJson1_1": _COMPRESSED,
    "SDKAppliedContentEncoding_awsJson1_0": _COMPRESSED,
    "SDKAppendsGzipAndIgnoresHttpProvidedEncoding_awsJson1_0": _COMPRESSED,
    "SDKAppliedContentEncoding_awsQuery": _COMPRESSED,
    "SDKAppendsGzipAndIgnoresHttpProvidedEncoding_awsQuery": _COMPRESSED,
    "SDKAppliedContentEncoding_restJson1": _COMPRESSED,
    "SDKAppendedGzipAfterProvidedEncoding_restJson1": _COMPRESSED,
    "RestJsonHostWithPath": _HOST_PATH,
    "QueryProtocolIdempotencyTokenAutoFill": _TOKEN,
    "RestJsonQueryIdempotencyTokenAutoFill": _TOKEN,
    "QueryEmptyQueryMaps": "an empty map leaves no trace in a form",
    "RestJsonOmitsEmptyListQueryValues": "an empty list leaves no trace in a query string",
    "RestJsonQueryParamsStringListMap": _QUERY_MAP,
    "RestJsonQueryPrecedence": _QUERY_MAP,
    "MediaTypeHeaderInputBase64": "means the text `true`; botocore's trait means its JSON value",
    "RestJsonHttpWithEmptyStructurePayload": "a structure that isn't there is sent as {}",
    "RestJsonHttpWithHeadersButNoPayload": "a structure that isn't there is sent as {}",
}

#: Answers that botocore's parser doesn't read as it should; body and headers are compared instead.
BOTOCORE_CANNOT_READ = {
    "RestJsonHttpPayloadTraitsWithNoBlobBody": "makes an empty text of no body",
    "RestJsonHttpPayloadWithUnsetUnion": "takes no body for a union without members",
    "RestJsonInputAndOutputWithQuotedStringHeaders": "splits quoted items at their commas",
    "RestJsonInputAndOutputWithTimestampHeaders": "splits dates at their commas",
    "HttpPrefixHeadersResponse": "takes our own headers into a map without prefix, rightly",
    "QueryXmlLists": "looks for flattened lists by the name of their items only",
}

OUTPUT_LEFT_OUT = {
    "MediaTypeHeaderOutputBase64": "means the text `true`; botocore's trait means its JSON value",
}

_OFFSET = "we write UTC"
_FOREIGN = "the vector adds what a server of this model would not send"
_NO_BODY = "all members sit in headers or status, so we send no body"

#: Answers that may be written in several ways; ours is another one than the vector's.
BODY_DIFFERS = {
    "AwsJson11DateTimeWithNegativeOffset": _OFFSET,
    "AwsJson11DateTimeWithPositiveOffset": _OFFSET,
    "AwsQueryDateTimeWithNegativeOffset": _OFFSET,
    "AwsQueryDateTimeWithPositiveOffset": _OFFSET,
    "RestJsonDateTimeWithNegativeOffset": _OFFSET,
    "RestJsonDateTimeWithPositiveOffset": _OFFSET,
    "handles_unexpected_json_output": _FOREIGN,
    "AwsJson10HandlesUnexpectedJsonOutput": _FOREIGN,
    "AwsJson11DeserializeIgnoreType": _FOREIGN,
    "AwsJson10DeserializeIgnoreType": _FOREIGN,
    "RestJsonDeserializeIgnoreType": _FOREIGN,
    "AwsJson11StructuresDontDeserializeNullValues": _FOREIGN,
    "AwsJson10DeserializeAllowNulls": _FOREIGN,
    "RestJsonDeserializesDenseSetMapAndSkipsNull": _FOREIGN,
    "RestJsonDoesntDeserializeNullStructureValues": _FOREIGN,
    "QueryXmlNamespaces": "the vector leaves out a namespace that its own model declares",
    "RestJsonGreetingWithErrors": _NO_BODY,
    "RestJsonHttpResponseCode": _NO_BODY,
    "RestJsonIgnoreQueryParamsInResponse": _NO_BODY,
}


def comparable(value: Any) -> Any:
    """Values as the vectors write them: bytes as text, NaN by name, nothing without a value."""
    match value:
        case bytes():
            return value.decode()
        case dict():
            return {key: comparable(item) for key, item in value.items() if item is not None}
        case list():
            return [comparable(item) for item in value]
        case float() if not math.isfinite(value):
            return values.format_float(value)
    return value


@pytest.mark.parametrize(("suite", "case"), aws_vectors.protocol_cases("input", INPUT_LEFT_OUT))
def test_a_clients_request_gives_the_parameters_it_was_made_of(
    suite: dict[str, Any], case: dict[str, Any]
) -> None:
    model = aws_vectors.model_of(suite, case)
    sent = case["serialized"]
    path, _, query = sent.get("uri", "/").partition("?")
    headers = dict(sent.get("headers", {}))
    if "targetPrefix" in model.metadata:  # not every vector lists it
        target = f"{model.metadata['targetPrefix']}.{case['given']['name']}"
        headers.setdefault("X-Amz-Target", target)
    body = sent.get("body", "").encode()
    http = HttpRequest(sent.get("method", "POST"), path, query, headers, body)

    parsed = PROTOCOLS[model.metadata["protocol"]].parse_request(model, http)

    assert parsed.operation.name == case["given"]["name"]
    assert comparable(parsed.params) == comparable(case["params"])


@pytest.mark.parametrize(("suite", "case"), aws_vectors.protocol_cases("output", OUTPUT_LEFT_OUT))
def test_botocore_reads_from_our_answer_what_went_into_it(
    suite: dict[str, Any], case: dict[str, Any]
) -> None:
    model = aws_vectors.model_of(copy.deepcopy(suite), case)
    operation = model.operation_model(case["given"]["name"])
    protocol = PROTOCOLS[model.metadata["protocol"]]

    if "error" in case:
        error = AwsError(
            case["errorCode"],
            case.get("errorMessage", ""),
            members={k: v for k, v in case["error"].items() if k.lower() != "message"},
        )
        response = protocol.serialize_error(model, error, request_id="id-1")
        expected = case["error"] | {
            "Error": {"Code": case["errorCode"], "Message": case.get("errorMessage", "")}
        }
    else:
        result = {name: special_float(value) for name, value in case["result"].items()}
        response = protocol.serialize_response(operation, result, request_id="id-1")
        expected = case["result"]
        assert response.status == case["response"].get("status_code", 200)
        if model.metadata["protocol"] == "rest-json":
            assert_same_headers(case["response"].get("headers", {}), response)

    assert dict(response.headers)["x-amzn-RequestId"] == "id-1"
    if case["id"] not in BOTOCORE_CANNOT_READ:
        assert parsed_by_botocore(model, operation, response) == comparable(expected)
    if case["id"] not in BODY_DIFFERS and "error" not in case:
        assert_same_body(model.metadata["protocol"], case["response"].get("body", ""), response)


def special_float(value: Any) -> Any:
    """The vectors write the three floats that JSON lacks as text."""
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def assert_same_headers(expected: dict[str, str], response: HttpResponse) -> None:
    ours = HeadersDict(response.headers)
    for name, value in expected.items():
        if name.lower() not in ("content-type", "content-length"):
            assert ours[name] == value


def parsed_by_botocore(model: Any, operation: Any, response: HttpResponse) -> Any:
    parser = PARSERS[model.metadata["protocol"]](timestamp_parser=timestamp)
    raw = {
        "status_code": response.status,
        "headers": HeadersDict(response.headers),
        "body": response.body,
        "context": {"operation_name": operation.name},
    }
    shape = operation.output_shape
    wrapped = model.metadata["protocol"] == "query" and shape is not None
    if wrapped:
        shape.serialization["resultWrapper"] = f"{operation.name}Result"
    parsed = parser.parse(raw, shape)
    if "Error" in parsed:
        error_shape = model.shape_for_error_code(parsed["Error"]["Code"])
        if error_shape is not None:
            parsed |= parser.parse(raw, error_shape)
        parsed["Error"] = {key: parsed["Error"].get(key, "") for key in ("Code", "Message")}
    parsed.pop("ResponseMetadata", None)
    return comparable(parsed)


def test_the_lists_of_exceptions_name_cases_that_exist() -> None:
    known = {
        param.values[1]["id"]
        for direction in ("input", "output")
        for param in aws_vectors.protocol_cases(direction)
    }
    listed = [*INPUT_LEFT_OUT, *OUTPUT_LEFT_OUT, *BOTOCORE_CANNOT_READ, *BODY_DIFFERS]
    assert [case for case in listed if case not in known] == []


def timestamp(text: Any) -> float:
    return values.parse_timestamp(str(text), "")


def assert_same_body(protocol: str, expected: str, response: HttpResponse) -> None:
    if not expected:
        return
    if protocol == "query":
        ours = re.sub("<ResponseMetadata>.*</ResponseMetadata>", "", response.body.decode())
        assert canonical(ours) == canonical(expected)
    elif "json" in dict(response.headers).get("Content-Type", ""):
        assert json.loads(response.body) == json.loads(expected)
    else:
        assert response.body.decode() == expected


def canonical(document: str) -> str:
    return ET.canonicalize(document, strip_text=True)
