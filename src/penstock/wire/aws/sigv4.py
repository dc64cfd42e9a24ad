"""Signature Version 4: whether a request is signed with a secret, at this time, for this service.

The algorithm is AWS's, published in the IAM user guide ("Create a signed AWS API request"): a
canonical form of the request is hashed, and the hash is signed with a key derived from the secret,
the day, the region and the service. The caller looks the secret up between
`parse_authorization` and `verify`; the time is passed in. This is on the hot path.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from penstock.wire.aws.errors import AwsError
from penstock.wire.aws.http import HttpRequest

ALGORITHM: Final = "AWS4-HMAC-SHA256"
CLOCK_WINDOW_S: Final = 300.0
UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
EMPTY_SHA256: Final = hashlib.sha256(b"").hexdigest()

#: One key per access key, day, region and service in use; others are derived again when needed.
_KEYS_MAX: Final = 4096
#: Characters that need no encoding in a path; quote() adds letters and digits.
_PATH_SAFE: Final = "/-_.~"
_QUERY_SAFE: Final = "-_.~"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.~/-]*", re.ASCII)
_PLAIN_QUERY = re.compile(r"[A-Za-z0-9_.~=&-]*", re.ASCII)
_STAMP = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SCOPE_PARTS: Final = 5
#: A real header has some 300 characters, with at most 50 signed headers; AWS takes 16 KB in all.
_AUTHORIZATION_CHARS_MAX: Final = 8_192
#: Most parameters of a signed request: each is decoded and encoded again for the check.
_QUERY_PARAMETERS_MAX: Final = 1_000


class SignedWith(NamedTuple):
    """The content of a signature, unverified."""

    access_key: str
    date: str  #: YYYYMMDD
    region: str
    service: str  #: name in the credential scope, e.g. `sagemaker`, `monitoring`
    signed_headers: tuple[str, ...]
    signature: str
    session_token: str | None  #: of temporary credentials; the caller decides whether it is needed


def parse_authorization(headers: dict[str, str]) -> SignedWith:
    """Reads the header Authorization of a signed request; header names are in lower case.

    Raises:
        AwsError: MissingAuthenticationTokenException, IncompleteSignatureException.
    """
    text = headers.get("authorization")
    if not text:
        raise AwsError(
            "MissingAuthenticationTokenException", "Missing Authentication Token", status=403
        )
    algorithm, _, rest = text.partition(" ")
    if algorithm != ALGORITHM:
        raise incomplete(f"The Authorization header must begin with {ALGORITHM!r}.")
    if len(rest) > _AUTHORIZATION_CHARS_MAX:
        raise incomplete("The Authorization header is too long.")
    given: dict[str, str] = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        if value:
            given[name] = value
    for name in ("Credential", "SignedHeaders", "Signature"):
        if name not in given:
            raise incomplete(f"Authorization header requires {name!r} parameter.")
    return signed_with(
        given["Credential"],
        given["SignedHeaders"],
        given["Signature"],
        headers.get("x-amz-security-token"),
    )


def signed_with(
    credential: str, signed_headers: str, signature: str, session_token: str | None
) -> SignedWith:
    """The parts of a signature, after a check of their form.

    Raises:
        AwsError: IncompleteSignatureException.
    """
    # An access key may contain slashes; the other four parts of the scope may not.
    scope = credential.rsplit("/", _SCOPE_PARTS - 1)
    if len(scope) != _SCOPE_PARTS or scope[4] != "aws4_request" or not all(scope):
        raise incomplete("Credential must have the form KEY/DATE/REGION/SERVICE/aws4_request.")
    names = tuple(signed_headers.split(";"))
    if any(name != name.lower() for name in names) or list(names) != sorted(set(names)):
        raise incomplete("SignedHeaders must be in lower case, sorted, each once.")
    if not _SHA256.fullmatch(signature):
        raise incomplete("Signature must have 64 hexadecimal digits.")
    return SignedWith(scope[0], scope[1], scope[2], scope[3], names, signature, session_token)


def verify(
    http: HttpRequest,
    signed: SignedWith,
    secret_key: str,
    *,
    now_wall_s: float,
    service_expected: str,
    hash_body: bool = True,
) -> None:
    """Returns if `signed` is the signature of this request with this secret.

    Args:
        now_wall_s: seconds since the epoch.
        service_expected: service that the request was dispatched to.
        hash_body: False trusts x-amz-content-sha256, if present, without hashing the body: for
            servers behind a load balancer that has checked it. Only then may a body be unsigned.

    Raises:
        AwsError: InvalidSignatureException, IncompleteSignatureException (403).
    """
    stamp = check_claims(http, signed, now_wall_s=now_wall_s, service_expected=service_expected)
    canonical = canonical_request(
        http, signed.signed_headers, _body_hash(http, hash_body=hash_body)
    )
    if not hmac.compare_digest(
        signature_of(canonical, stamp, signed, secret_key), signed.signature
    ):
        raise mismatch()


def check_claims(
    http: HttpRequest, signed: SignedWith, *, now_wall_s: float, service_expected: str
) -> str:
    """Returns the time of signing, if a signature with this head can be valid.

    It does not need the body: if this fails, no body has to be received.

    Raises:
        AwsError: InvalidSignatureException, IncompleteSignatureException (403).
    """
    stamp = _stamp_of(http, signed)
    check_scope(signed, stamp, service_expected)
    check_clock(stamp, now_wall_s=now_wall_s)
    missing = [name for name in signed.signed_headers if name not in http.headers]
    if "host" not in signed.signed_headers:
        raise incomplete("'host' must be a signed header.")
    # It decides what the body means, so a signature without it could be replayed for another
    # operation with the same body.
    if "x-amz-target" in http.headers and "x-amz-target" not in signed.signed_headers:
        raise incomplete("'x-amz-target' must be a signed header.")
    if missing:
        raise incomplete(f"Signed headers are missing in the request: {', '.join(missing)[:200]}.")
    return stamp


def canonical_request(http: HttpRequest, signed_headers: tuple[str, ...], body_hash: str) -> str:
    """The canonical form, which both sides compute."""
    headers = http.headers
    lines = [http.method, canonical_path(http.path), canonical_query(http.query)]
    lines += [f"{name}:{_folded(headers[name])}" for name in signed_headers]
    lines += ["", ";".join(signed_headers), body_hash]
    return "\n".join(lines)


def canonical_path(path: str) -> str:
    """The path as sent, with dots and double slashes resolved, and encoded once more."""
    plain = path[:1] == "/" and "//" not in path and "/." not in path
    if plain and _PLAIN_PATH.fullmatch(path):
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    slash = "/" if parts and path.endswith("/") else ""
    return quote(("/" + "/".join(parts) + slash).encode("latin-1"), safe=_PATH_SAFE)


def canonical_query(query: str) -> str:
    """The query's parameters, each in one encoding, sorted by name and then by value.

    Raises:
        AwsError: IncompleteSignatureException: too many parameters.
    """
    if not query:
        return ""
    if query.count("&") >= _QUERY_PARAMETERS_MAX:
        raise incomplete(f"The query has more than {_QUERY_PARAMETERS_MAX} parameters.")
    plain = _PLAIN_QUERY.fullmatch(query) is not None
    pairs = []
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        pairs.append((name, value) if plain else (_encoded(name), _encoded(value)))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def string_to_sign(canonical: str, stamp: str, signed: SignedWith) -> str:
    """The text that the derived key signs; `stamp` is the time of signing as YYYYMMDDTHHMMSSZ."""
    digest = hashlib.sha256(canonical.encode("latin-1")).hexdigest()
    scope = f"{signed.date}/{signed.region}/{signed.service}/aws4_request"
    return f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}"


def signature_of(canonical: str, stamp: str, signed: SignedWith, secret_key: str) -> str:
    """The signature that a holder of the secret makes."""
    key = _signing_key(secret_key, signed.date, signed.region, signed.service)
    text = string_to_sign(canonical, stamp, signed)
    return hmac.digest(key, text.encode(), "sha256").hex()


def check_scope(signed: SignedWith, stamp: str, service_expected: str) -> None:
    """Refuses a signature made for another service or another day."""
    if signed.service != service_expected:
        raise invalid(f"Credential should be scoped to correct service: {service_expected!r}.")
    if stamp[:8] != signed.date:
        raise invalid(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date."
        )


def check_clock(stamp: str, *, now_wall_s: float, expires_s: float = CLOCK_WINDOW_S) -> None:
    """Refuses a signature from more than five minutes ahead, or older than `expires_s`."""
    signed_s = seconds_of(stamp)
    if signed_s + expires_s < now_wall_s:
        now, bound = _stamp(now_wall_s), _stamp(now_wall_s - expires_s)
        raise invalid(
            f"Signature expired: {stamp} is now earlier than {bound} ({now} - {expires_s:.0f} s.)"
        )
    if signed_s - CLOCK_WINDOW_S > now_wall_s:
        now, bound = _stamp(now_wall_s), _stamp(now_wall_s + CLOCK_WINDOW_S)
        raise invalid(
            f"Signature not yet current: {stamp} is still later than {bound} ({now} + 5 min.)"
        )


def seconds_of(stamp: str) -> float:
    """Seconds since the epoch of YYYYMMDDTHHMMSSZ.

    Raises:
        AwsError: IncompleteSignatureException.
    """
    if _STAMP.fullmatch(stamp):
        try:
            return datetime.fromisoformat(stamp).timestamp()
        except ValueError:
            pass
    raise incomplete(f"{stamp[:64]!r} is not a date of the form YYYYMMDDTHHMMSSZ.")


def incomplete(message: str) -> AwsError:
    """The error for a signature that lacks a part, or has one in a wrong form."""
    return AwsError("IncompleteSignatureException", message, status=403)


def invalid(message: str) -> AwsError:
    """The error for a signature that is not valid for this request at this time."""
    return AwsError("InvalidSignatureException", message, status=403)


def mismatch() -> AwsError:
    """The error for a wrong secret or a changed request; the two can't be told apart."""
    return invalid(
        "The request signature we calculated does not match the signature you provided. Check your"
        " AWS Secret Access Key and signing method. Consult the service documentation for details."
    )


