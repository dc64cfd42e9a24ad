"""Bearer tokens of SageMaker's OpenAI route: a signed URL in the form of an API key.

`sagemaker-api-key-` and then base64 of a SigV4 query presign without its scheme, with `&Version=1`
at the end. The URL is never called: it proves that its maker holds the secret, until it expires.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from typing import Final, NamedTuple

from penstock.wire.aws import rest_json, sigv4
from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest
from penstock.wire.aws.sigv4 import SignedWith, incomplete, invalid

PREFIX: Final = "sagemaker-api-key-"
EXPIRES_S_MAX: Final = 43_200
_SUFFIX: Final = "&Version=1"
_HOST: Final = "sagemaker.amazonaws.com"
_SERVICE: Final = "sagemaker"
_ACTION: Final = "CallWithBearerToken"
_SIGNATURE: Final = "X-Amz-Signature"
#: A real token has about 600 characters, or 2,000 with a session token.
_TOKEN_CHARS_MAX: Final = 16_384


class BearerToken(NamedTuple):
    """The content of a token, unverified."""

    signed: SignedWith
    query: str  #: query of the signed URL, without the signature
    stamp: str
    expires_s: int


def parse_bearer(token: str) -> BearerToken:
    """Parses the token after `Bearer `.

    Raises:
        AwsError: IncompleteSignatureException.
    """
    if not token.startswith(PREFIX) or len(token) > _TOKEN_CHARS_MAX:
        raise incomplete(f"A bearer token begins with {PREFIX!r} and has no more than 16 KiB.")
    try:
        url = base64.b64decode(token[len(PREFIX) :], validate=True).decode("ascii")
    except (binascii.Error, ValueError) as cause:
        raise incomplete("What follows the bearer token's prefix is not base64.") from cause
    host, _, query = url.removesuffix(_SUFFIX).partition("/?")
    if host != _HOST:
        raise incomplete(f"The URL in the bearer token must be one of {_HOST}.")
    try:
        given = {name: texts[0] for name, texts in rest_json.parse_query(query).items()}
    except AwsError as cause:
        raise incomplete("The URL in the bearer token is malformed.") from cause
    if given.get("Action") != _ACTION or given.get("X-Amz-Algorithm") != sigv4.ALGORITHM:
        raise incomplete(f"The URL in the bearer token must sign {_ACTION}.")
    for name in ("X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders"):
        if not given.get(name):
            raise incomplete(f"The URL in the bearer token requires {name!r}.")
    expires = given["X-Amz-Expires"]
    if not (expires.isascii() and expires.isdigit() and len(expires) <= 9):
        raise incomplete("X-Amz-Expires must be a number of seconds.")
    signed = sigv4.signed_with(
        given["X-Amz-Credential"],
        given["X-Amz-SignedHeaders"],
        given.get(_SIGNATURE, ""),
        given.get("X-Amz-Security-Token"),
    )
    unsigned = [pair for pair in query.split("&") if not pair.startswith(f"{_SIGNATURE}=")]
    return BearerToken(signed, "&".join(unsigned), given["X-Amz-Date"], int(expires))


def verify_bearer(bearer: BearerToken, secret_key: str, *, now_wall_s: float) -> None:
    """Returns if the token was made with this secret and has not expired.

    Raises:
        AwsError: InvalidSignatureException, IncompleteSignatureException (403).
    """
    signed = bearer.signed
    if signed.signed_headers != ("host",):
        raise incomplete("The URL in the bearer token must sign the header host and no other.")
    if not 0 < bearer.expires_s <= EXPIRES_S_MAX:
        raise invalid(f"X-Amz-Expires must be at most {EXPIRES_S_MAX} seconds.")
    sigv4.check_scope(signed, bearer.stamp, _SERVICE)
    sigv4.check_clock(bearer.stamp, now_wall_s=now_wall_s, expires_s=bearer.expires_s)
    http = HttpRequest("POST", "/", bearer.query, {"host": _HOST})
    canonical = sigv4.canonical_request(http, signed.signed_headers, sigv4.EMPTY_SHA256)
    expected = sigv4.signature_of(canonical, bearer.stamp, signed, secret_key)
    if not hmac.compare_digest(expected, signed.signature):
        raise sigv4.mismatch()
