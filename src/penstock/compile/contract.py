"""What the parts of the compiler pass to one another: options, results, and figures.

Plain values only. This module imports no part of the compiler and no library of the extra.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.artifacts.description.description import ModelDescription

#: Called with a short description of each step.
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a caller may choose. Values that are left out are derived from the source."""

    target: str  #: a name of `targets.NAMES`
    task: str = ""  #: one of description.TASKS; "" = according to the source's files
    name: str = ""  #: the model's own name
    description: Path | None = None  #: a model.yaml, for sources that don't state their task
    tokenizer: Path | None = None  #: a tokenizer.json for such sources
    inputs: tuple[str, ...] = ()  #: TorchScript: "NAME:DTYPE:SIZE,SIZE" each, -1 = any
    #: file of texts, one per line; with it cpu-int8 quantises activations too
    calibration: Path | None = None
    activations: bool = True  #: False: INT8 weights only, even with a calibration set
    samples: Path | None = None  #: texts for the parity check, or an .npz of input tensors
    tokens_max: int = 0  #: longer texts are cut; 0 = the source's limit, at most 512
    rows_max: int = 32  #: most rows in a batch
    tolerance: float | None = None  #: largest difference allowed; None = the target's own
    trust: bool = False  #: pickle files may be loaded
    measure_s: float = 1.0  #: time for each measured shape, before and after; 0 = no measurement
    threads: int = 0  #: threads to measure with; 0 = all cores


_PATHS = ("description", "tokenizer", "calibration", "samples")


def options_text(options: Options) -> str:
    """The options as JSON, for another process."""
    return json.dumps(asdict(options), default=str)


def options_from(text: str) -> Options:
    """The inverse of `options_text`."""
    fields = json.loads(text)
    paths = {name: Path(fields[name]) for name in _PATHS if fields[name] is not None}
    return Options(**fields | paths | {"inputs": tuple(fields["inputs"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far a compiled model may differ from its source."""

    difference_max: float  #: in the unit of `Parity.unit`
    difference_mean: float
    agreement_min: float  #: 0 to 1; ignored without labels or tokens to compare


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """How the artifact's answers compare with the source's, on the same inputs."""

    unit: str  #: kind of value compared: probability, cosine-distance, relative, token
    samples: int  #: answers compared
    difference_max: float
    difference_mean: float
    agreement: float | None  #: share of equal labels or tokens; None = it has none to compare
    tolerance: Tolerance
    measure: str = ""  #: explains the figures where `unit` is not enough

    def failures(self) -> tuple[str, ...]:
        """What exceeds the tolerance, in words; () if nothing does."""
        limits, found = self.tolerance, []
        # `not <=`, because a NaN must count as a failure
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
    """The result of a lowering, whose files lie in the staging folder.

    `description` has runtime, task, files and tokenizer; the files that it names exist.
    """

    description: ModelDescription
    parity: Parity
    timings: tuple[Timing, ...] = ()
    framework: str = ""  #: framework and precision of `before`: "PyTorch FP32"
    source_bytes: int = 0  #: size of the weights in the source
    notes: list[str] = field(default_factory=list)  #: remarks for the caller
    choices: dict[str, Any] = field(default_factory=dict)  #: derived settings, for the provenance
    auto: dict[str, Any] = field(
        default_factory=dict
    )  #: how the target was chosen; {} = it was named
    proof_batches: int = 0  #: batches kept in the artifact for the proof on other processors
