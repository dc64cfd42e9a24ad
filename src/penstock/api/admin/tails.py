"""The last lines of logs, for the admin API."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from starlette.requests import Request

from penstock.api.admin.answers import whole_number
from penstock.errors import CallerError

LINES_DEFAULT: Final = 100
LINES_MAX: Final = 10_000
#: Most bytes read from the end of a log: a longer tail is of no use in a terminal.
TAIL_BYTES_MAX: Final = 4 << 20


def tail(path: Path, lines: int) -> list[str]:
    """The last `lines` lines of a log, oldest first; none if there is no log yet."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - TAIL_BYTES_MAX))
            return log.read().decode("utf-8", "replace").splitlines()[-lines:]
    except FileNotFoundError:
        return []


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
