"""Who may come in: requests signed by botocore, and everything that can be wrong with one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
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
    assert (refused.value.code, refused.value.status) == (
        "MissingAuthenticationTokenException",
        403,
    )


GOOD = {
    "Credential": "AK/20231114/us-east-1/sagemaker/aws4_request",
    "SignedHeaders": "host;x-amz-date",
    "Signature": "0" * 64,
}


def authorization(**changes: str | None) -> str:
    parts = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return "AWS4-HMAC-SHA256 " + ", ".join(f"{name}={value}" for name, value in parts.items())


FORM = "Credential must have the form KEY/DATE/REGION/SERVICE/aws4_request."
ORDER = "SignedHeaders must be in lower case, sorted, each once."
DIGITS = "Signature must have 64 hexadecimal digits."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Bearer x", "The Authorization header must begin with 'AWS4-HMAC-SHA256'."),
        ("AWS4-HMAC-SHA256", "Authorization header requires 'Credential' parameter."),
        (authorization(Credential=None), "Authorization header requires 'Credential' parameter."),
        (authorization(Credential=""), "Authorization header requires 'Credential' parameter."),
        (
            authorization(SignedHeaders=None),
            "Authorization header requires 'SignedHeaders' parameter.",
        ),
        (authorization(Signature=None), "Authorization header requires 'Signature' parameter."),
        (authorization(Credential="AK/20231114/us-east-1/sagemaker"), FORM),
        (authorization(Credential="AK//us-east-1/sagemaker/aws4_request"), FORM),
        (authorization(Credential="/20231114/us-east-1/sagemaker/aws4_request"), FORM),
        (authorization(Credential="AK/20231114/us-east-1/sagemaker/aws3_request"), FORM),
        (authorization(SignedHeaders="x-amz-date;host"), ORDER),
        (authorization(SignedHeaders="Host;x-amz-date"), ORDER),
        (authorization(SignedHeaders="host;host;x-amz-date"), ORDER),
        (authorization(Signature="\xe9" * 64), DIGITS),
        (authorization(Signature="0" * 63), DIGITS),
        (authorization(Signature="0" * 65), DIGITS),
        (authorization(Signature="A" * 64), DIGITS),
    ],
)
def test_a_header_of_the_wrong_form_is_incomplete(text: str, message: str) -> None:
    with pytest.raises(AwsError) as refused:
        sigv4.parse_authorization({"authorization": text})
    assert (refused.value.code, refused.value.status) == ("IncompleteSignatureException", 403)
    assert refused.value.message == message


def test_an_access_key_may_hold_slashes() -> None:
    text = authorization(Credential="a/b/20231114/us-east-1/sagemaker/aws4_request")
    assert sigv4.parse_authorization({"authorization": text}).access_key == "a/b"


DATE = "'x-amz-date' or 'date' must be present and a signed header."


@pytest.mark.parametrize(
    ("names", "headers", "message"),
    [
        ("x-amz-date", {}, "'host' must be a signed header."),
        ("host", {}, DATE),
        ("host;x-amz-date", {"x-amz-date": None}, DATE),
        ("date;host", {"x-amz-date": None}, DATE),
        ("date;host", {"date": "Tue, 14 Nov 2023 22:13:20 GMT"}, DATE),
        (
            "host;x-amz-date;x-b;x-missing",
            {"x-b": ""},
            "Signed headers are missing in the request: x-missing.",
        ),
        (
            "host;x-amz-date",
            {"x-amz-target": "SageMaker.DeleteEndpoint"},
            "'x-amz-target' must be a signed header.",
        ),
        ("date;host", {"x-amz-date": None, "date": "yesterday"}, "'yesterday' is not a date."),
        (
            "host;x-amz-date",
            {"x-amz-date": "20231114T221320"},
            "'20231114T221320' is not a date of the form YYYYMMDDTHHMMSSZ.",
        ),
        (
            "host;x-amz-date",
            {"x-amz-date": "20231114T251320Z"},
            "'20231114T251320Z' is not a date of the form YYYYMMDDTHHMMSSZ.",
        ),
    ],
)
def test_host_date_and_operation_must_be_covered(
    names: str, headers: dict[str, str | None], message: str
) -> None:
    error = refusal(unsigned(authorization(SignedHeaders=names), **headers), now_wall_s=NOW)
    assert (error.code, error.message) == ("IncompleteSignatureException", message)


NOW = 1_700_000_000.0  #: 2023-11-14 22:13:20 UTC


def unsigned(text: str, **headers: str | None) -> HttpRequest:
    """A request of that moment, whose signature is none."""
    given = {"host": HOST, "x-amz-date": "20231114T221320Z", "authorization": text} | headers
    kept = {name: value for name, value in given.items() if value is not None}
    return HttpRequest("POST", "/", "", kept, b"{}")


@pytest.mark.parametrize("day", ["20231113", "20231115", "2023111", "20221114"])
def test_a_signature_is_for_one_day(day: str) -> None:
    """The key is derived from the scope's day: another one would let an old key sign for ever."""
    credential = f"AK/{day}/us-east-1/sagemaker/aws4_request"
    error = refusal(unsigned(authorization(Credential=credential)), now_wall_s=NOW)
    assert (error.code, error.message) == (
        "InvalidSignatureException",
        "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date.",
    )


