"""Of the versions that can be installed, the one nearest to the version that somebody names.

The newest of the same minor version; else the newest of the next higher minor version that has one,
because a library mostly reads what its former versions wrote; else the newest below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_FINAL: Final = re.compile(r"[0-9]+(?:\.[0-9]+)+(?:\+[\w.]+)?")


def nearest_version(wanted: str, versions: Iterable[str]) -> str:
    """`wanted`: numbers with dots. Only final releases of `versions` count; "" if there is none."""
    numbers = {_numbers(each): each for each in versions if _FINAL.fullmatch(each)}
    if not numbers:
        return ""
    if wanted in numbers.values():
        return wanted
    minor = _numbers(wanted)[:2]
    minors = sorted(each[:2] for each in numbers)
    taken = next((each for each in minors if each >= minor), minors[-1])
    return numbers[max(each for each in numbers if each[:2] == taken)]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(each) for each in version.partition("+")[0].split("."))
