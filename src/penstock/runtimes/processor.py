"""This machine's processor: its name, and the instruction set that is in force.

`core.instruction_sets` decides what follows from them.
"""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path

from penstock.core.models.instruction_sets import InstructionSet, instruction_set

#: oneDNN reads the second where the first is not set.
LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")


def processor() -> str:
    """The CPU's name from the kernel."""
    return _facts()[0] or platform.processor() or platform.machine()


def instruction_set_here() -> InstructionSet:
    """The processor's instruction set, without what oneDNN may not use."""
    return instruction_set(platform.machine(), _facts()[1], limit=instruction_set_limit())


def instruction_set_limit() -> str:
    """The limit in the environment; "" = none."""
    return next((os.environ[name] for name in LIMITS if os.environ.get(name)), "")


@lru_cache(maxsize=1)
def _facts() -> tuple[str, frozenset[str]]:
    """Name and flags of the first core."""
    name, flags = "", frozenset[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and not name:
                name = value.strip()
            elif key.strip() in ("flags", "Features") and not flags:
                flags = frozenset(value.split())
    except OSError:
        pass
    return name, flags