def test_out_of_time_is_told_with_both_times() -> None:
    http = unsigned(authorization())
    assert refusal(http, now_wall_s=NOW + 301).message == (
        "Signature expired: 20231114T221320Z is now earlier than 20231114T221321Z "
        "(20231114T221821Z - 300 s.)"
    )
    assert refusal(http, now_wall_s=NOW - 301).message == (
        "Signature not yet current: 20231114T221320Z is still later than 20231114T221319Z "
        "(20231114T220819Z + 5 min.)"
    )


def test_a_signature_that_lasts_longer_is_still_not_from_the_future() -> None:
    sigv4.check_clock("20231114T221320Z", now_wall_s=NOW + 3600, expires_s=3600)
    for now_wall_s in (NOW + 3601, NOW - 301):
        with pytest.raises(AwsError):
            sigv4.check_clock("20231114T221320Z", now_wall_s=now_wall_s, expires_s=3600)


def test_one_signature_byte_for_byte() -> None:
    """As botocore signs it: canonical form, text to sign, signature."""
    http = HttpRequest(
        "PUT",
        "/a//b/../%E4 c/",
        "b=2&a=%7e%20+&flag",
        {
            "host": HOST,
            "x-amz-date": "20231114T221320Z",
            "x-amz-meta": " two \t words ",
            "x-other": "unsigned",
        },
        b"body",
    )
    signed = sigv4.signed_with(
        "AK/20231114/eu-central-1/sagemaker/aws4_request",
        "host;x-amz-date;x-amz-meta",
        "26aab35dad6925180d2a950eafd6ef049a1763513a378711f1677d3ad30ac0f2",
        None,
    )
    body_hash = hashlib.sha256(b"body").hexdigest()
    canonical = sigv4.canonical_request(http, signed.signed_headers, body_hash)
    assert canonical == (
        "PUT\n/a/%25E4%20c/\na=~%20%2B&b=2&flag=\n"
        "host:127.0.0.1:8080\nx-amz-date:20231114T221320Z\nx-amz-meta:two words\n\n"
        "host;x-amz-date;x-amz-meta\n"
        "230d8358dc8e8890b4c58deeb62912ee2f20357ae92a5cc861b98e68fe31acb5"
    )
    assert sigv4.string_to_sign(canonical, "20231114T221320Z", signed) == (
        "AWS4-HMAC-SHA256\n20231114T221320Z\n20231114/eu-central-1/sagemaker/aws4_request\n"
        "4631b2a9c6601d9499ea89867d8f4814ca4f27e6ee1502e1680a6b7c22f3b03e"
    )
    sigv4.verify(http, signed, SECRET, now_wall_s=NOW, service_expected="sagemaker")


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        ("", "/"),
        ("/", "/"),
        ("/plain-path_.~/x", "/plain-path_.~/x"),
        ("/a/", "/a/"),
        ("//", "/"),
        ("/..", "/"),
        ("/../", "/"),
        ("/a/../../b", "/b"),
        ("/a/./b/.", "/a/b"),
        ("a/b", "/a/b"),
        ("/.hidden", "/.hidden"),
        ("/a b", "/a%20b"),
        ("/a%20b", "/a%2520b"),
        ("/\xe4", "/%E4"),
        ("/a:b*c", "/a%3Ab%2Ac"),
    ],
)
def test_a_path_has_one_canonical_form(path: str, canonical: str) -> None:
    assert sigv4.canonical_path(path) == canonical


