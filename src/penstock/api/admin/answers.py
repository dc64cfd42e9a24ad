"""Shared parts of the admin API's pages: errors, and numbers in queries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from penstock.control.store.records import NotFound
from penstock.errors import PenstockError


def error_answer(error: PenstockError) -> Response:
    fields = {"code": error.code, "message": error.message, "hint": error.hint}
    # SageMaker answers 400 for a missing resource; here the resource is a path.
    status = 404 if isinstance(error, NotFound) else error.status
    return JSONResponse(fields, status_code=status)


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
