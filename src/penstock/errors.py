"""The one tree of errors: what happened, whose fault it is, and what to do now.

    PenstockError
    ├── CallerError      the request is wrong: fix it            (400 unless said otherwise)
    ├── NotNowError      the same request may pass later         (503, 429; `retry_after_s`)
    ├── ModelError       user code or weights failed             (424)
    └── InternalError    a bug of ours: the client sees the code (500)

Each front door maps this tree to its own protocol in one table. Nothing here knows a protocol, and
this module imports nothing of ours.
"""

from __future__ import annotations

from typing import Any


class PenstockError(Exception):
    """Base of all errors that a person or a client may see.

    Attributes:
        code: stable kebab-case name, what programs match on.
        message: what happened and where, with the values.
        hint: what to do now; may be empty.
        status: the HTTP status that plain HTTP doors answer.
        retry_after_s: seconds after which the same request may pass; None if unknown or never.
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
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = self.status_default if status is None else status
        self.retry_after_s = retry_after_s

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready form, also the body of an error frame between gateway and instance."""
        return {
            "family": self.family,
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "status": self.status,
            "retry_after_s": self.retry_after_s,
        }

    def __str__(self) -> str:
        return self.message


class CallerError(PenstockError):
    """The request is wrong; sending it again unchanged cannot help."""

    status_default = 400
    family = "caller"


class NotNowError(PenstockError):
    """Refused or given up for want of capacity or time; the same request may pass later."""

    status_default = 503
    family = "not-now"


class ModelError(PenstockError):
    """The model's own code or weights failed on this request.

    Attributes:
        original_status: the status that the model answered, or stands for (415, 422, 500 ...).
        original_message: the model's own words, shown to the caller.
    """

    status_default = 424
    family = "model"

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
        self.original_status = original_status
        self.original_message = message if original_message is None else original_message

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {
            "original_status": self.original_status,
            "original_message": self.original_message,
        }


class InternalError(PenstockError):
    """A bug of ours. The log keeps the story; the client sees the code only."""


_RETRY_S_MAX = 365 * 86_400.0  #: a longer wait is nonsense

_FAMILIES: dict[str, type[PenstockError]] = {
    kind.family: kind for kind in (CallerError, NotNowError, ModelError, InternalError)
}


def from_dict(fields: dict[str, Any]) -> PenstockError:
    """The inverse of `to_dict`; unknown families become `InternalError`.

    What another process says is not believed beyond its kind: a field that `to_dict` would not have
    written so counts as missing, because whoever renders the error relies on it.
    """
    kind = _FAMILIES.get(str(fields.get("family")), InternalError)
    common: dict[str, Any] = {
        "hint": _text(fields.get("hint"), ""),
        "status": int(_number(fields.get("status"), 400, 599) or 0) or None,
        "retry_after_s": _number(fields.get("retry_after_s"), 0, _RETRY_S_MAX),
    }
    if kind is ModelError:
        common["original_status"] = int(_number(fields.get("original_status"), 100, 999) or 500)
        common["original_message"] = _text(fields.get("original_message"), None)
    code, message = _text(fields.get("code"), "internal"), _text(fields.get("message"), "")
    return kind(code, message, **common)


def _text(value: object, missing: str | None) -> Any:
    return value if isinstance(value, str) else missing


def _number(value: object, least: float, most: float) -> Any:
    return value if isinstance(value, int | float) and least <= value <= most else None
