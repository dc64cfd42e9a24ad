"""What a processor's instruction set decides for compiled models: INT8's recipe, builds, proofs.

Names are oneDNN's, because its variable ONEDNN_MAX_CPU_ISA takes them: it makes a processor behave
as an older one, and then the older one's set is in force. Flags are those of Linux.

x86 multiplies 8-bit numbers in one of two ways. With VNNI four products are added up in 32 bits.
Without, two products are added in 16 bits first, and where both are large the sum is cut off
(saturates): the larger the weights, the larger the error. Weights of 7 bits keep every pair within
16 bits (255 x 63 x 2 < 32768).

One artifact may hold a model several times, compiled for different processors. Each build says
which instruction set it needs. A processor takes the build that needs the most of what it has, for
that build was made to use it. Of builds with the same need the first in the list is taken.

A compile proves on one instruction set that the artifact's answers are its source's. On another one
the same artifact runs other code, so the proof does not hold there: the artifact brings a few
samples, which are run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

_X86 = ("x86_64", "amd64", "i686")
_AVX2 = frozenset({"sse4_1", "avx", "avx2"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
_AVX512_VNNI = _AVX512 | {"avx512_vnni"}
_AVX512_BF16 = _AVX512_VNNI | {"avx512_bf16"}
_AVX512_FP16 = _AVX512_BF16 | {"avx512_fp16", "avx_vnni"}
_AMX = _AVX512_FP16 | {"amx_tile", "amx_int8", "amx_bf16"}

#: oneDNN's name -> the flags that it needs and allows. A processor gets the first name whose flags
#: it has all.
_SETS: tuple[tuple[str, frozenset[str]], ...] = (
    ("AVX512_CORE_AMX", _AMX),
    ("AVX512_CORE_FP16", _AVX512_FP16),
    ("AVX512_CORE_BF16", _AVX512_BF16),
    ("AVX512_CORE_VNNI", _AVX512_VNNI),
    ("AVX512_CORE", _AVX512),
    ("AVX2_VNNI", _AVX2 | {"avx_vnni"}),
    ("AVX2", _AVX2),
    ("AVX", frozenset({"sse4_1", "avx"})),
    ("SSE41", frozenset({"sse4_1"})),
)
#: Other names that the variable takes. An unknown name limits nothing, as in oneDNN.
_ALIASES = {
    "AVX2_VNNI_2": "AVX2_VNNI",
    "AVX10_1_512": "AVX512_CORE_FP16",
    "AVX10_1_512_AMX": "AVX512_CORE_AMX",
}
#: Short names that people use when they compile for a set.
_SHORT = {
    "AVX512": "AVX512_CORE",
    "VNNI": "AVX512_CORE_VNNI",
    "BF16": "AVX512_CORE_BF16",
    "AMX": "AVX512_CORE_AMX",
}
#: Names that a build may need, the least demanding first.
NAMES = tuple(name for name, _ in reversed(_SETS))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionSet:
    """The instructions that compiled models may use."""

    name: str  #: oneDNN's, or the machine's ("aarch64") where it is no x86
    x86: bool
    int8_exact: bool  #: sums of 8-bit products never saturate
    bf16: bool  #: the processor has BF16 arithmetic

    @property
    def rounds_activations(self) -> bool:
        """Whether OpenVINO rounds the activations that INT8 weights are multiplied by to 8 bits."""
        return self.int8_exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Recipe:
    """How a graph is converted to INT8."""

    activations: bool  #: activations are converted too, by ranges of a calibration set
    weight_bits: int  #: 8, or 7 where products of 8 would saturate


def instruction_set(machine: str, flags: frozenset[str], *, limit: str = "") -> InstructionSet:
    """`machine` as uname says; `flags` of one core; `limit`: ONEDNN_MAX_CPU_ISA, any case."""
    if machine not in _X86:
        return InstructionSet(name=machine, x86=False, int8_exact=True, bf16="bf16" in flags)
    wanted = limit.strip().upper()
    allowed = dict(_SETS).get(_ALIASES.get(wanted, wanted))
    if allowed is not None:
        flags = flags & allowed
    name = next((name for name, needed in _SETS if needed <= flags), machine)
    return InstructionSet(
        name=name,
        x86=True,
        int8_exact=bool(flags & {"avx512_vnni", "avx_vnni"}),
        bf16=bool(flags & {"avx512_bf16", "amx_bf16"}),
    )


def int8_recipe(found: InstructionSet, *, calibrated: bool) -> Int8Recipe:
    """The recipe for a processor.

    Measured on a classifier of four layers, without VNNI: 8 bits differ from the source by 0.079 on
    average, 7 bits by 0.018, as 8 bits do with VNNI; both take the same time. If only weights are
    INT8, they are turned back into floating point before they are multiplied: nothing saturates
    there.
    """
    if not calibrated:
        return Int8Recipe(activations=False, weight_bits=8)
    return Int8Recipe(activations=True, weight_bits=8 if found.int8_exact else 7)


def named(text: str) -> str:
    """oneDNN's name for its own or a short name of a set, in any case; "" where there is none."""
    wanted = text.strip().upper().replace("-", "_")
    wanted = _SHORT.get(wanted, wanted)
    return wanted if wanted in NAMES else ""


