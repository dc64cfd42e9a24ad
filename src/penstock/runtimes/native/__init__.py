"""Code in C, built where a compiler is found. Penstock runs without it.

`lane.c`: lanes that run a compiled graph without the interpreter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.runtimes.native.lane import NativeLane


def native_lane() -> type[NativeLane] | None:
    """None: it was not built here."""
    try:
        from penstock.runtimes.native.lane import NativeLane
    except ImportError:
        return None
    return NativeLane
