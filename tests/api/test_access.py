"""Who may come in, case by case: addresses, signatures, bearer keys, and how a stranger is told."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock.api.access import KeyAuthenticator, check_binding, key_of
from penstock.api.aws import AwsFrontDoor
from penstock.clock import ManualClock
from penstock.config import ListenConfig
from penstock.core.request.grants import Grant
from penstock.errors import CallerError
from penstock.gateway.http.listener_state import Denied
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.sigv4 import seconds_of

KEY, SECRET, TOKEN = "PENSEXAMPLE", "a secret", "psk_token"
LIST_ENDPOINTS = {"x-amz-target": "SageMaker.ListEndpoints"}
DESCRIBE_TARGETS = {"x-amz-target": "AnyScaleFrontendService.DescribeScalableTargets"}
LIST_METRICS = {"x-amz-target": "GraniteServiceVersion20100801.ListMetrics"}
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}


class AccessRing:
    """One access key and one bearer key."""

    def secret(self, access_key_id: str) -> str | None:
        return SECRET if access_key_id == KEY else None

    def bearer(self, token: str) -> str | None:
        return "key-1" if token == TOKEN else None

    def grant(self, key_id: str) -> Grant | None:
        return Grant()


class AccessSite:
    """An authenticator whose clock stands at the moment of the last signature."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.authenticator = KeyAuthenticator(AccessRing(), self.clock)

    def sign(
        self,
        path: str,
        body: bytes = b"{}",
        *,
        service: str = "sagemaker",
        key: str = KEY,
        secret: str = SECRET,
        headers: dict[str, str] | None = None,
    ) -> dict[str, str]:
        """The headers of a POST as botocore signs it."""
        request = AWSRequest("POST", f"http://localhost{path}", data=body, headers=headers or {})
        SigV4Auth(Credentials(key, secret), service, "eu-west-1").add_auth(request)
        self.clock = ManualClock(wall_s=seconds_of(request.headers["X-Amz-Date"]))
        self.authenticator = KeyAuthenticator(AccessRing(), self.clock)
        return {"host": "localhost", **dict(request.headers.items())}

    def check(self, path: str, headers: dict[str, str], body: bytes = b"{}") -> None:
        """As the listener asks: the head first, and whatever it passes as a whole."""
        raw_path, _, query = path.encode().partition(b"?")
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.authenticator.check_head("POST", raw_path, query, pairs)
        self.authenticator.check("POST", raw_path, query, pairs, body)

    def refusal(self, path: str, headers: dict[str, str], body: bytes = b"{}") -> tuple[str, str]:
        with pytest.raises(AwsError) as caught:
            self.check(path, headers, body)
        assert caught.value.status == 403
        return caught.value.code, caught.value.message


@pytest.fixture
def site() -> AccessSite:
    return AccessSite()


def test_whose_a_request_is_follows_from_the_key_that_it_shows(site: AccessSite) -> None:
    def shown(headers: dict[str, str]) -> str:
        return key_of(HttpRequest("POST", "/", "", list(headers.items()), b""), AccessRing())

    assert shown(site.sign("/")) == KEY
    assert shown({"Authorization": f"Bearer {TOKEN}"}) == "key-1"
    assert shown({"Authorization": "Bearer psk_unknown"}) == ""
    assert shown({"Authorization": f"Bearer {'x' * 20_000}"}) == ""
    assert shown({"Authorization": "Basic eDp5"}) == ""
    assert shown({}) == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"])
def test_loopback_needs_no_credentials(host: str) -> None:
    check_binding(ListenConfig(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "server.example", ""])
def test_an_address_that_strangers_reach_needs_auth_or_the_word_insecure(host: str) -> None:
    with pytest.raises(CallerError) as caught:
        check_binding(ListenConfig(host=host))
    assert caught.value.code == "credentials-required"
    assert "--auth" in caught.value.hint
    assert "--insecure" in caught.value.hint
    check_binding(ListenConfig(host=host, auth=True))
    check_binding(ListenConfig(host=host, insecure=True))


@pytest.mark.parametrize("path", ["/ping", "/health", "/v2/health/live", "/v2/health/ready"])
def test_whether_the_server_lives_may_be_asked_by_anybody(site: AccessSite, path: str) -> None:
    site.check(path, {}, b"")
    site.check(path, {"content-length": "0"}, b"")


@pytest.mark.parametrize("path", ["/ping", "/health", "/v2/health/live", "/v2/health/ready"])
@pytest.mark.parametrize(
    "header", [(b"Content-Length", b"6000000"), (b"TRANSFER-ENCODING", b"chunked")]
)
def test_a_body_needs_a_key_wherever_it_is_sent(
    site: AccessSite, path: str, header: tuple[bytes, bytes]
) -> None:
    """Else strangers fill the memory for bodies through the paths that ask for none."""
    with pytest.raises(AwsError) as caught:
        site.authenticator.check_head("POST", path.encode(), b"", [header])
    assert caught.value.code == "MissingAuthenticationTokenException"
    assert site.refusal(path, {}, b"x")[0] == "MissingAuthenticationTokenException"