def _stamp(wall_s: float) -> str:
    return datetime.fromtimestamp(wall_s, UTC).strftime("%Y%m%dT%H%M%SZ")


def _stamp_of(http: HttpRequest, signed: SignedWith) -> str:
    """The time of signing: x-amz-date, else Date; the header in use must be signed too."""
    name = "x-amz-date" if "x-amz-date" in http.headers else "date"
    if name not in signed.signed_headers or name not in http.headers:
        raise incomplete("'x-amz-date' or 'date' must be present and a signed header.")
    text = http.headers[name]
    if name == "date" and not _STAMP.fullmatch(text):
        try:
            moment = parsedate_to_datetime(text)
            if moment.tzinfo is None:  # "-0000" means UTC, from an unknown place
                moment = moment.replace(tzinfo=UTC)
            return moment.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
        except (ValueError, TypeError, IndexError, OverflowError) as cause:
            raise incomplete(f"{text[:64]!r} is not a date.") from cause
    return text


def _body_hash(http: HttpRequest, *, hash_body: bool) -> str:
    claimed = http.headers.get("x-amz-content-sha256")
    if (
        claimed is not None
        and not hash_body
        and (claimed == UNSIGNED_PAYLOAD or _SHA256.fullmatch(claimed))
    ):
        return claimed
    actual = hashlib.sha256(http.body).hexdigest() if http.body else EMPTY_SHA256
    if claimed is not None and claimed != actual:
        raise invalid("The header x-amz-content-sha256 does not match the body that was received.")
    return actual


def _folded(value: str) -> str:
    """A header's value, trimmed, with each run of spaces as one."""
    if value.isascii():
        return " ".join(value.split())
    # str.split() also splits at some bytes beyond ASCII, bytes.split() does not.
    return b" ".join(value.encode("latin-1", "replace").split()).decode("latin-1")


def _encoded(text: str) -> str:
    return quote(unquote_to_bytes(text.encode("latin-1")), safe=_QUERY_SAFE)


@functools.lru_cache(maxsize=_KEYS_MAX)
def _signing_key(secret_key: str, date: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret_key}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
