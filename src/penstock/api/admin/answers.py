"""What the pages of the admin API have in common: errors, and numbers in queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.control.store.records import NotFound
from penstock.errors import PenstockError


def error_answer(error: PenstockError) -> Response:
    fields = {"code": error.code, "message": error.message, "hint": error.hint}
    # SageMaker's own answer to what is missing is 400; here it is a path.
    status = 404 if isinstance(error, NotFound) else error.status
    return JSONResponse(fields, status_code=status)


def answered(
    answer: Callable[[Request], Awaitable[dict[str, Any]]],
) -> Callable[[Request], Awaitable[Response]]:
    """A page from what answers with members or raises PenstockError."""

    async def page(request: Request) -> Response:
        try:
            return JSONResponse(await answer(request))
        except PenstockError as error:
            return error_answer(error)

    return page


def whole_number(text: str, most: int) -> int | None:
    """From 1 to `most`; None for what is none."""
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    return int(text) if digits and 1 <= int(text) <= most else None
