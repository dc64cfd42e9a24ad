"""Who may come in: requests signed by botocore, and everything that can be wrong with one."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock.wire.aws import sigv4
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest

SECRET = "correct horse battery staple"
PATH = "/endpoints/query-intent/invocations"
HOST = "127.0.0.1:8080"


def signed_request(
    url: str = f"http://{HOST}{PATH}",
    *,
    method: str = "POST",
    body: bytes = b'{"inputs": "red shoes"}',
    headers: dict[str, str] | None = None,
    token: str | None = None,
    service: str = "sagemaker",
) -> HttpRequest:
    """What a client on botocore sends."""
    request = AWSRequest(method, url, headers=headers or {}, data=body)
    credentials = Credentials("AKIDEXAMPLE", SECRET, token)
    botocore.auth.SigV4Auth(credentials, service, "eu-central-1").add_auth(request)
    path, _, query = url.removeprefix(f"http://{HOST}").partition("?")
    return HttpRequest(method, path, query, {"Host": HOST} | dict(request.headers.items()), body)


def check(http: HttpRequest, secret: str = SECRET, **options: Any) -> sigv4.SignedWith:
    signed = sigv4.parse_authorization(http.headers)
    options.setdefault("service_expected", "sagemaker")
    now_wall_s = options.pop("now_wall_s", None)
    now_wall_s = when_signed(http) if now_wall_s is None else now_wall_s
    sigv4.verify(http, signed, secret, now_wall_s=now_wall_s, **options)
    return signed


def when_signed(http: HttpRequest) -> float:
    stamp = datetime.strptime(http.headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
    return stamp.replace(tzinfo=UTC).timestamp()


def refusal(http: HttpRequest, secret: str = SECRET, **options: Any) -> AwsError:
    with pytest.raises(AwsError) as refused:
        check(http, secret, **options)
    assert refused.value.status == 403
    return refused.value


def test_a_signed_request_is_let_in_and_says_who_signed_it() -> None:
    signed = check(signed_request(token="session"))
    assert signed.access_key == "AKIDEXAMPLE"
    assert (signed.region, signed.service) == ("eu-central-1", "sagemaker")
    assert signed.session_token == "session"


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "",
        "/endpoints/a%2Fb%20c/invocations",
        "/endpoints/a//b/./c/../invocations/",
        "/endpoints/%E1%88%B4(1)!*'/invocations",
        "/endpoints/.hidden/invocations",
    ],
)
def test_the_path_is_signed_as_it_is_sent(path: str) -> None:
    check(signed_request(f"http://{HOST}{path}"))


@pytest.mark.parametrize(
    "query", ["a=1", "b=2&a=1&a=0", "flag", "a=%20%2F&A=x-y_z.~", "a=", "a=%3Db"]
)
def test_the_query_may_come_in_any_order(query: str) -> None:
    http = signed_request(f"http://{HOST}/?{query}")
    check(http)
    http.query = "&".join(reversed(http.query.split("&")))
    check(http)


def test_spaces_in_header_values_do_not_count() -> None:
    check(signed_request(headers={"X-Amz-Meta": "a   b \t c"}))


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("method", "PUT"), ("path", "/endpoints/other/invocations"), ("query", "a=1"), ("body", b"x")],
)
def test_a_changed_request_is_refused(attribute: str, value: Any) -> None:
    http = signed_request()
    setattr(http, attribute, value)
    error = refusal(http)
    assert error.code == "InvalidSignatureException"
    assert error.message.startswith("The request signature we calculated does not match")


def test_a_changed_signed_header_or_another_secret_is_refused() -> None:
    http = signed_request(headers={"X-Amzn-SageMaker-Target-Variant": "blue"})
    assert refusal(http, "another").code == "InvalidSignatureException"
    http.headers["x-amzn-sagemaker-target-variant"] = "green"
    assert refusal(http).code == "InvalidSignatureException"


def test_headers_added_on_the_way_do_not_matter() -> None:
    http = signed_request()
    http.headers |= {"x-forwarded-for": "10.0.0.1", "via": "proxy"}
    check(http)


def test_the_clock_may_be_five_minutes_off_either_way() -> None:
    http = signed_request()
    now_s = when_signed(http)
    check(http, now_wall_s=now_s + 300)
    check(http, now_wall_s=now_s - 300)
    late = refusal(http, now_wall_s=now_s + 301)
    early = refusal(http, now_wall_s=now_s - 301)
    assert late.message.startswith("Signature expired: ")
    assert early.message.startswith("Signature not yet current: ")
    assert {late.code, early.code} == {"InvalidSignatureException"}


def test_a_signature_is_for_one_service() -> None:
    error = refusal(signed_request(service="s3"))
    assert error.message == "Credential should be scoped to correct service: 'sagemaker'."


def test_no_signature_is_a_missing_token() -> None:
    with pytest.raises(AwsError) as refused:
        sigv4.parse_authorization({})
    assert refused.value.code == "MissingAuthenticationTokenException"


GOOD = {
    "Credential": "AK/20231114/us-east-1/sagemaker/aws4_request",
    "SignedHeaders": "host;x-amz-date",
    "Signature": "0" * 64,
}


def authorization(**changes: str | None) -> str:
    parts = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return "AWS4-HMAC-SHA256 " + ", ".join(f"{name}={value}" for name, value in parts.items())


@pytest.mark.parametrize(
    "text",
    [
        "Bearer x",
        "AWS4-HMAC-SHA256",
        authorization(Credential=None),
        authorization(SignedHeaders=None),
        authorization(Signature=None),
        authorization(Credential="AK/20231114/us-east-1/sagemaker"),
        authorization(Credential="AK//us-east-1/sagemaker/aws4_request"),
        authorization(Credential="AK/20231114/us-east-1/sagemaker/aws3_request"),
        authorization(SignedHeaders="x-amz-date;host"),
        authorization(SignedHeaders="Host;x-amz-date"),
        authorization(SignedHeaders="host;host;x-amz-date"),
        authorization(Signature="\xe9" * 64),
        authorization(Signature="0" * 63),
    ],
)
def test_a_header_of_the_wrong_form_is_incomplete(text: str) -> None:
    with pytest.raises(AwsError) as refused:
        sigv4.parse_authorization({"authorization": text})
    assert (refused.value.code, refused.value.status) == ("IncompleteSignatureException", 403)


def test_an_access_key_may_hold_slashes() -> None:
    text = authorization(Credential="a/b/20231114/us-east-1/sagemaker/aws4_request")
    assert sigv4.parse_authorization({"authorization": text}).access_key == "a/b"


@pytest.mark.parametrize(
    ("names", "headers"),
    [
        ("x-amz-date", {}),
        ("host", {}),
        ("host;x-amz-date;x-missing", {}),
        ("host;x-amz-date", {"x-amz-target": "SageMaker.DeleteEndpoint"}),
        ("date;host", {"date": "yesterday"}),
        ("host;x-amz-date", {"x-amz-date": "20231114T221320"}),
        ("host;x-amz-date", {"x-amz-date": "20231399T221320Z"}),
    ],
)
def test_host_date_and_operation_must_be_covered(names: str, headers: dict[str, str]) -> None:
    given = {"host": HOST, "x-amz-date": "20231114T221320Z", "authorization": ""} | headers
    if "date" in headers:
        del given["x-amz-date"]
    given["authorization"] = authorization(SignedHeaders=names)
    http = HttpRequest("POST", "/", "", given, b"{}")
    error = refusal(http, now_wall_s=1_700_000_000.0)
    assert error.code in ("IncompleteSignatureException", "InvalidSignatureException")
    assert "does not match the signature" not in error.message


def test_the_body_hash_that_a_client_sends_must_be_that_of_the_body() -> None:
    body = b"x"
    good = {"x-amz-content-sha256": hashlib.sha256(body).hexdigest()}
    check(signed_request(body=body, headers=good))
    for claimed in (hashlib.sha256(b"y").hexdigest(), "UNSIGNED-PAYLOAD", "STREAMING-X", ""):
        http = signed_request(body=body, headers={"x-amz-content-sha256": claimed})
        assert "x-amz-content-sha256" in refusal(http).message


def test_behind_a_trusted_balancer_the_claimed_hash_is_enough() -> None:
    for claimed in (hashlib.sha256(b"y").hexdigest(), "UNSIGNED-PAYLOAD"):
        http = signed_request(body=b"x", headers={"x-amz-content-sha256": claimed})
        check(http, hash_body=False)
    check(signed_request(body=b"x"), hash_body=False)
    changed = signed_request(body=b"x")
    changed.body = b"y"
    assert refusal(changed, hash_body=False).code == "InvalidSignatureException"


def test_the_date_header_counts_where_there_is_no_x_amz_date() -> None:
    http = signed_request(headers={"Date": "any"})
    assert "x-amz-date" not in http.headers
    now_s = parsedate_to_datetime(http.headers["date"]).replace(tzinfo=UTC).timestamp()
    check(http, now_wall_s=now_s)
    assert "expired" in refusal(http, now_wall_s=now_s + 301).message
