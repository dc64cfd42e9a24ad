"""Shared parts of the admin API's pages: errors, and numbers in queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.control.store.records import NotFound
from penstock.errors import CallerError, PenstockError


def error_answer(error: PenstockError, headers: Mapping[str, str] | None = None) -> Response:
    fields = {"code": error.code, "message": error.message, "hint": error.hint}
    # SageMaker answers 400 for a missing resource; here the resource is a path.
    status = 404 if isinstance(error, NotFound) else error.status
    return JSONResponse(fields, status_code=status, headers=headers)


def answered(
    answer: Callable[[Request], Awaitable[dict[str, Any]]],
) -> Callable[[Request], Awaitable[Response]]:
    """A page from a function that returns members or raises PenstockError."""

    async def page(request: Request) -> Response:
        try:
            return JSONResponse(await answer(request))
        except PenstockError as error:
            return error_answer(error)

    return page


def whole_number(text: str, most: int) -> int | None:
    """A number from 1 to `most`; None for any other text."""
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if digits and 1 <= int(text) <= most else None


LIMIT_DEFAULT: Final = 100
LINES_DEFAULT: Final = 100
LINES_MAX: Final = 10_000


def limit_of(request: Request, what: str, most: int, *, more: str = "") -> int:
    """The number of entries that a request wants. Raises CallerError (`limit-invalid`)."""
    text = request.query_params.get("limit", str(LIMIT_DEFAULT))
    limit = whole_number(text, most)
    if limit is None:
        raise CallerError(
            "limit-invalid",
            f"limit={text[:32]!r} is not a number of {what}",
            hint=f"Ask for 1 to {most}{more}.",
        )
    return limit


def lines_of(request: Request) -> int:
    """The number of lines that a request wants. Raises CallerError (`lines-invalid`)."""
    text = request.query_params.get("lines", str(LINES_DEFAULT))
    lines = whole_number(text, LINES_MAX)
    if lines is None:
        raise CallerError(
            "lines-invalid",
            f"lines={text[:32]!r} is not a number of lines",
            hint=f"Ask for 1 to {LINES_MAX}.",
        )
    return lines
