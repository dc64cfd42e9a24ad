"""What a key opens, door by door: its scope, its endpoints, and what tokens made with it may do."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock.api.access import KeyAuthenticator, asked_of
from penstock.api.aws import AwsFrontDoor
from penstock.api.oip.grpc_status import translate as grpc_error
from penstock.api.oip.http import translate as oip_error
from penstock.api.openai.errors import translate as openai_error
from penstock.api.runtime.errors import RuntimeErrors
from penstock.clock import ManualClock
from penstock.core.request.grants import Grant
from penstock.gateway.http.listener_state import Denied
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.sigv4 import seconds_of

KEY, SECRET, TOKEN = "PENSEXAMPLE", "a secret", "psk_token"


class ScopedRing:
    def __init__(self, grant: Grant) -> None:
        self._grant = grant

    def secret(self, access_key_id: str) -> str | None:
        return SECRET if access_key_id == KEY else None

    def bearer(self, token: str) -> str | None:
        return "key-1" if token == TOKEN else None

    def grant(self, key_id: str) -> Grant | None:
        return self._grant


def outcome(
    grant: Grant,
    request: str,
    body: bytes = b"{}",
    *,
    token: str = TOKEN,
    wall_s: float = 0.0,
    headers: dict[str, str] | None = None,
) -> str:
    """`passes`, or at which look it is refused, and how: `head: AccessDeniedException`."""
    method, _, path = request.partition(" ")
    given = {"authorization": f"Bearer {token}", **(headers or {})}
    if not path.startswith("/"):  # an operation of the control plane
        given["x-amz-target"], path = f"{method}.{path}", "/"
        method = "POST"
    authenticator = KeyAuthenticator(ScopedRing(grant), ManualClock(wall_s=wall_s))
    pairs = [(name.encode(), value.encode()) for name, value in given.items()]
    try:
        authenticator.check_head(method, path.encode(), b"", pairs)
    except AwsError as error:
        return f"head: {error.code}"
    try:
        authenticator.check(method, path.encode(), b"", pairs, body)
    except AwsError as error:
        return f"body: {error.code}"
    return "passes"


DENIED = "head: AccessDeniedException"
METRICS = "GraniteServiceVersion20100801"
FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("request_", "scope"),
    [
        ("POST /endpoints/shop/invocations", "invoke"),
        ("POST /endpoints/shop/invocations-response-stream", "invoke"),
        ("POST /endpoints/shop/openai/v1/chat/completions", "invoke"),
        ("POST /v1/chat/completions", "invoke"),
        ("GET /v1/models", "invoke"),
        ("POST /rerank", "invoke"),
        ("POST /v2/rerank", "invoke"),
        ("POST /tokenize", "invoke"),
        ("GET /version", "invoke"),
        ("POST /rerank/x", "admin"),
        ("POST /v2/models/shop/infer", "invoke"),
        ("POST /v2/models/shop/versions/1/infer", "invoke"),
        ("GET /v2/models/shop/ready", "invoke"),
        ("POST /v2/models/shop:team/a/infer", "invoke"),
        ("GET /v2/models/shop:a", "invoke"),
        ("POST /v2/repository/index", "invoke"),
        ("POST /v2/repository/models/shop:a/load", "operate"),
        ("POST /v2/repository/models/shop:team/a/unload", "operate"),
        ("GET /v2", "invoke"),
        ("GET /", "invoke"),
        ("GET /metrics", "operate"),
        ("GET /admin/copies", "operate"),
        ("GET /penstock/v1/traffic", "operate"),
        ("PUT /penstock/v1/ratios", "operate"),
        ("GET /admin/endpoints/shop/logs", "operate"),
        ("GET /admin/jobs", "operate"),
        ("GET /admin/jobs/nightly/logs", "operate"),
        ("GET /admin/endpoints/shop/models/a", "operate"),
        ("POST /admin/endpoints/shop/models/a/load", "operate"),
        ("GET /admin/endpoints/shop/rollout", "operate"),
        ("POST /admin/endpoints/shop/rollout/abort", "operate"),
        ("POST /admin/endpoints/shop/models/team/b/rollout/abort", "operate"),
        ("POST /admin/endpoints/shop/models/team/b/rollout", "admin"),
        ("POST /admin/endpoints/shop/models/team/b/load", "operate"),
        ("SageMaker DescribeEndpoint", "operate"),
        ("SageMaker ListModels", "operate"),
        ("SageMaker UpdateEndpointWeightsAndCapacities", "operate"),
        (f"{METRICS} PutMetricData", "operate"),
        (f"{METRICS} GetMetricData", "operate"),
        ("GET /admin/schedules", "operate"),
        ("GET /admin/schedules/nightly", "operate"),
        ("POST /admin/schedules/nightly", "admin"),
        ("POST /admin/schedules/nightly/run-now", "admin"),
        ("DELETE /admin/schedules/nightly", "admin"),
        ("SageMaker CreateModel", "admin"),
        ("SageMaker CreateEndpoint", "admin"),
        ("SageMaker DeleteEndpoint", "admin"),
        ("SageMaker NoSuchOperation", "admin"),
        ("GET /%61dmin/copies", "admin"),
        ("GET //admin/copies", "admin"),
        ("POST /elsewhere", "admin"),
        ("POST /", "admin"),
    ],
)
def test_a_key_opens_what_its_scope_says_and_is_told_at_the_head(request_: str, scope: str) -> None:
    scopes = ("invoke", "operate", "admin")
    found = {one: outcome(Grant(one), request_) for one in scopes}
    wide_enough = scopes[scopes.index(scope) :]
    assert found == {one: "passes" if one in wide_enough else DENIED for one in scopes}


def test_a_form_is_cloudwatchs_and_needs_to_operate() -> None:
    assert outcome(Grant("invoke"), "POST /", b"Action=ListMetrics", headers=FORM) == DENIED
    assert outcome(Grant("operate"), "POST /", b"Action=ListMetrics", headers=FORM) == "passes"


@pytest.mark.parametrize(
    ("request_", "body", "expected"),
    [
        ("POST /endpoints/shop/invocations", {}, "passes"),
        ("POST /endpoints/SHOP/invocations", {}, "passes"),
        ("POST /endpoints/s%68op/invocations", {}, "passes"),
        ("POST /endpoints/shop%2Fx/invocations", {}, DENIED),
        ("POST /endpoints/bank/invocations", {}, DENIED),
        ("POST /v2/models/shop/infer", {}, "passes"),
        ("POST /v2/models/bank/infer", {}, DENIED),
        ("POST /v2/%6dodels/bank/infer", {}, DENIED),
        ("GET /v2/models/bank/config", {}, DENIED),
        ("POST /v1/chat/completions", {"model": "shop"}, "passes"),
        ("POST /v1/chat/completions", {"model": "bank"}, "body: AccessDeniedException"),
        ("POST /v1/chat/completions", {}, "body: AccessDeniedException"),
        ("POST /v1/chat/completions", {"model": ["shop"]}, "body: AccessDeniedException"),
        ("POST /rerank", {"model": "shop"}, "passes"),
        ("POST /rerank", {"model": "bank"}, "body: AccessDeniedException"),
        ("POST /v2/rerank", {}, "body: AccessDeniedException"),
        ("POST /tokenize", {"model": None}, "body: AccessDeniedException"),
        ("GET /version", {}, "passes"),
        ("GET /v1/models/shop", {}, "passes"),
        ("GET /v1/models/bank", {}, DENIED),
        ("GET /v1/models", {}, DENIED),
        ("GET /v1/models/shop:a", {}, "passes"),
        ("GET /v1/models/bank:a", {}, DENIED),
        ("POST /v1/completions", {"model": "shop:a"}, "passes"),
        ("POST /v1/completions", {"model": "bank:shop"}, "body: AccessDeniedException"),
        ("POST /v2/models/shop:a/infer", {}, "passes"),
        ("POST /v2/models/shop%3Ateam/a/infer", {}, "passes"),
        ("POST /v2/models/bank:shop/infer", {}, DENIED),
        ("POST /v2/repository/models/shop:a/load", {}, "passes"),
        ("POST /v2/repository/models/bank:a/load", {}, DENIED),
        ("POST /v2/repository/models/bank/shop:a/load", {}, DENIED),
        ("POST /v2/repository/index", {}, DENIED),
        ("POST /admin/endpoints/shop/models/a/pin", {}, "passes"),
        ("POST /admin/endpoints/bank/models/a/pin", {}, DENIED),
        ("POST /admin/endpoints/bank/rollout/abort", {}, DENIED),
        ("GET /v2", {}, "passes"),
        ("SageMaker DescribeEndpoint", {"EndpointName": "shop"}, "passes"),
        ("SageMaker DescribeEndpoint", {"EndpointName": "bank"}, "body: AccessDeniedException"),
        ("SageMaker DescribeEndpoint", {}, "body: AccessDeniedException"),
        ("SageMaker DescribeEndpoint", {"EndpointName": "shop:a"}, "body: AccessDeniedException"),
        ("SageMaker ListEndpoints", {}, DENIED),
        ("SageMaker CreateModel", {"ModelName": "shop"}, DENIED),
        (f"{METRICS} PutMetricData", {}, DENIED),
        ("GET /metrics", {}, DENIED),
        ("GET /admin/endpoints/shop/logs", {}, "passes"),
        ("GET /admin/endpoints/bank/logs", {}, DENIED),
    ],
)
def test_a_key_of_one_endpoint_opens_that_one_only(
    request_: str, body: dict[str, Any], expected: str
) -> None:
    grant = Grant("admin", frozenset({"shop"}))
    assert outcome(grant, request_, json.dumps(body).encode()) == expected


def presigned() -> tuple[str, float]:
    """A token as the clients of the OpenAI route make it, and when it was made."""
    url = "https://sagemaker.amazonaws.com/"
    request = AWSRequest("POST", url, params={"Action": "CallWithBearerToken"})
    SigV4QueryAuth(Credentials(KEY, SECRET), "sagemaker", "us-west-2", expires=43_200).add_auth(
        request
    )
    signed = request.url.removeprefix("https://") + "&Version=1"
    token = "sagemaker-api-key-" + base64.b64encode(signed.encode()).decode()
    return token, seconds_of(request.context["timestamp"])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("POST /endpoints/shop/openai/v1/chat/completions", "passes"),
        ("POST /v2/models/shop/infer", "passes"),
        ("SageMaker CreateModel", DENIED),
        ("SageMaker DescribeEndpoint", DENIED),
        ("GET /metrics", DENIED),
        ("GET /admin/copies", DENIED),
    ],
)
def test_a_token_made_to_ask_models_does_that_only_whatever_its_maker_may(
    request_: str, expected: str
) -> None:
    token, made_s = presigned()
    assert outcome(Grant("admin"), request_, token=token, wall_s=made_s) == expected


def test_a_token_is_never_more_than_the_key_that_made_it() -> None:
    token, made_s = presigned()
    grant = Grant("admin", frozenset({"shop"}))
    for name, expected in (("shop", "passes"), ("bank", DENIED)):
        path = f"POST /endpoints/{name}/invocations"
        assert outcome(grant, path, token=token, wall_s=made_s) == expected


def signed(key: str = KEY, secret: str = SECRET, **headers: str) -> tuple[dict[str, str], float]:
    request = AWSRequest("POST", "http://localhost/", data=b"{}", headers=headers)
    SigV4Auth(Credentials(key, secret), "sagemaker", "eu-west-1").add_auth(request)
    made_s = seconds_of(request.headers["X-Amz-Date"])
    return {"host": "localhost", **dict(request.headers.items())}, made_s


def look_at_head(grant: Grant, headers: dict[str, str], wall_s: float) -> str:
    authenticator = KeyAuthenticator(ScopedRing(grant), ManualClock(wall_s=wall_s))
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    try:
        authenticator.check_head("POST", b"/", b"", pairs)
    except AwsError as error:
        return error.code
    return "passes"


LIST = {"x-amz-target": "SageMaker.ListEndpoints"}


def test_the_head_of_a_signed_request_shows_what_no_body_can_mend() -> None:
    headers, made_s = signed(**LIST)
    assert look_at_head(Grant("admin"), headers, made_s) == "passes"
    assert look_at_head(Grant("operate"), headers, made_s) == "passes"
    assert look_at_head(Grant("invoke"), headers, made_s) == "AccessDeniedException"
    assert look_at_head(Grant("admin"), headers, made_s + 301) == "InvalidSignatureException"
    other = headers | {"x-amz-target": f"{METRICS}.ListMetrics"}
    assert look_at_head(Grant("admin"), other, made_s) == "InvalidSignatureException"
    unknown, made_s = signed(key="AKIANOBODY", **LIST)
    assert look_at_head(Grant("admin"), unknown, made_s) == "UnrecognizedClientException"
    without = {name: value for name, value in headers.items() if name != "Authorization"}
    assert look_at_head(Grant("admin"), without, made_s) == "MissingAuthenticationTokenException"


def test_a_wrong_secret_shows_only_with_the_body() -> None:
    """The head's look costs no hash: a stranger can't make the server compute one per head."""
    headers, made_s = signed(secret="wrong", **LIST)
    assert look_at_head(Grant("admin"), headers, made_s) == "passes"


def refusal() -> Denied:
    authenticator = KeyAuthenticator(ScopedRing(Grant("invoke")), ManualClock())
    headers = [(b"authorization", f"Bearer {TOKEN}".encode()),
               (b"x-amz-target", b"SageMaker.CreateModel")]  # fmt: skip
    with pytest.raises(AwsError) as caught:
        authenticator.check_head("POST", b"/", b"", headers)
    return Denied(caught.value.code, caught.value.message, status=caught.value.status)


def test_a_denied_caller_is_told_what_would_help_in_the_form_of_each_protocol() -> None:
    error = refusal()
    assert error.message == (
        "This key has the scope invoke and may not call CreateModel, which needs the scope admin. "
        "Make one with 'penstock keys create --scope admin'."
    )
    door = AwsFrontDoor((), region_default="us-east-1")
    http = HttpRequest("POST", "/", "", {"x-amz-target": "SageMaker.CreateModel"})
    answer = door.refuse(http, error, "id-1")
    assert answer.status == 403
    assert json.loads(answer.body)["__type"] == "AccessDeniedException"
    query = door.refuse(HttpRequest("POST", "/", "", FORM), error, "id-1")
    assert (query.status, b"<Code>AccessDenied" in query.body) == (403, True)
    head, body = RuntimeErrors("123456789012", "us-east-1").render(error, "shop")
    assert b" 403 " in head
    assert b"x-amzn-errortype: AccessDeniedException" in head
    assert json.loads(body)["Message"] == error.message
    assert oip_error(error) == (403, error.message)
    told = openai_error(error)
    assert (told.status, told.code) == (403, "insufficient_permissions")
    assert grpc_error(error)[0].name == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    "headers",
    [
        [
            (b"x-amz-target", b"SageMaker.ListEndpoints"),
            (b"X-Amz-Target", b"SageMaker.DeleteModel"),
        ],
        [(b"x-amz-target", b".CreateModel")],
        [(b"x-amz-target", b"SageMaker.CreateModel"), *[(b"content-type", b"x")] * 3],
    ],
)
def test_a_head_that_says_two_things_needs_what_the_wider_one_needs(
    headers: list[tuple[bytes, bytes]],
) -> None:
    assert asked_of("POST", b"/", headers).operation in ("CreateModel", "DeleteModel", "Unknown")
