"""Mutants that behave as the original does, each with its reason: `equivalent/<folder>.toml`.

An entry::

    [[equivalent]]
    module = "core/batching/batcher.py"
    function = "Batcher.add"
    change = "if a < b: -> if a <= b:"    # as `make mutants` prints it
    why = "a and b are never equal: ..."
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "equivalent"


@dataclass(frozen=True)
class Equivalent:
    module: str
    function: str
    #: the statement before and after, as it is printed
    change: str
    why: str


def read_equivalents(folder: Path = FOLDER) -> list[Equivalent]:
    """Every entry of every file. Raises TypeError for one with a key too many or too few."""
    return [
        Equivalent(**entry)
        for file in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(file.read_text()).get("equivalent", [])
    ]
