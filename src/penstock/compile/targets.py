"""The chips and number formats to compile for, and the loss of accuracy that each may have.

A target has the name `<device>-<format>`. The table has no code; lowerings read it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.compile.contract import Tolerance
from penstock.compile.libraries import need
from penstock.errors import CallerError
from penstock.runtimes.processor import instruction_set_here


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileTarget:
    """One chip and number format."""

    name: str
    device: str  #: cpu | cuda
    weights: str  #: format in which weights are stored: f32 | f16 | bf16 | i8
    precision: str  #: format of arithmetic: f32 | f16 | bf16; "" = the fastest that the CPU has
    #: Bounds of differences in probabilities, or relative to the source's largest value. Rounding
    #: to 8 bits of mantissa (BF16) moves a logit of size 10 by up to 0.04, and twelve layers add
    #: up; INT8 weights do so by about as much again. Users notice mean and agreement; the largest
    #: difference shows a wrong graph.
    tolerance: Tolerance


def _target(
    name: str, weights: str, precision: str, largest: float, mean: float, agreement: float
) -> CompileTarget:
    return CompileTarget(
        name=name,
        device=name.partition("-")[0],
        weights=weights,
        precision=precision,
        tolerance=Tolerance(difference_max=largest, difference_mean=mean, agreement_min=agreement),
    )


_ALL = (
    _target("cpu-fp32", "f32", "f32", 1e-3, 1e-4, 1.0),
    _target("cpu-bf16", "f16", "bf16", 0.06, 0.01, 0.99),
    _target("cpu-int8", "i8", "", 0.15, 0.03, 0.97),
    _target("cuda-fp32", "f32", "f32", 1e-2, 1e-3, 1.0),
    _target("cuda-fp16", "f16", "f16", 0.02, 0.004, 0.99),
    _target("cuda-bf16", "bf16", "bf16", 0.06, 0.01, 0.99),
)
TARGETS = {target.name: target for target in _ALL}
AUTO = "auto"  #: chosen by measuring (`auto`), or by rule where nothing is measured
NAMES = (*TARGETS, AUTO)


def target_of(name: str) -> CompileTarget:
    """The target of a name. `AUTO` is chosen by rule: the CPU's fastest format that keeps every
    answer, BF16 where the CPU has it, else FP32. Raises CallerError (`target-unknown`)."""
    if name == AUTO:
        name = "cpu-bf16" if cpu_has_bf16() else "cpu-fp32"
    try:
        return TARGETS[name]
    except KeyError:
        raise CallerError(
            "target-unknown",
            f"there is no target {name!r}",
            hint=f"Use one of: {', '.join(NAMES)}.",
        ) from None


def check_present(target: CompileTarget) -> None:
    """A target is proven on its own chip; without it, raises CallerError (`target-absent`)."""
    if target.device == "cuda" and not need("torch").cuda.is_available():
        raise CallerError(
            "target-absent",
            f"target {target.name} needs an NVIDIA GPU, and PyTorch sees none here",
            hint="Compile on the machine that will serve the model (its answers are compared on "
            "that GPU), or use a cpu-... target.",
        )


def accelerator_of(target: CompileTarget) -> str:
    """The name of the board that the target's programs run on here; "" where they need none."""
    return str(need("torch").cuda.get_device_name()) if target.device == "cuda" else ""


def cpu_has_bf16() -> bool:
    """Whether the CPU computes in BF16 itself. Elsewhere OpenVINO obeys the hint too, but
    slowly."""
    return instruction_set_here().bf16
