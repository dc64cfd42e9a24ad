"""Texts from a caller's file, one per line: samples for the comparison or the calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.errors import CallerError

_ROWS_MAX: Final = 2000  #: later lines are not read: a comparison would take hours
_LINE_CHARS_MAX: Final = 100_000


def text_lines(path: Path) -> list[str]:
    """The non-empty lines, at least one. Raises CallerError (`samples-invalid`)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(
            "samples-invalid", f"{path}: {error}", hint="Give a UTF-8 file with one text per line."
        ) from None
    texts = [line for line in lines[:_ROWS_MAX] if line.strip()]
    if not texts or max(map(len, texts)) > _LINE_CHARS_MAX:
        raise CallerError(
            "samples-invalid",
            f"{path} holds {'a line that is too long' if texts else 'no text'}",
            hint="Give a UTF-8 file with one text per line; the two texts of a pair are divided "
            "by a tab.",
        )
    return texts
