"""The errors that an HTTP connection gives before a door sees the request."""

from __future__ import annotations

from penstock.config import LimitConfig
from penstock.errors import CallerError, NotNowError, PenstockError


def body_too_large(limits: LimitConfig) -> PenstockError:
    return CallerError(
        "body-too-large",
        f"The body is larger than {limits.body_bytes_max} bytes.",
        hint="Send less at once, or start the server with a larger limit.",
        status=413,
    )


def head_too_large(limits: LimitConfig) -> PenstockError:
    message = f"Request line and headers are larger than {limits.head_bytes_max} bytes."
    return CallerError("head-too-large", message, status=431)


def fields_too_many(fields_max: int) -> PenstockError:
    message = f"The request has more than {fields_max} headers."
    return CallerError("head-too-large", message, status=431)


def too_slow(part: str, limit_s: float) -> PenstockError:
    message = f"The {part} of the request took longer than {limit_s:g} s."
    return CallerError("request-too-slow", message, status=408)


def connections_too_many(connections_max: int) -> PenstockError:
    return NotNowError(
        "too-many-connections",
        f"{connections_max} connections are open.",
        hint="Reuse connections, or try again shortly.",
        retry_after_s=1.0,
    )


def malformed(why: object) -> PenstockError:
    return CallerError("http-malformed", f"This is not HTTP/1.1: {why}.")


def connect_unserved() -> PenstockError:
    return CallerError("method-unknown", "CONNECT is not served.", status=405)


def expectation_unknown(expectation: bytes) -> PenstockError:
    message = f"Expect: {expectation[:64].decode('latin-1')} can't be met."
    return CallerError("expectation-unknown", message, status=417)
