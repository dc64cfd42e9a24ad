"""Which of the runtimes that read a model's file serves it.

Which operators a library has is known best to the library, so each is tried, the preferred one
first, until one takes the file. Who names a runtime gets that one alone, and no try is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TryRuntime:
    """Find out whether this runtime takes the file, and decide again."""

    runtime: str


@dataclass(frozen=True, slots=True)
class TakeRuntime:
    runtime: str
    reason: str  #: why the preferred one does not serve it; empty: it does


@dataclass(frozen=True, slots=True)
class RefuseFile:
    reason: str  #: of every runtime


def decide(
    file: str, runtimes: Sequence[str], refusals: Sequence[str]
) -> TryRuntime | TakeRuntime | RefuseFile:
    """`runtimes`: the preferred one first. `refusals`: of the first of them, as far as they have
    been tried; "" = it takes the file."""
    reasons = [
        f"and {runtime} does not take it either: {refusal}"
        if at
        else f"{runtime} does not take {file}: {refusal}"
        for at, (runtime, refusal) in enumerate(zip(runtimes, refusals, strict=False))
        if refusal
    ]
    reason, tried = "; ".join(reasons), len(refusals)
    if len(runtimes) == 1 or "" in refusals:
        return TakeRuntime(runtimes[len(reasons)], reason)
    return TryRuntime(runtimes[tried]) if tried < len(runtimes) else RefuseFile(reason)
