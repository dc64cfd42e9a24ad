"""What the parts of the compiler hand to one another: what is asked for, made and shown.

Plain values only; no part of the compiler, and no library of the extra, is imported here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import ModelDescription

#: Told of each step, in a few words.
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a caller may choose. Everything left out is derived from the source."""

    target: str  #: a name of `targets.NAMES`
    task: str = ""  #: one of description.TASKS; "" = as the source's files say
    name: str = ""  #: the model's own name
    description: Path | None = None  #: a model.yaml for sources that say nothing of their task
    tokenizer: Path | None = None  #: a tokenizer.json for such sources
    inputs: tuple[str, ...] = ()  #: TorchScript: "NAME:DTYPE:SIZE,SIZE" each, -1 = any
    calibration: Path | None = None  #: texts, one per line; cpu-int8 then quantises activations too
    activations: bool = True  #: False: INT8 is of weights, though there is a calibration set
    samples: Path | None = None  #: texts for the parity check, or an .npz of input tensors
    tokens_max: int = 0  #: longer texts are cut; 0 = as the source says, at most 512
    rows_max: int = 32  #: rows in a batch
    tolerance: float | None = None  #: largest difference allowed; None = the target's own
    trust: bool = False  #: pickle files may be loaded
    measure_s: float = 1.0  #: time for each measured shape, before and after; 0 = no measurement
    threads: int = 0  #: threads to measure with; 0 = all cores


_PATHS = ("description", "tokenizer", "calibration", "samples")


def options_text(options: Options) -> str:
    """As JSON, for another process."""
    return json.dumps(asdict(options), default=str)


def options_from(text: str) -> Options:
    """The inverse of `options_text`."""
    fields = json.loads(text)
    paths = {name: Path(fields[name]) for name in _PATHS if fields[name] is not None}
    return Options(**fields | paths | {"inputs": tuple(fields["inputs"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """What a compiled model may differ from its source and still be taken for it."""

    difference_max: float  #: in the unit that `Parity.unit` names
    difference_mean: float
    agreement_min: float  #: 0 to 1; ignored where there is nothing to agree on


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How the artifact's answers compare with the source's, on the same inputs."""

    unit: str  #: what is compared: probability, cosine-distance, relative, token
    samples: int  #: answers compared
    difference_max: float
    difference_mean: float
    agreement: float | None  #: share of equal labels or tokens; None = nothing to agree on
    tolerance: Tolerance
    measure: str = ""  #: what the figures mean, where `unit` does not say it all

    def failures(self) -> tuple[str, ...]:
        """What lies outside of the tolerance, in words; () if nothing does."""
        limits, found = self.tolerance, []
        # `not <=`: a NaN is no parity
        if not self.difference_max <= limits.difference_max:
            allowed = f"({limits.difference_max:.3g} allowed)"
            found.append(f"largest difference {self.difference_max:.3g} {allowed}")
        if not self.difference_mean <= limits.difference_mean:
            allowed = f"({limits.difference_mean:.3g} allowed)"
            found.append(f"mean difference {self.difference_mean:.3g} {allowed}")
        if self.agreement is not None and not self.agreement >= limits.agreement_min:
            found.append(f"agreement {self.agreement:.4f} ({limits.agreement_min:.4f} needed)")
        if self.samples == 0:
            found.append("no sample was compared")
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One shape, before and after."""

    rows: int
    tokens: int  #: 0 for tensor models; for text to text, tokens in
    before_s: float  #: median time of a batch in the source's own framework
    after_s: float  #: median time of a batch in the runtime that serves the artifact
    after_s_p99: float


@dataclass(slots=True, kw_only=True)
class Compiled:
    """What a lowering leaves in the staging folder, described.

    `description` has runtime, task, files and tokenizer; the files that it names are written.
    """

    description: ModelDescription
    parity: Parity
    timings: tuple[Timing, ...] = ()
    framework: str = ""  #: what `before` ran in, with precision: "PyTorch FP32"
    source_bytes: int = 0  #: of the weights as the source keeps them
    notes: list[str] = field(default_factory=list)  #: what the caller should know
    choices: dict[str, Any] = field(default_factory=dict)  #: derived settings, for the provenance
    auto: dict[str, Any] = field(
        default_factory=dict
    )  #: how the target was chosen; {} = it was named
    proof_batches: int = 0  #: kept in the artifact, for processors with other instruction sets
