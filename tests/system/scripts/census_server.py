"""`penstock up` that tells, when it is sent SIGUSR1, what its process holds of given names.

Its first words are the command line that it stands for. In $CENSUS it writes a JSON list: each
thing that refers to a string with $CENSUS_MARK in it, as its type and the types that lead to it.
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
    found = [_path(holder) for holder in _holders()]
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


def _path(holder: Any) -> str:
    names = [_name(holder)]
    for _ in range(3):
        referrers = [
            one
            for one in gc.get_referrers(holder)
            if not isinstance(one, FrameType) and type(one).__name__ != "generator"
        ]
        if not referrers:
            break
        holder = referrers[0]
        names.append(_name(holder))
    return " < ".join(names)


def _name(one: Any) -> str:
    return f"{type(one).__module__}.{type(one).__qualname__}"


sys.argv = ["penstock", *WORDS]
signal.signal(signal.SIGUSR1, census)
main.main()
