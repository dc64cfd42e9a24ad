"""The regular expressions of service models, in Java's dialect, translated to Python's.

AWS checks that the whole value matches. Where Python can't express a pattern (Unicode categories),
it is not checked here: the code behind decides.
"""

from __future__ import annotations

import functools
import re
import warnings
from typing import Final

_IN_CLASS: Final = {
    r"\p{ASCII}": r"\x00-\x7f",
    r"\p{Print}": r"\x20-\x7e",
    r"\p{Alnum}": "a-zA-Z0-9",
    # Java writes characters beyond the first 65,536 as surrogate pairs.
    r"\uD800\uDC00-\uDBFF\uDFFF": r"\U00010000-\U0010ffff",
}
_END: Final = r"\z"
#: Equivalent patterns that match in linear time, where the model's own form backtracks.
_LINEAR_FORMS: Final = {
    r"(https|s3)://([^/]+)/?(.*)": r"(https|s3)://[^/]+(/.*)?",
    r"[a-zA-Z0-9]([\-a-zA-Z0-9]*[a-zA-Z0-9])?": r"[a-zA-Z0-9](-*[a-zA-Z0-9])*",
}
_PATTERNS_MAX: Final = 4096


@functools.lru_cache(maxsize=_PATTERNS_MAX)
def compiled(pattern: str) -> re.Pattern[str] | None:
    """The pattern to call `fullmatch` on, or None where Python can't express it."""
    pattern = _LINEAR_FORMS.get(pattern, pattern)
    try:
        with warnings.catch_warnings():
            # Python warns where it reads a class differently from Java.
            warnings.simplefilter("error")
            return re.compile(_translated(pattern))
    except (re.error, FutureWarning, DeprecationWarning):
        return None


def _translated(pattern: str) -> str:
    out: list[str] = []
    in_class = False
    at = 0
    while at < len(pattern):
        known = next((name for name in _IN_CLASS if pattern.startswith(name, at)), None)
        if known is not None:
            out.append(_IN_CLASS[known] if in_class else f"[{_IN_CLASS[known]}]")
            at += len(known)
        elif pattern.startswith(_END, at):
            out.append(r"\Z")
            at += len(_END)
        elif pattern[at] == "\\":
            out.append(pattern[at : at + 2])
            at += 2
        else:
            if in_class and pattern[at] == "[":
                raise re.error("a class within a class")
            in_class = pattern[at] == "[" or (in_class and pattern[at] != "]")
            out.append(pattern[at])
            at += 1
    return "".join(out)
