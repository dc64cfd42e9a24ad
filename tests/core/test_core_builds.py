"""`core/models/instruction_sets.py`: which of several compiled builds a processor takes, and what
is proved there."""

from __future__ import annotations

import pytest

from penstock.core.models.instruction_sets import (
    BEST,
    NAMES,
    ONLY,
    Build,
    InstructionSet,
    Int8Recipe,
    can_run,
    choose,
    demand,
    instruction_set,
    int8_recipe,
    named,
    proof,
)

AMX = Build(folder="amx", needs="AVX512_CORE_AMX", target="cpu-bf16")
WIDE = Build(folder="wide", needs="AVX512_CORE")
AVX2 = Build(folder="avx2", needs="AVX2")
PLAIN = Build(folder="plain")
ALL = (PLAIN, AVX2, AMX, WIDE)


@pytest.mark.parametrize(
    ("here", "folder", "passed_over"),
    [
        ("AVX512_CORE_AMX", "amx", ()),
        ("AVX512_CORE_FP16", "wide", ("amx",)),
        ("AVX512_CORE_BF16", "wide", ("amx",)),
        ("AVX512_CORE", "wide", ("amx",)),
        ("AVX2_VNNI", "avx2", ("amx", "wide")),
        ("AVX2", "avx2", ("amx", "wide")),
        ("AVX", "plain", ("avx2", "amx", "wide")),
        ("x86_64", "plain", ("avx2", "amx", "wide")),
        ("aarch64", "plain", ("avx2", "amx", "wide")),
    ],
)
def test_a_processor_takes_what_needs_most_of_what_it_has(
    here: str, folder: str, passed_over: tuple[str, ...]
) -> None:
    found = choose(ALL, here)
    assert found is not None
    assert (found.build.folder, found.passed_over) == (folder, passed_over)
    assert found.reason == (ONLY if folder == "plain" else BEST)
    assert found.instruction_set == here


def test_of_those_that_need_the_same_the_first_is_taken() -> None:
    twice = (Build(folder="one", needs="AVX2"), Build(folder="two", needs="AVX2"))
    found = choose(twice, "AVX2")
    assert found is not None
    assert found.to_dict() == {
        "folder": "one",
        "needs": "AVX2",
        "target": "",
        "reason": BEST,
        "instruction_set": "AVX2",
        "passed_over": [],
    }


def test_where_none_runs_there_is_no_choice() -> None:
    assert choose((AMX, WIDE), "AVX2") is None
    assert choose((AVX2,), "aarch64") is None
    assert choose((), "AVX2") is None


def test_a_build_for_another_machine_runs_there_and_nowhere_else() -> None:
    arm = Build(folder="arm", needs="aarch64")
    assert choose((PLAIN, arm), "aarch64") is not None
    assert choose((PLAIN, arm), "aarch64").build == arm  # type: ignore[union-attr]
    assert choose((arm,), "AVX512_CORE_AMX") is None


def test_a_set_runs_what_needs_no_more_than_it_has() -> None:
    """Not what comes before it: VNNI of 512 bits says nothing about that of 256."""
    assert can_run("AVX2_VNNI", "AVX512_CORE_FP16")
    assert not can_run("AVX2_VNNI", "AVX512_CORE_VNNI")
    assert not can_run("AVX512_CORE", "AVX2_VNNI")
    for name in NAMES:
        assert can_run(name, name)
        assert can_run("SSE41", name)
        assert can_run("", name)


def test_what_needs_more_is_wanted_more() -> None:
    wanted = sorted(("AVX512_CORE_AMX", "", "AVX2", "AVX512_CORE", "aarch64"), key=demand)
    assert wanted[0] == ""
    assert wanted[-3:] == ["AVX2", "AVX512_CORE", "AVX512_CORE_AMX"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("avx2", "AVX2"),
        ("AVX512", "AVX512_CORE"),
        (" vnni ", "AVX512_CORE_VNNI"),
        ("bf16", "AVX512_CORE_BF16"),
        ("amx", "AVX512_CORE_AMX"),
        ("avx512-core-fp16", "AVX512_CORE_FP16"),
        ("mmx", ""),
        ("", ""),
    ],
)
def test_sets_have_short_names(text: str, name: str) -> None:
    assert named(text) == name


@pytest.mark.parametrize(
    ("proved_on", "failures", "state"),
    [
        ("AVX2", None, "proved-here"),
        ("AVX512_CORE_VNNI", (), "checked-here"),
        ("AVX512_CORE_VNNI", None, "proved-elsewhere"),
        ("", None, "proved-elsewhere"),  # a report of earlier versions does not say
        ("AVX512_CORE_VNNI", ("mean difference 0.079 (0.03 allowed)",), "not-proved"),
    ],
)
def test_what_is_proved_elsewhere_is_proved_here_only_by_its_samples(
    proved_on: str, failures: tuple[str, ...] | None, state: str
) -> None:
    assert proof(proved_on, "AVX2", failures).state == state


def test_a_failed_check_says_what_failed() -> None:
    found = proof("AVX512_CORE_VNNI", "AVX2", ("largest 0.3", "mean 0.1"))
    assert found.to_dict() == {
        "state": "not-proved",
        "proved_on": "AVX512_CORE_VNNI",
        "instruction_set": "AVX2",
        "detail": "largest 0.3; mean 0.1",
    }


def test_what_could_not_be_asked_says_why() -> None:
    found = proof("AVX512_CORE_VNNI", "AVX2", None, unasked="no samples")
    assert (found.state, found.detail) == ("proved-elsewhere", "no samples")


# What follows from a processor's flags: every row is a processor that is met.


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
