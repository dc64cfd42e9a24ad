"""Which version a requirement names, and which of those that pip lists is nearest to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.core.models.nearest_version import nearest_version
from penstock.runtimes.environments.requirements import parsed

_LISTED: Final = "(from versions: "
_NUMBERS: Final = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def pinned(line: str) -> str | None:
    """The version that a requirement names exactly, or None."""
    for clause in parsed(line).versions:
        version = clause.removeprefix("==").removesuffix(".*")
        if clause.startswith("==") and _NUMBERS.fullmatch(version):
            return version
    return None


def nearest(wanted: str, told: Iterable[str]) -> str:
    """`told`: the lines of pip, which names those that it may take; "" where it names none."""
    versions: set[str] = set()
    for line in told:
        listed = line.partition(_LISTED)[2].partition(")")[0]
        versions |= {each.strip() for each in listed.split(",")}
    return nearest_version(wanted, versions)
