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
