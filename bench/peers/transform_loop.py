"""What the peers of bench/transform.py share: pairs of a file, and the loop that is asked to run.

A JSON line asks for a run over rows of a file, one JSON line answers: seconds that it took, and the
answers to the first rows, for comparison.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

#: Rows whose answers are told.
SHOWN = 200


def serve(run: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers until standard input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def pairs_of(file: str, skip: int, rows: int) -> list[tuple[str, str]]:
    with open(file, "rb") as lines:
        return [
            (pair["text"], pair["text_pair"])
            for pair in map(json.loads, islice(lines, skip, skip + rows))
        ]
