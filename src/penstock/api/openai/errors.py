"""The one table from Penstock's errors to those of OpenAI's API.

The form is `{"error": {"message", "type", "param", "code"}}`. The status decides what clients do:
they retry after 408, 409, 429 and every 5xx. So where a model failed, `x-should-retry` says that
the same request would fail again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from penstock.errors import CallerError, ModelError, NotNowError, PenstockError, with_hint
from penstock.gateway.http.call import status_line
from penstock.gateway.http.listener_state import Denied
from penstock.wire.aws.errors import ACCESS_DENIED

_INVALID = "invalid_request_error"
_SERVER = "server_error"
_JSON_HEAD = b"content-type: application/json\r\n"


class OpenAiError(NamedTuple):
    """One error in the protocol's form."""

    status: int
    kind: str  #: the field `type`
    code: str | None
    message: str
    #: `x-should-retry`, where the status alone would mislead; None = none
    retries: bool | None = None
    param: str | None = None  #: the wrong parameter

    def fields(self) -> dict[str, Any]:
        return {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }

    def body(self) -> bytes:
        return orjson.dumps({"error": self.fields()})


def translate(error: PenstockError) -> OpenAiError:
    """An error of ours as OpenAI's clients understand it."""
    message = with_hint(error.message, error.hint)
    if isinstance(error, Denied) and error.code == ACCESS_DENIED:
        return OpenAiError(403, _INVALID, "insufficient_permissions", message)
    if isinstance(error, Denied):
        return OpenAiError(401, _INVALID, "invalid_api_key", message)
    if isinstance(error, ModelError):
        said = with_hint(error.original_message, error.hint)
        if 400 <= error.original_status < 500:
            return OpenAiError(error.original_status, _INVALID, _code(error), said)
        return OpenAiError(500, _SERVER, _code(error), said, retries=False)
    if error.code == "endpoint-not-found":
        return OpenAiError(404, _INVALID, "model_not_found", message, param="model")
    if isinstance(error, CallerError):
        return OpenAiError(error.status, _INVALID, _code(error), message, param=error.param or None)
    if isinstance(error, NotNowError):
        kind = "rate_limit_error" if error.status == 429 else _SERVER
        # Without a time to retry, a retry can't succeed: the request's own deadline is over.
        retries = None if error.retry_after_s is not None else False
        return OpenAiError(error.status, kind, _code(error), message, retries)
    return OpenAiError(500, _SERVER, "internal_error", f"Internal error ({error.code}).")


def render(error: PenstockError) -> tuple[bytes, bytes]:
    """Head and body of the error's answer."""
    translated = translate(error)
    head = status_line(translated.status) + _JSON_HEAD
    if error.retry_after_s is not None:
        head += b"retry-after: %d\r\n" % max(1, round(error.retry_after_s))
        head += b"retry-after-ms: %d\r\n" % max(1, round(error.retry_after_s * 1000))
    if translated.retries is False:
        head += b"x-should-retry: false\r\n"
    return head, translated.body()


def event(error: PenstockError, number: int | None = None) -> bytes:
    """The last event of a broken stream; `number`: in a stream whose events have numbers.

    A numbered event has the error twice: in the fields of its event type, and under `error`, where
    clients look for something to raise.
    """
    translated = translate(error)
    if number is None:
        return b"data: %b\n\n" % translated.body()
    fields = {
        "type": "error",
        "sequence_number": number,
        "code": translated.code,
        "message": translated.message,
        "param": translated.param,
        "error": translated.fields(),
    }
    return b"event: error\ndata: %b\n\n" % orjson.dumps(fields)


#: Codes that OpenAI's clients know by other names.
_CODES = {"prompt-too-long": "context_length_exceeded"}


def _code(error: PenstockError) -> str:
    return _CODES.get(error.code) or error.code.replace("-", "_")