def can_run(needs: str, here: str) -> bool:
    """Whether code for the set `needs` runs on a processor with the set `here`. A processor that is
    no x86 runs code that needs nothing, or its own machine's name."""
    if not needs or needs == here:
        return True
    sets = dict(_SETS)
    return needs in sets and here in sets and sets[needs] <= sets[here]


def demand(needs: str) -> int:
    """Sort key: larger where code needs more."""
    return NAMES.index(needs) + 1 if needs in NAMES else int(bool(needs))


BEST = "needs-most-of-what-is-here"
ONLY = "only-build-that-runs-here"

# States of a proof.
HERE = "proved-here"  #: compiled under this very instruction set
CHECKED = "checked-here"  #: proved elsewhere; its samples gave the right answers here too
ELSEWHERE = "proved-elsewhere"  #: proved elsewhere, and the artifact has no samples to check
NOT_PROVED = "not-proved"  #: proved elsewhere, and its samples give other answers here


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One compiled form of a model."""

    folder: str  #: below the artifact's root; it is an artifact by itself
    needs: str = ""  #: oneDNN's name of an instruction set; "" = any processor
    target: str = ""  #: what it was compiled for, for people


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildChoice:
    build: Build
    reason: str
    instruction_set: str  #: the one in force here
    passed_over: tuple[str, ...] = ()  #: folders of builds that can't run here

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self.build),
            "reason": self.reason,
            "instruction_set": self.instruction_set,
            "passed_over": list(self.passed_over),
        }


def choose(builds: Sequence[Build], here: str) -> BuildChoice | None:
    """`here`: name of this processor's instruction set. Returns None if no build runs on it."""
    able = [one for one in builds if can_run(one.needs, here)]
    if not able:
        return None
    return BuildChoice(
        build=max(able, key=lambda one: demand(one.needs)),  # of equal ones, the first
        reason=BEST if len(able) > 1 else ONLY,
        instruction_set=here,
        passed_over=tuple(one.folder for one in builds if one not in able),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """What is proved of an artifact on this machine."""

    state: str  #: one of the four above
    proved_on: str  #: the compile's instruction set; "" = its report does not say
    instruction_set: str  #: the one in force here
    detail: str = ""  #: which samples are outside of the tolerance, or why none could be checked

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def needs_check(proved_on: str, here: str) -> bool:
    return proved_on != here


def proof(
    proved_on: str, here: str, failures: tuple[str, ...] | None, *, unasked: str = ""
) -> Proof:
    """`failures`: samples with wrong answers on this processor, () where none is; None: no sample
    was checked, for the reason `unasked`."""
    if not needs_check(proved_on, here):
        state, detail = HERE, ""
    elif failures is None:
        state, detail = ELSEWHERE, unasked
    elif failures:
        state, detail = NOT_PROVED, "; ".join(failures)
    else:
        state, detail = CHECKED, ""
    return Proof(state=state, proved_on=proved_on, instruction_set=here, detail=detail)
