"""Errors on their way to a client, and the JSON protocols around them, on a small service."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.model import ServiceModel

from penstock.wire.aws import errors, json_rpc, models
from penstock.wire.aws.errors import AwsError, fault_of
from penstock.wire.aws.http import HttpRequest, HttpResponse

SHAPES: dict[str, Any] = {
    "Text": {"type": "string"},
    "Moment": {"type": "timestamp"},
    "In": {"type": "structure", "members": {"A": {"shape": "Text"}}},
    "Gone": {
        "type": "structure",
        "exception": True,
        "error": {"httpStatusCode": 410, "code": "Old.Gone"},
        "members": {"Message": {"shape": "Text"}, "When": {"shape": "Moment", "locationName": "w"}},
    },
    "Ours": {
        "type": "structure",
        "exception": True,
        "error": {"httpStatusCode": 409, "senderFault": False},
        "members": {"message": {"shape": "Text"}},
    },
    "Plain": {"type": "structure", "exception": True, "members": {}},
    "Old.Gone2": {"type": "structure", "members": {}},
}


def service(**metadata: Any) -> ServiceModel:
    operations = {
        "Do": {"name": "Do", "http": {"method": "POST", "requestUri": "/"},
               "input": {"shape": "In"}, "output": {"shape": "In"}},
        "Nothing": {"name": "Nothing", "http": {"method": "POST", "requestUri": "/"}},
    }  # fmt: skip
    given = {"protocol": "json", "jsonVersion": "1.1", "targetPrefix": "X.Y"} | metadata
    return ServiceModel({"metadata": given, "operations": operations, "shapes": SHAPES}, "x")


MODEL = service()


@pytest.mark.parametrize(
    ("error", "status", "sender", "name", "key"),
    [
        (AwsError("Gone"), 410, True, "Gone", "Message"),
        (AwsError("Old.Gone"), 410, True, "Gone", "Message"),
        (AwsError("Gone", status=499), 499, True, "Gone", "Message"),
        (AwsError("Gone", status=500), 500, False, "Gone", "Message"),
        (AwsError("Gone", sender=False), 410, False, "Gone", "Message"),
        (AwsError("Ours"), 409, False, "Ours", "message"),
        (AwsError("Ours", sender=True), 409, True, "Ours", "message"),
        (AwsError("Plain"), 400, True, "Plain", "message"),
        (AwsError("Plain", sender=False), 500, False, "Plain", "message"),
        (AwsError("Plain", sender=True), 400, True, "Plain", "message"),
        (AwsError("Unheard"), 400, True, "Unheard", "message"),
        (AwsError("Unheard", status=503), 503, False, "Unheard", "message"),
        (AwsError("In"), 400, True, "In", "message"),
    ],
)
def test_what_an_error_leaves_out_is_its_models(
    error: AwsError, status: int, sender: bool, name: str, key: str
) -> None:
    fault = fault_of(MODEL, error)
    assert (fault.status, fault.sender, fault.name, fault.message_key) == (
        status, sender, name, key,
    )  # fmt: skip
    assert (fault.shape is not None) == (name in ("Gone", "Ours", "Plain"))


def test_the_older_code_of_an_error_stands_beside_its_name() -> None:
    assert fault_of(MODEL, AwsError("Gone")).code == "Old.Gone"
    assert fault_of(MODEL, AwsError("Ours")).code == "Ours"
    assert fault_of(MODEL, AwsError("Unheard")).code == "Unheard"


def test_requests_that_can_not_be_read_are_the_clients_fault() -> None:
    for error, code in (
        (errors.unreadable("why"), "SerializationException"),
        (errors.unknown_operation("why"), "UnknownOperationException"),
    ):
        assert (error.code, error.message, error.status) == (code, "why", 400)
        assert (error.sender, error.members, str(error)) == (None, {}, f"{code}: why")
    assert errors.unknown_operation("why", status=404).status == 404


def asked(target: str | None, body: bytes = b"{}") -> Any:
    headers = {} if target is None else {"X-Amz-Target": target}
    return json_rpc.parse_request(MODEL, HttpRequest("POST", "/", "", headers, body))


def test_a_target_names_the_service_and_the_operation() -> None:
    got = asked("X.Y.Do", b'{"A":"b","Other":1}')
    assert (got.operation.name, got.params) == ("Do", {"A": "b"})
    got = asked("X.Y.Nothing", b'{"A":"b"}')
    assert (got.operation.name, got.params) == ("Nothing", {})


@pytest.mark.parametrize("target", [None, "", "Do", "X.Do", "X.Y.", "X.Y.Other", "Z.Y.Do"])
def test_any_other_target_is_no_operation(target: str | None) -> None:
    with pytest.raises(AwsError) as caught:
        asked(target)
    assert (caught.value.code, caught.value.status) == ("UnknownOperationException", 400)


def test_an_operation_may_be_left_unserved() -> None:
    assert models.operation_named(MODEL, "Do", served={"Do"}).name == "Do"
    for name, served in (("Do", {"Nothing"}), ("Other", {"Other"}), ("Other", None)):
        with pytest.raises(AwsError, match="is not available here"):
            models.operation_named(MODEL, name, served=served)


HEADERS = [("Content-Type", "application/x-amz-json-1.1"), ("x-amzn-RequestId", "r")]


def test_an_answer_is_json_with_the_models_version() -> None:
    for name, body in (("Do", b'{"A":"b"}'), ("Nothing", b"{}")):
        response = json_rpc.serialize_response(
            MODEL.operation_model(name), {"A": "b"} if name == "Do" else {}, request_id="r"
        )
        assert response == HttpResponse(200, HEADERS, body)


@pytest.mark.parametrize(
    ("error", "status", "body"),
    [
        (AwsError("Gone", "Why?", members={"When": 1.5, "Other": [1]}), 410,
         b'{"__type":"Gone","Message":"Why?","w":1.5,"Other":[1]}'),
        (AwsError("Unheard", members={"When": 1.5}), 400, b'{"__type":"Unheard","When":1.5}'),
        (AwsError("Ours", ""), 409, b'{"__type":"Ours"}'),
    ],
)  # fmt: skip
def test_an_error_tells_its_type_and_the_members_that_its_shape_has(
    error: AwsError, status: int, body: bytes
) -> None:
    response = json_rpc.serialize_error(MODEL, error, request_id="r")
    assert response == HttpResponse(status, HEADERS, body)


@pytest.mark.parametrize(
    ("error", "told"),
    [(AwsError("Gone"), "Old.Gone;Sender"), (AwsError("Ours"), "Ours;Receiver")],
)
def test_a_service_that_spoke_query_tells_the_older_code(error: AwsError, told: str) -> None:
    model = service(awsQueryCompatible={})
    response = json_rpc.serialize_error(model, error, request_id="r")
    assert response.headers[2:] == [("x-amzn-query-error", told)]
