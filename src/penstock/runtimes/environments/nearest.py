"""Of the versions that can be installed, the one nearest to the version that an image names.

The newest of the same minor version; else the newest of the next higher minor version that has one,
because a library mostly reads what its former versions wrote; else the newest below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.runtimes.environments.requirements import parsed

_LISTED: Final = "(from versions: "
_NUMBERS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_FINAL: Final = re.compile(r"[0-9]+(?:\.[0-9]+)+(?:\+[\w.]+)?")


def pinned(line: str) -> str | None:
    """The version that a requirement names exactly, or None."""
    for clause in parsed(line).versions:
        version = clause.removeprefix("==").removesuffix(".*")
        if clause.startswith("==") and _NUMBERS.fullmatch(version):
            return version
    return None


def nearest(wanted: str, told: Iterable[str]) -> str:
    """`told`: the lines of pip, which names those that it may take; "" where it names none."""
    versions = set()
    for line in told:
        listed = line.partition(_LISTED)[2].partition(")")[0]
        versions |= {each.strip() for each in listed.split(",")}
    numbers = {_numbers(each): each for each in versions if _FINAL.fullmatch(each)}
    if not numbers:
        return ""
    if wanted in numbers.values():
        return wanted
    minor = _numbers(wanted)[:2]
    same = [each for each in numbers if each[:2] == minor]
    higher = sorted(each for each in numbers if each[:2] > minor)
    if not same and higher:
        same = [each for each in higher if each[:2] == higher[0][:2]]
    return numbers[max(same or numbers)]


def _numbers(version: str) -> tuple[int, ...]:
    numbers = tuple(int(each) for each in version.partition("+")[0].split("."))
    return (*numbers, *(0,) * (2 - len(numbers)))
