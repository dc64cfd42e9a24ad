"""How `--target auto` chooses for this processor: it compiles, compares and measures candidates.

Each candidate is a whole compile into a folder of its own, held to its target's tolerance; a
candidate that fails there is never chosen. Speed is the ratio of the source's time to the
artifact's, measured alternately for each shape, so that other load hits both. This module orders
the candidates and chooses; the caller compiles.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.compile.contract import Compiled, Options, Say
from penstock.compile.targets import TARGETS, CompileTarget
from penstock.errors import PenstockError

#: Relative: on shared cores, two measurements of the same thing differ by about as much.
TIE = 0.05
#: s per shape: four candidates and five shapes take a quarter of a minute in all.
_MEASURE_S_MAX = 0.25
_MEASURE_S_UNASKED = 0.05  #: s per shape where only the choice is needed, and no figures
#: Errors that rule a candidate out; any other error is the caller's.
_REFUSALS = (
    "parity-failed", "target-unsupported", "conversion-failed", "artifact-unusable",
)  # fmt: skip

#: Compiles once into a folder; raises what the compile raises, including `parity-failed`.
Compile = Callable[[CompileTarget, Options, Path], Compiled]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileCandidate:
    target: str
    activations: bool = False  #: INT8: activations are quantised too

    @property
    def name(self) -> str:
        return f"{self.target} with activations" if self.activations else self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A candidate with its results."""

    candidate: CompileCandidate
    speedup: float | None = None  #: geometric mean over shapes; None = refused, or not timed
    difference_mean: float = math.inf
    difference_max: float = math.inf
    refused: str = ""  #: why it can't be chosen; "" = it can be

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"candidate": self.candidate.name}
        if self.refused:
            return told | {"refused": self.refused}
        return told | {
            "speedup": None if self.speedup is None else round(self.speedup, 3),
            "difference_mean": self.difference_mean,
            "difference_max": self.difference_max,
        }


def candidates(*, bf16: bool, calibrated: bool) -> tuple[CompileCandidate, ...]:
    """The most accurate first. On a processor without BF16, a BF16 artifact would be FP32 with
    rounded weights: no faster, and less accurate than FP32."""
    found = [CompileCandidate(target="cpu-fp32")]
    if bf16:
        found.append(CompileCandidate(target="cpu-bf16"))
    found.append(CompileCandidate(target="cpu-int8"))
    if calibrated:
        found.append(CompileCandidate(target="cpu-int8", activations=True))
    return tuple(found)


def choose(tried: Sequence[Tried]) -> Tried | None:
    """The fastest; of those within `TIE` of it, the one with the smallest mean difference, then the
    first. None where all are refused."""
    able = [each for each in tried if not each.refused]
    if not able:
        return None
    fastest = max(each.speedup or 1.0 for each in able)
    near = [each for each in able if (each.speedup or 1.0) * (1.0 + TIE) >= fastest]
    return min(near, key=lambda each: each.difference_mean)  # min keeps the first of equals


def compile_fastest(
    options: Options,
    staging: Path,
    compile_: Compile,
    *,
    bf16: bool,
    limited: Callable[[CompileTarget], CompileTarget],
    say: Say,
) -> tuple[Compiled, CompileTarget, dict[str, Any]]:
    """Fills `staging` with the fastest candidate. Returns it, its target, and a record of the
    choice.

    `limited` gets each target and returns it with the caller's tolerance. Raises the first
    candidate's error if none can be chosen, and any error that rules out no candidate at once.
    """
    asked_s = min(options.measure_s, _MEASURE_S_MAX) or _MEASURE_S_UNASKED
    tried: list[Tried] = []
    made: list[tuple[Compiled, CompileTarget, Path]] = []
    first: PenstockError | None = None
    calibrated = options.calibration is not None
    for at, candidate in enumerate(candidates(bf16=bf16, calibrated=calibrated)):
        target = limited(TARGETS[candidate.target])
        folder = staging / f".candidate-{at}"
        folder.mkdir()
        wanted = dataclasses.replace(
            options, target=target.name, measure_s=asked_s, activations=candidate.activations
        )
        say(f"trying {candidate.name}")
        try:
            compiled = compile_(target, wanted, folder)
        except PenstockError as error:
            if error.code not in _REFUSALS:
                raise
            first = first or error
            tried.append(Tried(candidate=candidate, refused=error.message))
            shutil.rmtree(folder)
            continue
        tried.append(_tried(candidate, compiled))
        made.append((compiled, target, folder))
        say(f"  {_told(tried[-1])}")
    best = choose(tried)
    if best is None:
        assert first is not None
        raise first
    able = [each for each in tried if not each.refused]
    compiled, target, folder = made[able.index(best)]
    for file in list(folder.iterdir()):
        file.rename(staging / file.name)
    for _, _, each in made:
        shutil.rmtree(each)
    if options.measure_s <= 0:
        compiled.timings = ()
    story = {
        "chosen": best.candidate.name,
        "tie": TIE,
        "tried": [each.to_dict() for each in tried],
    }
    return compiled, target, story


def _tried(candidate: CompileCandidate, compiled: Compiled) -> Tried:
    ratios = [each.before_s / each.after_s for each in compiled.timings if each.after_s > 0]
    speedup = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    return Tried(
        candidate=candidate,
        speedup=speedup,
        difference_mean=compiled.parity.difference_mean,
        difference_max=compiled.parity.difference_max,
    )


def _told(tried: Tried) -> str:
    speed = "not timed" if tried.speedup is None else f"{tried.speedup:.2f} x the source"
    return f"{speed}, mean difference {tried.difference_mean:.2e}"
