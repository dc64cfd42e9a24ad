"""Which of an artifact's compiled builds a processor takes.

One artifact may hold a model several times, compiled for different processors. A build says which
instruction set it needs; a processor takes the build that needs most of what it has, for that is
what the build was made to use. Builds that need the same are taken in the order in which they are
listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.models.instruction_sets import can_run, demand

BEST = "needs-most-of-what-is-here"
ONLY = "only-build-that-runs-here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One compiled form of a model."""

    folder: str  #: below the artifact's root, an artifact by itself
    needs: str = ""  #: instruction set, by oneDNN's name; "" = any processor
    target: str = ""  #: what it was compiled for; for people


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildChoice:
    build: Build
    reason: str
    instruction_set: str  #: that is in force here
    passed_over: tuple[str, ...] = ()  #: folders of builds that can't run here

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": self.build.folder,
            "needs": self.build.needs,
            "target": self.build.target,
            "reason": self.reason,
            "instruction_set": self.instruction_set,
            "passed_over": list(self.passed_over),
        }


def choose(builds: Sequence[Build], here: str) -> BuildChoice | None:
    """`here`: name of this processor's instruction set. None: no build runs on it."""
    able = [one for one in builds if can_run(one.needs, here)]
    if not able:
        return None
    return BuildChoice(
        build=max(able, key=lambda one: demand(one.needs)),  # the first of those alike
        reason=BEST if len(able) > 1 else ONLY,
        instruction_set=here,
        passed_over=tuple(one.folder for one in builds if one not in able),
    )
