"""The one table from our errors to those of OpenAI's API.

`{"error": {"message", "type", "param", "code"}}`. The status decides what clients do: theirs try
again after 408, 409, 429 and every 5xx, so a model that failed says by `x-should-retry` that the
same request will fail again.
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
    """One error in the form of the protocol."""

    status: int
    kind: str  #: the field `type`
    code: str | None
    message: str
    retries: bool | None = None  #: told to clients where the status alone misleads them
    param: str | None = None  #: the parameter that is wrong

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
    """What a client of OpenAI's API understands of an error of ours."""
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
        return OpenAiError(404, _INVALID, "model_not_found", message)
    if isinstance(error, CallerError):
        return OpenAiError(error.status, _INVALID, _code(error), message, param=error.param or None)
    if isinstance(error, NotNowError):
        kind = "rate_limit_error" if error.status == 429 else _SERVER
        # What has no time to come again can't pass as it is: its own deadline is over.
        retries = None if error.retry_after_s is not None else False
        return OpenAiError(error.status, kind, _code(error), message, retries)
    return OpenAiError(500, _SERVER, "internal_error", f"Internal error ({error.code}).")


def render(error: PenstockError) -> tuple[bytes, bytes]:
    """Head and body of the answer."""
    told = translate(error)
    head = status_line(told.status) + _JSON_HEAD
    if error.retry_after_s is not None:
        head += b"retry-after: %d\r\n" % max(1, round(error.retry_after_s))
        head += b"retry-after-ms: %d\r\n" % max(1, round(error.retry_after_s * 1000))
    if told.retries is False:
        head += b"x-should-retry: false\r\n"
    return head, told.body()


def event(error: PenstockError, number: int | None = None) -> bytes:
    """The last event of a stream that broke; `number`: in a stream whose events have them.

    The numbered one says the same twice: by the names of the event's type, and under `error`, by
    which clients know that there is something to raise.
    """
    told = translate(error)
    if number is None:
        return b"data: %b\n\n" % told.body()
    fields = {
        "type": "error",
        "sequence_number": number,
        "code": told.code,
        "message": told.message,
        "param": told.param,
        "error": told.fields(),
    }
    return b"event: error\ndata: %b\n\n" % orjson.dumps(fields)


def _code(error: PenstockError) -> str:
    return error.code.replace("-", "_")
