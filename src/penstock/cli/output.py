"""What commands print: tables for people, JSON for programs, errors, and figures of costs."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from math import floor, log10
from typing import Any, Final, NoReturn

from penstock.errors import PenstockError

#: Longer than any row of cells that were cut.
_LINE_CHARS_MAX: Final = 4096
#: A FailureReason has up to 1,024 characters: without a terminal a cell shows this much of it.
CELL_CHARS_MAX: Final = 120


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, indent=2, default=str))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output. Where that is no terminal each row has one line, however long,
    and long cells are cut: `--json` has all of them."""
    from rich.console import Console  # noqa: PLC0415 - 80 ms that JSON output never pays
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(title=title or None, title_justify="left", show_edge=False, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    terminal = sys.stdout.isatty()
    for row in rows:
        cells = ("" if cell is None else str(cell) for cell in row)
        # As text, since brackets in a name are no markup.
        table.add_row(*(Text(cell if terminal else _cut(cell)) for cell in cells))
    if terminal:
        Console().print(table)
        return
    drawn = io.StringIO()
    Console(width=_LINE_CHARS_MAX, file=drawn).print(table)
    for line in drawn.getvalue().splitlines():
        print(line.rstrip())


def _cut(cell: str) -> str:
    line = " ".join(cell.split("\n"))
    return line if len(line) <= CELL_CHARS_MAX else f"{line[: CELL_CHARS_MAX - 1]}…"


def print_found(
    value: Any, title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, json_: bool
) -> None:
    """What a command has found: `value` for programs, else rows for people."""
    if json_:
        print_json(value)
    else:
        print_table(title, columns, rows)


def seconds(moment: float | None) -> str | None:
    """A Unix time as a cell of a table: local time, to the second."""
    if moment is None:
        return None
    return datetime.fromtimestamp(moment).isoformat(sep=" ", timespec="seconds")


def note(line: str) -> None:
    """A line for people: on standard error, so that standard output stays machine-readable."""
    print(line, file=sys.stderr, flush=True)


def fail(error: PenstockError, *, status: int | None = None) -> NoReturn:
    """Prints the error and its hint; exits with 75 if it may pass later, else with 1."""
    print(f"error[{error.code}]: {error.message}", file=sys.stderr)
    if error.hint:
        print(f"hint: {error.hint}", file=sys.stderr)
    raise SystemExit(status or (75 if error.family == "not-now" else 1))


_DIGITS: Final = 3
_PLACES_MAX: Final = 12


def figure(amount: float) -> str:
    """Three significant digits, never with an exponent: 12.3, 0.0000881; 0 below a millionth of a
    millionth."""
    if amount == 0.0 or abs(amount) < 10.0**-_PLACES_MAX:
        return "0"
    places = max(0, min(_DIGITS - 1 - floor(log10(abs(amount))), _PLACES_MAX))
    text = f"{amount:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def money(dollars: float) -> str:
    return f"${figure(dollars)}"


def saved(share: float) -> str:
    """A saving in percent; a higher cost as a factor, because -3900% says nothing."""
    return f"{share:.0%}" if share >= 0.0 else f"{figure(round(1.0 - share, 2))} x as dear"
