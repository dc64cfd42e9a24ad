"""What a processor's instruction set decides for compiled models: its name, INT8's recipe, formats.

Names are oneDNN's, because its variable ONEDNN_MAX_CPU_ISA takes them: a processor can be asked to
behave as an older one, and what is in force is then the older one's set. Flags are those of Linux.

x86 multiplies 8-bit numbers in one of two ways. With VNNI four products are added up in 32 bits.
Without, two products are added in 16 bits first, and where both are large the sum is cut off
(saturates): an answer is then wrong by as much as its weights are large. Weights of 7 bits keep
every pair within 16 bits (255 x 63 x 2 < 32768).
"""

from __future__ import annotations

from dataclasses import dataclass

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
