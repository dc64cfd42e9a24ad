"""Bearer tokens of the OpenAI route: signed URLs made by botocore, wrapped as clients wrap them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import botocore.auth
import pytest
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from penstock.wire.aws import bearer
from penstock.wire.aws.errors import AwsError

SECRET = "correct horse battery staple"
HOST = "sagemaker.amazonaws.com"


def token(
    *,
    url: str = f"https://{HOST}/?Action=CallWithBearerToken",
    expires_s: int = 43_200,
    service: str = "sagemaker",
    session: str | None = None,
    headers: dict[str, str] | None = None,
) -> str:
    request = AWSRequest("POST", url, headers={"host": HOST} | (headers or {}))
    credentials = Credentials("AKIDEXAMPLE", SECRET, session)
    signer = botocore.auth.SigV4QueryAuth(credentials, service, "us-west-2", expires=expires_s)
    signer.add_auth(request)
    return wrapped(request.url.removeprefix("https://") + "&Version=1")


def wrapped(url: str) -> str:
    return "sagemaker-api-key-" + base64.b64encode(url.encode()).decode()


def signed_at(claims: bearer.BearerToken) -> float:
    return datetime.strptime(claims.stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


def check(text: str, *, secret: str = SECRET, after_s: float = 0.0) -> bearer.BearerToken:
    claims = bearer.parse_bearer(text)
    bearer.verify_bearer(claims, secret, now_wall_s=signed_at(claims) + after_s)
    return claims


def refusal(text: str, *, secret: str = SECRET, after_s: float = 0.0) -> AwsError:
    with pytest.raises(AwsError) as refused:
        check(text, secret=secret, after_s=after_s)
    assert refused.value.status == 403
    return refused.value


def test_a_token_is_let_in_until_it_expires() -> None:
    text = token(expires_s=600, session="a+/=b")
    claims = check(text, after_s=600)
    assert (claims.signed.access_key, claims.signed.region) == ("AKIDEXAMPLE", "us-west-2")
    assert claims.signed.session_token == "a+/=b"
    assert "expired" in refusal(text, after_s=601).message
    assert "not yet current" in refusal(text, after_s=-301).message


def test_a_token_of_another_secret_or_with_a_longer_life_written_in_is_refused() -> None:
    text = token(expires_s=600)
    assert refusal(text, secret="another").code == "InvalidSignatureException"
    url = base64.b64decode(text.removeprefix("sagemaker-api-key-")).decode()
    longer = url.replace("X-Amz-Expires=600", "X-Amz-Expires=6000")
    assert refusal(wrapped(longer)).code == "InvalidSignatureException"


def test_a_token_lives_half_a_day_at_most() -> None:
    assert "at most 43200 seconds" in refusal(token(expires_s=43_201)).message


def test_a_token_is_for_sagemaker_and_signs_the_host_only() -> None:
    assert "correct service" in refusal(token(service="bedrock")).message
    assert "host and no other" in refusal(token(headers={"x-other": "1"})).message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sk-123",
        "sagemaker-api-key-",
        "sagemaker-api-key-***",
        "sagemaker-api-key-" + "A" * 20_000,
        wrapped("example.com/?Action=CallWithBearerToken"),
        wrapped(f"{HOST}/?Action=Other&X-Amz-Algorithm=AWS4-HMAC-SHA256"),
        wrapped(f"{HOST}/?Action=CallWithBearerToken&X-Amz-Algorithm=AWS4-HMAC-SHA256"),
        wrapped(f"{HOST}/?Action=%ff"),
        wrapped("é"),
        token().replace("sagemaker", "Sagemaker"),
        token(url=f"https://{HOST}/?Action=Delete"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(AwsError) as refused:
        bearer.parse_bearer(text)
    assert refused.value.code == "IncompleteSignatureException"


def url_of(text: str) -> str:
    return base64.b64decode(text.removeprefix("sagemaker-api-key-")).decode()


@pytest.mark.parametrize(
    "name",
    ["Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires",
     "X-Amz-SignedHeaders", "X-Amz-Signature"],
)  # fmt: skip
def test_a_url_says_all_that_it_must(name: str) -> None:
    host, _, query = url_of(token()).partition("/?")
    for left in ("", f"{name}="):
        pairs = [pair if not pair.startswith(f"{name}=") else left for pair in query.split("&")]
        with pytest.raises(AwsError) as refused:
            check(wrapped(f"{host}/?{'&'.join(filter(None, pairs))}"))
        assert refused.value.status == 403


@pytest.mark.parametrize("expires", ["600s", "-600", "6.0", "\u0661", "0000000600", ""])
def test_a_life_is_a_number_of_seconds(expires: str) -> None:
    text = url_of(token(expires_s=600)).replace("X-Amz-Expires=600", f"X-Amz-Expires={expires}")
    with pytest.raises(AwsError) as refused:
        bearer.parse_bearer(wrapped(text))
    assert refused.value.code == "IncompleteSignatureException"


def test_a_life_of_no_seconds_is_none() -> None:
    assert "at most 43200 seconds" in refusal(token(expires_s=0)).message
    check(token(expires_s=43_200), after_s=43_200)
    check(token(expires_s=1), after_s=1)


def test_what_is_signed_is_the_query_without_its_signature() -> None:
    claims = bearer.parse_bearer(token(expires_s=600))
    names = [pair.partition("=")[0] for pair in claims.query.split("&")]
    assert names == ["Action", "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date",
                     "X-Amz-Expires", "X-Amz-SignedHeaders"]  # fmt: skip
    assert claims.expires_s == 600


def test_a_token_has_a_bounded_length() -> None:
    room = 16_384 - len("sagemaker-api-key-")
    fits = "sagemaker-api-key-" + "A" * (room - room % 4)
    with pytest.raises(AwsError, match=f"must be one of {HOST}"):
        bearer.parse_bearer(fits)
    with pytest.raises(AwsError, match="no more than 16 KiB"):
        bearer.parse_bearer("sagemaker-api-key-".ljust(16_385, "A"))
    with pytest.raises(AwsError, match="not base64"):
        bearer.parse_bearer("sagemaker-api-key-".ljust(16_384, "*"))
