"""`core/models/instruction_sets.py`: which of several compiled builds a processor takes, and what
is proved there."""

from __future__ import annotations

import pytest

from penstock.core.models.instruction_sets import (
    BEST,
    NAMES,
    ONLY,
    Build,
    can_run,
    choose,
    demand,
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
