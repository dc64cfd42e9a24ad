"""The one tree of errors: what happened, whose fault it is, and what to do now.

    PenstockError
    ├── CallerError      the request is wrong: fix it            (400 unless said otherwise)
    ├── NotNowError      the same request may pass later         (503, 429; `retry_after_s`)
    ├── ModelError       user code or weights failed             (424)
    └── InternalError    a bug of ours: the client sees the code (500)

Each front door maps this tree to its own protocol in one table. This module knows no protocol, and
imports nothing of ours.

The text of an error may come from outside: a model's exception, a header, a file. So every text of
every error is `plain`, and whoever writes it (as JSON, in a header, in a log) never fails on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

#: Longest message; nobody reads a longer one, and the log has all of it.
MESSAGE_CHARS_MAX: Final = 8192
_HINT_CHARS_MAX: Final = 2048
_CODE_CHARS_MAX: Final = 128
_RETRY_S_MAX: Final = 365 * 86_400.0  #: a longer wait makes no sense
#: Longest line of an error in a log: a model's own message may be a whole page.
LOG_LINE_CHARS_MAX: Final = 2000


def plain(text: object, chars_max: int = MESSAGE_CHARS_MAX) -> str:
    """`text` as at most `chars_max` characters that UTF-8 can hold. Never raises.

    A value that is no text is converted, if need be by its own code, which may raise or return no
    text. Lone surrogates become their escapes.
    """
    known = text if type(text) is str else _text_of(text)
    if len(known) > chars_max:
        known = known[: max(0, chars_max - 1)] + "…"
    if known.isascii():
        return known
    return known.encode("utf-8", "backslashreplace").decode()[:chars_max]


def _text_of(value: object) -> str:
    try:
        return str.__str__(str(value))
    except BaseException:  # untrusted code: even SystemExit only means that there is no text
        return f"<{kind_of(value)} without a readable text>"


def kind_of(value: object) -> str:
    """The name of the value's class, whatever the class claims about itself."""
    name: str = type.__dict__["__name__"].__get__(type(value))
    return plain(name, _CODE_CHARS_MAX)


def _within(value: object, least: float, most: float) -> Any:
    """`value` if it is a number from `least` to `most`, else None."""
    return value if isinstance(value, int | float) and least <= value <= most else None


def _status(value: object, *, least: int = 400) -> int | None:
    """`value` if it is an HTTP status of at least `least`, as a plain number; else None."""
    known = _within(value, least, 599)
    return None if known is None else int(known)


class PenstockError(Exception):
    """Base of all errors that a person or a client may see.

    Attributes:
        code: stable kebab-case name, what programs match on.
        message: what happened and where, with the values.
        hint: what to do now; may be empty.
        status: the HTTP status that plain HTTP doors answer, 400 to 599.
        retry_after_s: seconds after which the same request may pass; None if unknown or never.
        logged: its line is in the endpoint's log, so a text may refer to it (see `logged`).
    """

    status_default = 500
    family = "internal"

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        message = plain(message)
        super().__init__(message)
        self.code = plain(code, _CODE_CHARS_MAX)
        self.message = message
        self.hint = plain(hint, _HINT_CHARS_MAX)
        self.status = _status(status) or self.status_default
        self.retry_after_s = _within(retry_after_s, 0, _RETRY_S_MAX)
        self.logged = False

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, also the body of an error frame between gateway and instance.

        The result is plain, whatever was assigned to the fields since.
        """
        return {
            "family": self.family,
            "code": plain(self.code, _CODE_CHARS_MAX),
            "message": plain(self.message),
            "hint": plain(self.hint, _HINT_CHARS_MAX),
            "status": _status(self.status) or self.status_default,
            "retry_after_s": _within(self.retry_after_s, 0, _RETRY_S_MAX),
            "logged": self.logged,
        }

    def __str__(self) -> str:
        return self.message


class CallerError(PenstockError):
    """The request is wrong; sending it again unchanged cannot help.

    Attributes:
        param: the wrong part of the request, by its name in the protocol; may be empty.
    """

    status_default = 400
    family = "caller"

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
        param: str = "",
    ) -> None:
        super().__init__(code, message, hint=hint, status=status, retry_after_s=retry_after_s)
        self.param = param

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | ({"param": self.param} if self.param else {})


class NotNowError(PenstockError):
    """Refused or given up for lack of capacity or time; the same request may pass later."""

    status_default = 503
    family = "not-now"


class ModelError(PenstockError):
    """The model's own code or weights failed on this request.

    Attributes:
        original_status: the status that the model returned or meant (415, 422, 500 ...).
        original_message: the model's own message, shown to the caller.
        container: hostname of the container that failed; "" = the model has only one.
        ends_process: True: nothing can run any more in the process that raised it.
    """

    status_default = 424
    family = "model"
    ends_process = False

    def __init__(
        self,
        code: str,
        message: str,
        *,
        hint: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
        original_status: int = 500,
        original_message: str | None = None,
    ) -> None:
        super().__init__(code, message, hint=hint, status=status, retry_after_s=retry_after_s)
        self.original_status = _status(original_status, least=100) or 500
        self.original_message = plain(message if original_message is None else original_message)
        self.container = ""

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "original_status": _status(self.original_status, least=100) or 500,
            "original_message": plain(self.original_message),
            **({"container": plain(self.container, _CODE_CHARS_MAX)} if self.container else {}),
        }


class InternalError(PenstockError):
    """A bug of ours. The log has the details; the client sees only the code."""


_FAMILIES: dict[str, type[PenstockError]] = {
    kind.family: kind for kind in (CallerError, NotNowError, ModelError, InternalError)
}


def from_dict(fields: dict[str, Any]) -> PenstockError:
    """The inverse of `to_dict`, for any dict; unknown families become `InternalError`.

    Another process's data is not trusted beyond its kind: a field that `to_dict` could not have
    written counts as missing, because the code that renders errors relies on valid fields.
    """
    kind = _FAMILIES.get(str(fields.get("family")), InternalError)
    common: dict[str, Any] = {
        "hint": _text(fields.get("hint"), ""),
        "status": _status(fields.get("status")),
        "retry_after_s": _within(fields.get("retry_after_s"), 0, _RETRY_S_MAX),
    }
    if kind is CallerError:
        common["param"] = _text(fields.get("param"), "")
    if kind is ModelError:
        common["original_status"] = _status(fields.get("original_status"), least=100) or 500
        common["original_message"] = _text(fields.get("original_message"), None)
    code, message = _text(fields.get("code"), "internal"), _text(fields.get("message"), "")
    error = kind(code, message, **common)
    if isinstance(error, ModelError):
        error.container = plain(_text(fields.get("container"), ""), _CODE_CHARS_MAX)
    error.logged = fields.get("logged") is True
    return error


def _text(value: object, missing: str | None) -> Any:
    return value if isinstance(value, str) else missing


def with_hint(message: str, hint: str) -> str:
    """What happened and what to do as one text of two sentences, for protocols with one field."""
    if not hint:
        return message
    return f"{message} {hint}" if message.endswith((".", "!", "?")) else f"{message}. {hint}"


Error = TypeVar("Error", bound=PenstockError)


def logged(error: Error, write: Callable[[str], object]) -> Error:
    """The error, after `write` has put its line into the log: only such an error refers to it.

    An error that the requests of a batch share is logged once.
    """
    if not error.logged:
        words = " ".join(with_hint(error.message, error.hint).split())
        write(f"error[{error.code}]: {words}"[:LOG_LINE_CHARS_MAX])
        error.logged = True
    return error