@pytest.mark.parametrize(
    ("query", "canonical"),
    [
        ("", ""),
        ("b=2&a=1&a=0", "a=0&a=1&b=2"),
        ("flag", "flag="),
        ("a=%7E%2f+*", "a=~%2F%2B%2A"),
        ("%61=1&A=2", "A=2&a=1"),
        ("\xe4=\xff", "%E4=%FF"),
        ("&", "=&="),
    ],
)
def test_a_query_has_one_canonical_form(query: str, canonical: str) -> None:
    assert sigv4.canonical_query(query) == canonical


def test_a_query_has_at_most_a_thousand_parameters() -> None:
    assert sigv4.canonical_query("&".join(["a=1"] * 1000)).count("a=1") == 1000
    with pytest.raises(AwsError) as refused:
        sigv4.canonical_query("&".join(["a=1"] * 1001))
    assert refused.value.message == "The query has more than 1000 parameters."


def test_an_authorization_has_at_most_eight_kilobytes() -> None:
    text = authorization()
    padding = 8_192 - len(text.partition(" ")[2]) - 1
    assert sigv4.parse_authorization({"authorization": text + "," + " " * padding})
    with pytest.raises(AwsError) as refused:
        sigv4.parse_authorization({"authorization": text + "," + " " * (padding + 1)})
    assert refused.value.message == "The Authorization header is too long."


def test_a_header_beyond_ascii_is_folded_by_its_bytes() -> None:
    """0xA0 and 0x85 are spaces to text and none to bytes, which is what was signed."""
    http = unsigned(authorization(), **{"x-amz-meta": "\xa0 a \x85  b\xa0"})
    canonical = sigv4.canonical_request(http, ("x-amz-meta",), "")
    assert "x-amz-meta:\xa0 a \x85 b\xa0\n" in canonical


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


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The machine's own time is nine hours ahead."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "JST-9")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize(
    "date",
    [
        "Tue, 14 Nov 2023 22:13:20 GMT",
        "Tue, 14 Nov 2023 22:13:20 -0000",
        "Tue, 14 Nov 2023 23:13:20 +0100",
        "20231114T221320Z",
    ],
)
def test_a_date_of_a_mail_is_a_date_and_so_is_a_stamp(date: str) -> None:
    headers = {"x-amz-date": None, "date": date}
    http = unsigned(authorization(SignedHeaders="date;host"), **headers)
    signed = sigv4.parse_authorization(http.headers)
    options = {"now_wall_s": NOW, "service_expected": "sagemaker"}
    assert sigv4.check_claims(http, signed, **options) == "20231114T221320Z"


@pytest.mark.parametrize("date", ["", "x", "Tue, 99 Nov 2023 22:13:20 GMT", "9" * 5000])
def test_what_is_no_date_is_told(date: str) -> None:
    http = unsigned(authorization(SignedHeaders="date;host"), **{"x-amz-date": None, "date": date})
    error = refusal(http, now_wall_s=NOW)
    assert (error.code, error.message) == (
        "IncompleteSignatureException",
        f"{date[:64]!r} is not a date.",
    )
