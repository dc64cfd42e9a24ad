"""`core/models/memory_need.py`: what a model needs, before and after it has run on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.models.memory_need import (
    START_BYTES,
    KinMemory,
    MemoryEstimate,
    MemoryObserved,
    MemoryRule,
    ModelFacts,
    beside_others,
    estimated,
    expected_now,
    need_of,
    with_headroom,
)

MIB = 2**20
#: Of a library that compiles graphs, of its own format, of another library, of code in processes,
#: of a program that nobody knows, of an engine, and of what has nothing of its own.
GRAPH = MemoryRule(fixed_bytes=96 * MIB, factor=2.1, least=0.5)
COMPILED = MemoryRule(fixed_bytes=96 * MIB, factor=1.1, least=0.5)
SESSION = MemoryRule(fixed_bytes=64 * MIB, factor=1.9, least=0.5)
CODE = MemoryRule(factor=2.0, each_bytes=96 * MIB)
PROGRAM = MemoryRule(fixed_bytes=512 * MIB, factor=2.0)
ENGINE = MemoryRule(fixed_bytes=2048 * MIB, factor=1.1, least=0.5)
NOTHING = MemoryRule()
LIBRARIES = {
    GRAPH: "graphs", COMPILED: "graphs", SESSION: "sessions", CODE: "code", PROGRAM: "program",
    ENGINE: "engine", NOTHING: "",
}  # fmt: skip


def of(rule: MemoryRule, mib: int, **more: Any) -> ModelFacts:
    """A model with files of so many MiB."""
    return ModelFacts(library=LIBRARIES[rule], rule=rule, file_bytes=mib * MIB, **more)


ONNX = of(GRAPH, 400)


@pytest.mark.parametrize(
    ("facts", "mib"),
    [
        (of(GRAPH, 400), 64 + 96 + 840),
        (of(COMPILED, 400), 64 + 96 + 440),
        (of(SESSION, 400), 64 + 64 + 760),
        (of(CODE, 100), 64 + 96 + 200),
        (of(CODE, 100, processes=3), 64 + 3 * (96 + 200)),
        (of(PROGRAM, 0), 64 + 512),
        (of(ENGINE, 100, cache_bytes=4096 * MIB), 64 + 2048 + 110 + 4096),
        (of(ENGINE, 9000, accelerated=True), 64 + 3072),
    ],
)
def test_an_estimate_is_the_process_and_a_multiple_of_the_weights(
    facts: ModelFacts, mib: int
) -> None:
    need = estimated(facts)
    assert need.memory_bytes / MIB == pytest.approx(mib, abs=1)
    assert need.basis == "estimated"


def test_models_in_one_process_share_its_libraries_and_count_their_weights_each() -> None:
    encoder = of(SESSION, 100)
    facts = of(NOTHING, 0, inside=(encoder, encoder, of(CODE, 0, processes=2)))
    need = estimated(facts)
    assert need.memory_bytes / MIB == pytest.approx(64 + 64 + 2 * 190 + 2 * 96, abs=1)
    assert need.least_bytes == 2 * 50 * MIB
    formats = of(GRAPH, 0, inside=(of(COMPILED, 0),))
    assert estimated(formats).memory_bytes == (64 + 96) * MIB, "one library, two formats"


def test_a_model_of_which_little_is_said_is_held_once_without_a_cache() -> None:
    said = of(PROGRAM, 0)
    assert estimated(said) == MemoryEstimate(memory_bytes=576 * MIB, least_bytes=0)
    assert need_of(said, None) == MemoryEstimate(memory_bytes=576 * MIB)
    for processes in (0, 1):
        facts = of(CODE, 100, processes=processes)
        assert estimated(facts).memory_bytes == 360 * MIB


def test_only_what_a_runtime_must_hold_rules_a_type_out() -> None:
    """Half of the weights at least; of a folder with code nobody knows what it reads."""
    assert estimated(ONNX).least_bytes == 200 * MIB
    assert estimated(of(CODE, 400)).least_bytes == 0


def test_a_model_that_ran_here_needs_what_it_took() -> None:
    seen = MemoryObserved(load_bytes_max=500 * MIB, own_bytes_max=800 * MIB, ran=True)
    assert need_of(ONNX, seen) == MemoryEstimate(
        memory_bytes=900 * MIB, least_bytes=200 * MIB, basis="measured"
    )
    seen = MemoryObserved(load_bytes_max=1500 * MIB, own_bytes_max=800 * MIB, ran=True)
    assert need_of(ONNX, seen).memory_bytes == 1500 * MIB  # the height was the load


def test_a_model_that_was_loaded_and_never_ran_proves_little() -> None:
    """Weights are packed by the first run."""
    guess = estimated(ONNX)
    seen = MemoryObserved(load_bytes_max=200 * MIB, own_bytes_max=150 * MIB, ran=False)
    assert need_of(ONNX, seen) == guess
    seen = MemoryObserved(load_bytes_max=2000 * MIB, own_bytes_max=150 * MIB, ran=False)
    assert need_of(ONNX, seen).memory_bytes == 2000 * MIB


def test_headroom_is_an_eighth_and_at_least_64_mib() -> None:
    assert with_headroom(1600 * MIB) == 1800 * MIB
    assert with_headroom(100 * MIB) == 164 * MIB


def test_what_is_set_aside_follows_the_life_of_an_instance() -> None:
    """Start, grant, load, first status, first request, growth, growth to the bound."""

    def now(need: int, own: int, *, loaded: bool = True, ran: bool = True) -> float:
        return (
            expected_now(
                need_bytes=need * MIB,
                own_bytes_max=own * MIB,
                loaded=loaded,
                ran=ran,
                bytes_max=2000 * MIB,
            )
            / MIB
        )

    assert now(0, 0, loaded=False, ran=False) * MIB == START_BYTES
    assert now(1000, 35, loaded=False, ran=False) == 1000  # granted, nothing taken
    assert now(1000, 1100, loaded=False, ran=False) == 1100  # the estimate was too low
    assert now(1000, 300, ran=False) == 1000  # loaded: the estimate stands ...
    assert now(1000, 300) == 364  # ... until it ran
    assert now(1000, 1600) == 1800
    assert now(1000, 1900) == 2000  # it is ended when it takes more
    assert now(1000, 2100) == 2100  # and holds it until it is ended
    assert now(1000, 0) == 1000  # not measured yet: no data is not zero


def test_a_need_beyond_the_bound_is_the_bound() -> None:
    assert expected_now(need_bytes=9, own_bytes_max=0, loaded=True, ran=False, bytes_max=5) == 5


def test_beside_others_a_model_takes_its_files_and_with_the_first_come_the_libraries() -> None:
    facts = of(GRAPH, 100)
    assert beside_others(facts, None, first=True).memory_bytes == (96 + 210) * MIB
    need = beside_others(facts, None, first=False)
    assert (need.memory_bytes, need.least_bytes, need.basis) == (210 * MIB, 50 * MIB, "estimated")


def test_beside_others_all_models_of_an_artifact_count_and_their_libraries_once() -> None:
    """An ensemble has no weights of its own, and is not loaded without its models."""
    inside = (of(GRAPH, 100), of(COMPILED, 100), of(CODE, 0, processes=2))
    facts = of(NOTHING, 0, inside=inside)
    assert beside_others(facts, None, first=False).memory_bytes == (210 + 110 + 192) * MIB
    assert beside_others(facts, None, first=True).memory_bytes == (96 + 210 + 110 + 192) * MIB


def test_beside_others_what_was_measured_is_believed_and_libraries_come_on_top() -> None:
    """It was measured with its libraries there."""
    facts = of(GRAPH, 100)
    seen = MemoryObserved(load_bytes_max=70, own_bytes_max=30, ran=False)
    need = beside_others(facts, seen, first=False)
    assert (need.memory_bytes, need.basis) == (70, "measured")
    assert beside_others(facts, seen, first=True).memory_bytes == 96 * MIB + 70


# What models of one kind took corrects what is expected of the next.


def test_without_experience_the_rule_stands() -> None:
    assert KinMemory().corrected("openvino", 100) == 100


def test_of_models_of_about_one_size_the_largest_counts_with_a_tenth_of_headroom() -> None:
    kin = KinMemory()
    for peak in (150, 200, 120):
        kin.learn("openvino", estimated_bytes=100, peak_bytes=peak)
    assert (kin.corrected("openvino", 51), kin.corrected("openvino", 199)) == (220, 220)


def test_models_that_take_less_than_the_rule_says_make_room_for_more() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=20)
    assert kin.corrected("openvino", 100) == 22


def test_of_another_size_only_what_came_on_top_of_the_rule_is_expected() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=10, peak_bytes=130)
    assert kin.corrected("openvino", 1000) == 1120
    assert kin.corrected("openvino", 20) == 140  # twice the size is another size


def test_a_model_of_another_size_is_never_expected_below_the_rule() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=1000, peak_bytes=10)
    assert kin.corrected("openvino", 100) == 100


def test_one_kind_teaches_nothing_about_another() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=300)
    assert kin.corrected("python", 100) == 100


def test_what_was_long_ago_is_forgotten() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=700)
    for _ in range(16):
        kin.learn("openvino", estimated_bytes=100, peak_bytes=100)
    assert kin.corrected("openvino", 100) == 110


def test_what_a_model_of_the_very_size_keeps_is_known_and_of_another_is_not() -> None:
    kin = KinMemory()
    assert kin.kept("openvino", 100) is None
    kin.learn("openvino", estimated_bytes=100, peak_bytes=150, kept_bytes=90)
    kin.learn("openvino", estimated_bytes=100, peak_bytes=150, kept_bytes=80)
    assert kin.kept("openvino", 104) == 90
    assert kin.kept("openvino", 96) == 90
    assert kin.kept("openvino", 105) is None
    assert kin.kept("openvino", 95) is None
    assert kin.kept("onnxruntime", 100) is None


def test_what_was_known_is_forgotten_with_the_loads_that_told_it() -> None:
    kin = KinMemory()
    kin.learn("openvino", estimated_bytes=100, peak_bytes=150, kept_bytes=90)
    for _ in range(16):
        kin.learn("openvino", estimated_bytes=1000, peak_bytes=1500, kept_bytes=900)
    assert kin.kept("openvino", 100) is None
