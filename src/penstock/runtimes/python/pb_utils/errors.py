"""Errors of Triton's Python models: exceptions of the module, and errors in responses."""

from __future__ import annotations

from typing import Any

from penstock.runtimes.triton_errors import TRITON_ERRORS, UNKNOWN, TritonErrorKind


class TritonModelException(Exception):  # Triton's name
    """Raised by models, and by this module for wrong use."""


class TritonError:
    """An error for one response."""

    UNKNOWN, INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, UNSUPPORTED, ALREADY_EXISTS = range(7)
    CANCELLED = 7

    def __init__(self, message: str | bytes, code: int = INTERNAL) -> None:
        self._message = text_of(message)
        self._code = code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


def text_of(value: str | bytes) -> str:
    """A text, which models may give as the bytes of a BYTES tensor, as Triton's module takes it."""
    return value.decode() if isinstance(value, bytes) else value


def kind_of_code(code: Any) -> TritonErrorKind:
    """What a code stands for; a code that Triton lacks is an unknown error."""
    known = isinstance(code, int) and 0 <= code < len(TRITON_ERRORS)
    return TRITON_ERRORS[code] if known else UNKNOWN
