"""What must not be kept of captured calls: the operator's regular expressions, as RE2 reads them.

They run over strangers' bodies, in threads of a process that serves. Python's own expressions may
take a body's length squared or worse, and hold the interpreter meanwhile; RE2's are linear whatever
the text, so it has no lookaround and no references back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from penstock.distribution import install_command
from penstock.errors import CallerError

REDACTED: Final = b"[redacted]"


def redaction(patterns: Iterable[str]) -> Callable[[bytes], bytes] | None:
    """Replaces what any of the patterns matches; None: there is no pattern.

    Raises:
        CallerError: `config-invalid`: RE2 can't read one, or it matches nothing at all;
            `package-missing`: RE2 is not installed.
    """
    wanted = tuple(patterns)
    if not wanted:
        return None
    try:
        import re2  # noqa: PLC0415 - only who redacts needs it
    except ImportError as error:
        raise CallerError(
            "package-missing",
            "limits.capture_redact needs RE2, which is not installed",
            hint=f"Install it: {install_command('redact')}",
        ) from error
    options = re2.Options()
    options.log_errors = False
    compiled = []
    for pattern in wanted:
        try:
            one = re2.compile(pattern.encode(), options)
        except re2.error as error:
            raise _invalid(pattern, f"RE2 can't read it: {_text(error)}") from error
        if one.match(b"") is not None:
            raise _invalid(pattern, "it matches where there is nothing; let it match a character")
        compiled.append(one)

    def redacted(data: bytes) -> bytes:
        for one in compiled:
            data = one.sub(REDACTED, data)
        return data

    return redacted


def _text(error: Exception) -> str:
    told = error.args[0] if error.args else error
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)


def _invalid(pattern: str, cause: str) -> CallerError:
    return CallerError(
        "config-invalid",
        f"limits.capture_redact = {pattern!r} is not valid; {cause}",
        hint="See https://github.com/google/re2/wiki/Syntax.",
    )