ASKS_BEFORE = [(b"Origin", b"https://a.example"), (b"Access-Control-Request-Method", b"POST")]


@pytest.mark.parametrize(
    ("path", "is_open"),
    [
        ("/v1/chat/completions", True),
        ("/rerank", True),
        ("/endpoints/shop/openai/v1/models", True),
        ("/v2/models/shop/infer", False),
        ("/admin/copies", False),
        ("/", False),
    ],
)
def test_a_browser_asks_without_a_key_whether_a_page_may_send(
    site: AccessSite, path: str, is_open: bool
) -> None:
    def check(method: str, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        site.authenticator.check_head(method, path.encode(), b"", headers)
        site.authenticator.check(method, path.encode(), b"", headers, body)

    for method, headers, body in (
        ("OPTIONS", [], b""), ("POST", ASKS_BEFORE, b""), ("OPTIONS", ASKS_BEFORE, b"x"),
    ):  # fmt: skip
        with pytest.raises(AwsError):
            check(method, headers, body)
    if is_open:
        check("OPTIONS", ASKS_BEFORE, b"")
    else:
        with pytest.raises(AwsError):
            check("OPTIONS", ASKS_BEFORE, b"")


@pytest.mark.parametrize("path", ["/", "/metrics", "/admin/copies", "/v2", "/ping/", "//ping"])
def test_nothing_else_is_open(site: AccessSite, path: str) -> None:
    assert site.refusal(path, {})[0] == "MissingAuthenticationTokenException"


@pytest.mark.parametrize(
    ("path", "service", "headers"),
    [
        ("/", "sagemaker", LIST_ENDPOINTS),
        ("/", "application-autoscaling", DESCRIBE_TARGETS),
        ("/", "monitoring", LIST_METRICS),
        ("/", "monitoring", FORM),
        ("/endpoints/shop/invocations", "sagemaker", {"content-type": "text/csv;  a=b"}),
        ("/endpoints/a%20b%2Fc%C3%A9~/invocations", "sagemaker", {}),
        ("/endpoints/shop/invocations?b=2&a=%2F&a=1", "sagemaker", {}),
    ],
)
def test_a_signature_passes_for_the_service_it_was_made_for_and_for_no_other(
    site: AccessSite, path: str, service: str, headers: dict[str, str]
) -> None:
    site.check(path, site.sign(path, service=service, headers=headers))
    other = "monitoring" if service == "sagemaker" else "sagemaker"
    code, message = site.refusal(path, site.sign(path, service=other, headers=headers))
    assert (code, message) == (
        "InvalidSignatureException",
        f"Credential should be scoped to correct service: '{service}'.",
    )


def test_whatever_is_changed_on_the_way_is_noticed(site: AccessSite) -> None:
    path = "/endpoints/shop/invocations"
    signed = site.sign(path, headers={"x-amzn-sagemaker-target-variant": "blue"})
    mismatch = "The request signature we calculated does not match"
    site.check(path, signed)
    for changed in (
        site.refusal(path, signed, b"{ }"),
        site.refusal(path.replace("shop", "other"), signed),
        site.refusal(f"{path}?x=1", signed),
        site.refusal(path, signed | {"x-amzn-sagemaker-target-variant": "green"}),
        site.refusal(path, signed | {"host": "other"}),
    ):
        assert changed[0] == "InvalidSignatureException"
        assert changed[1].startswith(mismatch)


def test_the_operation_must_be_signed_too(site: AccessSite) -> None:
    """Else one who saw a signed ListEndpoints could make it a DeleteEndpoint of the same body."""
    signed = site.sign("/") | {"x-amz-target": "SageMaker.DeleteEndpoint"}
    assert site.refusal("/", signed) == (
        "IncompleteSignatureException",
        "'x-amz-target' must be a signed header.",
    )


def test_a_wrong_secret_and_an_unknown_key_have_codes_of_their_own(site: AccessSite) -> None:
    assert site.refusal("/", site.sign("/", secret="wrong"))[0] == "InvalidSignatureException"
    assert site.refusal("/", site.sign("/", key="AKIANOBODY")) == (
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
    )


@pytest.mark.parametrize(
    ("clock_off_s", "said"),
    [(600, "Signature expired"), (301, "Signature expired"), (-600, "Signature not yet current")],
)
def test_a_clock_that_is_off_by_more_than_five_minutes_is_refused(
    site: AccessSite, clock_off_s: float, said: str
) -> None:
    signed = site.sign("/")
    late = KeyAuthenticator(AccessRing(), ManualClock(wall_s=site.clock.wall() + clock_off_s))
    site.authenticator = late
    code, message = site.refusal("/", signed)
    assert (code, message.startswith(said)) == ("InvalidSignatureException", True)


@pytest.mark.parametrize("off_s", [-300, -200, 200, 300])
def test_a_clock_that_is_off_by_less_passes(site: AccessSite, off_s: float) -> None:
    signed = site.sign("/")
    site.authenticator = KeyAuthenticator(
        AccessRing(), ManualClock(wall_s=site.clock.wall() + off_s)
    )
    site.check("/", signed)


def test_a_bearer_key_opens_every_door(site: AccessSite) -> None:
    for path in ("/", "/v2/models/shop/infer", "/endpoints/shop/invocations", "/admin/copies"):
        site.check(path, {"authorization": f"Bearer {TOKEN}"})
        site.check(path, {"Authorization": f"bearer  {TOKEN} "})


@pytest.mark.parametrize(
    ("authorization", "code"),
    [
        ("Bearer psk_other", "UnrecognizedClientException"),
        ("Bearer ", "UnrecognizedClientException"),
        ("Bearer", "IncompleteSignatureException"),
        ("Basic YTpi", "IncompleteSignatureException"),
        ("AWS4-HMAC-SHA256 Credential=x", "IncompleteSignatureException"),
        ("Bearer sagemaker-api-key-%%%", "IncompleteSignatureException"),
        ("", "MissingAuthenticationTokenException"),
    ],
)
def test_what_is_neither_a_key_nor_a_signature_is_refused(
    site: AccessSite, authorization: str, code: str
) -> None:
    assert site.refusal("/", {"authorization": authorization})[0] == code


def presigned(*, expires_s: int = 3600, secret: str = SECRET) -> tuple[str, float]:
    """A token as the clients of the OpenAI route make it, and when it was made."""
    url = "https://sagemaker.amazonaws.com/"
    request = AWSRequest("POST", url, params={"Action": "CallWithBearerToken"})
    signer = SigV4QueryAuth(Credentials(KEY, secret), "sagemaker", "us-west-2", expires=expires_s)
    signer.add_auth(request)
    signed = request.url.removeprefix("https://") + "&Version=1"
    token = "sagemaker-api-key-" + base64.b64encode(signed.encode()).decode()
    return token, seconds_of(request.context["timestamp"])


@pytest.mark.parametrize(
    ("options", "after_s", "code"),
    [
        ({}, 3599, None),
        ({}, 3601, "InvalidSignatureException"),
        ({"secret": "wrong"}, 0, "InvalidSignatureException"),
        ({"expires_s": 43_201}, 0, "InvalidSignatureException"),
    ],
)
def test_a_presigned_token_is_a_bearer_key_until_it_expires(
    site: AccessSite, options: dict[str, Any], after_s: float, code: str | None
) -> None:
    token, made_s = presigned(**options)
    site.authenticator = KeyAuthenticator(AccessRing(), ManualClock(wall_s=made_s + after_s))
    headers = {"authorization": f"Bearer {token}"}
    if code is None:
        site.check("/endpoints/shop/invocations", headers)
    else:
        assert site.refusal("/endpoints/shop/invocations", headers)[0] == code


DENIED = Denied("UnrecognizedClientException", "Who is this?")


def refused(headers: dict[str, str], error: CallerError = DENIED) -> Any:
    door = AwsFrontDoor((), region_default="us-east-1")
    return door.refuse(HttpRequest("POST", "/", "", headers), error, "id-1")


def test_a_stranger_is_told_in_the_form_of_the_protocol_it_speaks() -> None:
    """Clients raise the code only if they find it where their protocol puts it."""
    json_1_1 = refused(LIST_ENDPOINTS)
    assert (json_1_1.status, dict(json_1_1.headers)["Content-Type"]) == (
        403,
        "application/x-amz-json-1.1",
    )
    assert json.loads(json_1_1.body) == {
        "__type": "UnrecognizedClientException",
        "message": "Who is this?",
    }
    json_1_0 = refused(LIST_METRICS)
    assert dict(json_1_0.headers)["Content-Type"] == "application/x-amz-json-1.0"
    assert dict(json_1_0.headers)["x-amzn-query-error"] == "UnrecognizedClientException;Sender"
    query = refused(FORM)
    assert (query.status, dict(query.headers)["Content-Type"]) == (403, "text/xml")
    assert b"<Code>UnrecognizedClientException</Code>" in query.body
    assert json.loads(refused({}).body)["__type"] == "UnrecognizedClientException"


def test_what_is_too_large_keeps_its_status_and_its_hint() -> None:
    error = CallerError("body-too-large", "The body is too large.", hint="Send less.", status=413)
    answer = refused(LIST_ENDPOINTS, error)
    assert answer.status == 413
    assert json.loads(answer.body) == {
        "__type": "ValidationException",
        "message": "The body is too large. Send less.",
    }
