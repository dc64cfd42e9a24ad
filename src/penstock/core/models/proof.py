"""Whether an artifact's answers are known to be its source's on this processor.

A compile proves it on one instruction set. On another one the same artifact runs other code, so the
proof does not carry over by itself: a few samples that the artifact brings along are asked again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

HERE = "proved-here"  #: compiled under this very instruction set
CHECKED = "checked-here"  #: proved elsewhere; its samples are answered right here too
ELSEWHERE = "proved-elsewhere"  #: and it brings nothing along that could be asked
NOT_PROVED = "not-proved"  #: proved elsewhere, and its samples are answered otherwise here


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What may be said of an artifact on this machine."""

    state: str  #: one of the four above
    proved_on: str  #: the compile's instruction set; "" = its report does not say
    instruction_set: str  #: that is in force here
    detail: str = ""  #: what lies outside of the tolerance, or why nothing could be asked

    def to_dict(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "proved_on": self.proved_on,
            "instruction_set": self.instruction_set,
            "detail": self.detail,
        }


def needs_check(proved_on: str, here: str) -> bool:
    return proved_on != here


def proof(
    proved_on: str, here: str, failures: tuple[str, ...] | None, *, unasked: str = ""
) -> Proof:
    """`failures`: of the samples on this processor, () where none is; None: nothing was asked, for
    the reason `unasked`."""
    if not needs_check(proved_on, here):
        state, detail = HERE, ""
    elif failures is None:
        state, detail = ELSEWHERE, unasked
    elif failures:
        state, detail = NOT_PROVED, "; ".join(failures)
    else:
        state, detail = CHECKED, ""
    return Proof(state=state, proved_on=proved_on, instruction_set=here, detail=detail)
