"""What follows from a processor's flags: every row is a processor that is met."""

from __future__ import annotations

import pytest

from penstock.core.models.instruction_sets import (
    InstructionSet,
    Int8Recipe,
    instruction_set,
    int8_recipe,
)

HASWELL = frozenset({"sse4_1", "avx", "avx2", "fma"})
SKYLAKE = HASWELL | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
CASCADE_LAKE = SKYLAKE | {"avx512_vnni"}
COOPER_LAKE = CASCADE_LAKE | {"avx512_bf16"}
SAPPHIRE_RAPIDS = COOPER_LAKE | {
    "avx512_fp16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16",
}  # fmt: skip
ALDER_LAKE = HASWELL | {"avx_vnni"}
ZEN4 = COOPER_LAKE | {"avx512_vbmi2"}


def names(found: InstructionSet) -> tuple[str, bool, bool]:
    return found.name, found.int8_exact, found.bf16


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (HASWELL, ("AVX2", False, False)),
        (SKYLAKE, ("AVX512_CORE", False, False)),
        (CASCADE_LAKE, ("AVX512_CORE_VNNI", True, False)),
        (COOPER_LAKE, ("AVX512_CORE_BF16", True, True)),
        (ZEN4, ("AVX512_CORE_BF16", True, True)),
        (SAPPHIRE_RAPIDS, ("AVX512_CORE_AMX", True, True)),
        (ALDER_LAKE, ("AVX2_VNNI", True, False)),
        (frozenset(), ("x86_64", False, False)),  # nothing is known: nothing is promised
    ],
)
def test_a_processor_is_named_by_the_most_that_it_has(
    flags: frozenset[str], expected: tuple[str, bool, bool]
) -> None:
    found = instruction_set("x86_64", flags)
    assert names(found) == expected
    assert found.x86


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("AVX2", ("AVX2", False, False)),
        ("avx2", ("AVX2", False, False)),  # oneDNN reads it in any case
        ("AVX2_VNNI", ("AVX2_VNNI", True, False)),
        ("AVX512_CORE", ("AVX512_CORE", False, False)),
        ("AVX512_CORE_BF16", ("AVX512_CORE_BF16", True, True)),
        ("ALL", ("AVX512_CORE_AMX", True, True)),
        ("SOMETHING_NEWER", ("AVX512_CORE_AMX", True, True)),  # as oneDNN: no limit
    ],
)
def test_a_limit_makes_an_older_processor_of_it(
    limit: str, expected: tuple[str, bool, bool]
) -> None:
    assert names(instruction_set("x86_64", SAPPHIRE_RAPIDS, limit=limit)) == expected


def test_a_limit_adds_nothing() -> None:
    found = instruction_set("x86_64", HASWELL, limit="AVX512_CORE_AMX")
    assert names(found) == ("AVX2", False, False)


def test_another_architecture_goes_by_its_own_name() -> None:
    found = instruction_set("aarch64", frozenset({"asimd", "bf16"}), limit="AVX2")
    assert names(found) == ("aarch64", True, True)


@pytest.mark.parametrize("flags", [HASWELL, SKYLAKE])
def test_without_vnni_weights_that_meet_quantised_activations_have_seven_bits(
    flags: frozenset[str],
) -> None:
    found = instruction_set("x86_64", flags)
    assert int8_recipe(found, calibrated=True) == Int8Recipe(activations=True, weight_bits=7)
    assert int8_recipe(found, calibrated=False) == Int8Recipe(activations=False, weight_bits=8)
    assert not found.rounds_activations


@pytest.mark.parametrize("flags", [ALDER_LAKE, CASCADE_LAKE, SAPPHIRE_RAPIDS])
def test_with_vnni_all_eight_bits_are_used(flags: frozenset[str]) -> None:
    found = instruction_set("x86_64", flags)
    assert int8_recipe(found, calibrated=True) == Int8Recipe(activations=True, weight_bits=8)
    assert found.rounds_activations
