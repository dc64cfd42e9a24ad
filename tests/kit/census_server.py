"""`penstock up` that tells, when it is sent SIGUSR1, what its process holds of given names.

Its first words are the command line that it stands for. In $CENSUS it writes a JSON list: the
classes of Penstock whose objects have, in whatever table, a string with $CENSUS_MARK in it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from penstock.cli import main

MARK = os.environ["CENSUS_MARK"]
WORDS = sys.argv[4:]  # without "python -m penstock"


def census(_number: int, _frame: FrameType | None) -> None:
    gc.collect()
    found = [owner for holder in list(_holders()) if (owner := _owner(holder))]
    path = Path(os.environ["CENSUS"])
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(found))
    draft.replace(path)


def _holders() -> Iterator[Any]:
    """Objects of the garbage collector that hold such a string, itself or in plain tuples, dicts
    and the like, which it does not track."""
    for top in gc.get_objects():
        if isinstance(top, FrameType):
            continue
        work, seen = [top], {id(top)}
        while work:
            for one in gc.get_referents(work.pop()):
                if isinstance(one, str):
                    if MARK in one.lower():
                        yield top
                        work = []
                        break
                elif not gc.is_tracked(one) and id(one) not in seen:
                    seen.add(id(one))
                    work.append(one)


def _owner(holder: Any) -> str:
    """The object of ours that has it, itself or in tables of its own; empty: a library's cache."""
    nearest, seen = [holder], {id(holder)}
    for _ in range(5):
        for one in nearest:
            if type(one).__module__.startswith("penstock."):
                return f"{type(one).__module__}.{type(one).__qualname__}"
        nearest = [
            one
            for one in gc.get_referrers(*nearest)
            if isinstance(one, dict | set | tuple) or type(one).__module__.startswith("penstock.")
            if id(one) not in seen and not seen.add(id(one))  # type: ignore[func-returns-value]
        ]
    return ""


sys.argv = ["penstock", *WORDS]
signal.signal(signal.SIGUSR1, census)
main.main()
