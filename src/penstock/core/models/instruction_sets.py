"""What a processor's instruction set decides for compiled models: its name, INT8's recipe, formats.

Names are oneDNN's, because its variable ONEDNN_MAX_CPU_ISA takes them: a processor can be asked to
behave as an older one, and what is in force is then the older one's set. Flags are those of Linux.

x86 multiplies 8-bit numbers in one of two ways. With VNNI four products are added up in 32 bits.
Without, two products are added in 16 bits first, and where both are large the sum is cut off
(saturates): an answer is then wrong by as much as its weights are large. Weights of 7 bits keep
every pair within 16 bits (255 x 63 x 2 < 32768).

Which of an artifact's compiled builds a processor takes, and whether it is proved there.

One artifact may hold a model several times, compiled for different processors. A build says which
instruction set it needs; a processor takes the build that needs most of what it has, for that is
what the build was made to use. Builds that need the same are taken in the order in which they are
listed.

A compile proves on one instruction set that an artifact's answers are its source's. On another one
the same artifact runs other code, so the proof does not carry over by itself: a few samples that
the artifact brings along are asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_X86 = ("x86_64", "amd64", "i686")
_AVX2 = frozenset({"sse4_1", "avx", "avx2"})
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
_AVX512_VNNI = _AVX512 | {"avx512_vnni"}
_AVX512_BF16 = _AVX512_VNNI | {"avx512_bf16"}
_AVX512_FP16 = _AVX512_BF16 | {"avx512_fp16", "avx_vnni"}
_AMX = _AVX512_FP16 | {"amx_tile", "amx_int8", "amx_bf16"}

#: oneDNN's name -> the flags that it needs and allows; the first whose flags are all there names a
#: processor.
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
#: Other names that the variable takes. What is not known here limits nothing, as in oneDNN.
_ALIASES = {
    "AVX2_VNNI_2": "AVX2_VNNI",
    "AVX10_1_512": "AVX512_CORE_FP16",
    "AVX10_1_512_AMX": "AVX512_CORE_AMX",
}
#: How people call a set where they compile for it.
_SHORT = {
    "AVX512": "AVX512_CORE",
    "VNNI": "AVX512_CORE_VNNI",
    "BF16": "AVX512_CORE_BF16",
    "AMX": "AVX512_CORE_AMX",
}
#: What a build may need, the least first.
NAMES = tuple(name for name, _ in reversed(_SETS))


@dataclass(frozen=True, slots=True, kw_only=True)
class InstructionSet:
    """What compiled models may use."""

    name: str  #: oneDNN's, or the machine's ("aarch64") where it is no x86
    x86: bool
    int8_exact: bool  #: products of 8-bit numbers are added up without being cut off
    bf16: bool  #: arithmetic in BF16 is the processor's own

    @property
    def rounds_activations(self) -> bool:
        """Whether OpenVINO rounds what INT8 weights are multiplied by to 8 bits as it comes."""
        return self.int8_exact


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Recipe:
    """How a graph becomes INT8."""

    activations: bool  #: they too, by ranges of a calibration set
    weight_bits: int  #: 8, or 7 where products of 8 would saturate


def instruction_set(machine: str, flags: frozenset[str], *, limit: str = "") -> InstructionSet:
    """`machine` as uname says it; `flags` of one core; `limit`: ONEDNN_MAX_CPU_ISA, any case."""
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
    """Measured on a classifier of four layers, without VNNI: 8 bits differ from the source by 0.079
    on average, 7 bits by 0.018, as 8 bits do with VNNI; both take the same time. Weights alone
    are turned back into floating point before they are multiplied: nothing saturates there.
    """
    if not calibrated:
        return Int8Recipe(activations=False, weight_bits=8)
    return Int8Recipe(activations=True, weight_bits=8 if found.int8_exact else 7)


def named(text: str) -> str:
    """oneDNN's name of a set, from that or a short one, in any case; "" where there is none."""
    wanted = text.strip().upper().replace("-", "_")
    wanted = _SHORT.get(wanted, wanted)
    return wanted if wanted in NAMES else ""


def can_run(needs: str, here: str) -> bool:
    """Whether code for a set runs on a processor of another; both by name. A processor that is no
    x86 runs what needs nothing, or its own machine's name."""
    if not needs or needs == here:
        return True
    sets = dict(_SETS)
    return needs in sets and here in sets and sets[needs] <= sets[here]


def demand(needs: str) -> int:
    """Larger where code needs more."""
    return NAMES.index(needs) + 1 if needs in NAMES else int(bool(needs))


BEST = "needs-most-of-what-is-here"
ONLY = "only-build-that-runs-here"

# States of a proof.
HERE = "proved-here"  #: compiled under this very instruction set
CHECKED = "checked-here"  #: proved elsewhere; its samples are answered right here too
ELSEWHERE = "proved-elsewhere"  #: and it brings nothing along that could be asked
NOT_PROVED = "not-proved"  #: proved elsewhere, and its samples are answered otherwise here


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
