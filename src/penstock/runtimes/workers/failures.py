"""Turns any failure of a model's code into one error that every reader can decode.

This is the only place where exceptions and answers of foreign code become bytes; every process that
runs such code uses it: Python models, Triton's, steps of pipelines, engines. All functions are
total: for any exception (text that UTF-8 can't encode, text of 64 MiB, `__str__` that raises or
exits, errors of ours with fields of wrong types) they return bytes, bounded, and raise nothing.

Imports the standard library and `errors` alone: an engine may run in another interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import suppress
from typing import Any, Final

from penstock.errors import ModelError, PenstockError, from_dict, kind_of, plain

LOG_HINT: Final = "The traceback is in the instance's log."
#: Longest text of an exception in a message.
WORDS_CHARS_MAX: Final = 2000
_TRACEBACK_CHARS_MAX: Final = 64 << 10


def model_error(
    error: BaseException, code: str = "model-code-failed", *, where: str = "", hint: str = LOG_HINT
) -> PenstockError:
    """The error that the caller gets for an exception. Our own errors stay as they are, made
    plain."""
    try:
        if isinstance(error, PenstockError):
            return from_dict(type(error).to_dict(error))
    except BaseException:  # it may be a subclass from the model's code
        return _said(error, code, where, hint)
    return _said(error, code, where, hint)


def _said(error: BaseException, code: str, where: str, hint: str) -> ModelError:
    words = f"{kind_of(error)}: {_words(error)}"
    return ModelError(
        code, f"{where}: {words}" if where else words, hint=hint, original_status=_status(error)
    )


def _words(error: BaseException) -> str:
    """The exception's `message` where it has one, as in the toolkits' errors; else its text."""
    try:
        message = getattr(error, "message", "") or error
    except BaseException:
        message = error
    return plain(message, WORDS_CHARS_MAX)


def _status(error: BaseException) -> int:
    """The exception's own status if it carries one, else 500."""
    try:
        status = getattr(error, "status_code", 500)
        if isinstance(status, int) and 400 <= status <= 599:
            return int(status)
    except BaseException:
        return 500
    return 500


def error_bytes(error: BaseException) -> bytes:
    """JSON of `PenstockError.to_dict()`, ASCII alone, for any exception."""
    return json.dumps(model_error(error).to_dict()).encode("ascii")


def error_of(data: bytes) -> PenstockError:
    """The inverse of `error_bytes`; other bytes become an error as well."""
    try:
        fields = json.loads(data)
        if isinstance(fields, dict):
            return from_dict(fields)
    except (ValueError, RecursionError):
        pass
    return ModelError("model-code-failed", "the model's process told an error that can't be read")


def log_traceback(error: BaseException) -> None:
    """Writes to the process's standard error, which goes to the instance's log."""
    try:
        text = "".join(traceback.format_exception(error))
    except BaseException:  # formatting may call code of the exception
        text = f"{kind_of(error)}: its traceback can't be formatted\n"
    log_text(text)


def log_text(text: str) -> None:
    """Bypasses `sys.stderr`, which a model may have replaced or closed."""
    data = plain(text, _TRACEBACK_CHARS_MAX).encode()
    with suppress(BaseException):  # it may be the model's own object
        sys.stdout.flush()  # keeps the order of output
        sys.stderr.flush()
    with suppress(OSError):  # the instance is gone
        while data:
            data = data[os.write(2, data) :]


#: Bound for an answer's body: the frame to the gateway can't hold more.
ANSWER_BYTES_MAX: Final = (1 << 30) - 65_536


def checked_answer(body: Any, content_type: Any, attributes: Any) -> tuple[bytes, bytes, bytes]:
    """An answer's three parts as bytes. Raises ModelError for anything that is no answer."""
    if type(body) is not bytes:
        body = bytes(memoryview(body))
    if len(body) > ANSWER_BYTES_MAX:
        raise ModelError(
            "answer-too-large",
            f"the model's answer has {len(body)} bytes, {ANSWER_BYTES_MAX} at most",
            hint="Answer with less, or leave the result in a file and answer with its place.",
        )
    return body, _header(content_type, "content type"), _header(attributes, "custom attributes")


#: Both of a reply's headers share 64 KiB of the frame to the gateway.
_HEADER_BYTES_MAX: Final = 30_000


def _header(value: Any, what: str) -> bytes:
    if not isinstance(value, str):
        raise ModelError(
            "model-head-invalid", f"the model's {what} is a {kind_of(value)}, not a text"
        )
    try:
        data = str.encode(value)
    except UnicodeEncodeError as error:
        raise ModelError(
            "model-head-invalid", f"the model's {what} is not UTF-8: {error.reason}"
        ) from None
    if len(data) > _HEADER_BYTES_MAX:
        raise ModelError("head-too-large", "the model's reply headers are too large")
    return data
