"""The model of an engine: who joins which step, how long steps take, what its cache saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.sim.generation import EngineModel, GenerationSpec
from penstock.sim.record import Recorder
from penstock.sim.scenario import Scenario, load_scenario
from penstock.sim.twin import Twin
from penstock.sim.workload import Arrival

SPEC = GenerationSpec(
    sequences_max=2,
    step_s=0.010,
    sequence_s=0.001,
    prefill_token_s=0.0001,
    prefill_tokens_max=100,
    prefixes_cached_max=1,
)


def prompt(length: int, answer_tokens: int, *, prefix: int = 0, prefix_tokens: int = 0) -> Arrival:
    return Arrival(
        rows=1, length=length, priority=0, deadline_s=None, variant=None, cancel_after_s=None,
        answer_tokens=answer_tokens, prefix=prefix, prefix_tokens=prefix_tokens,
    )  # fmt: skip


def step(engine: EngineModel) -> tuple[float | None, list[int], list[int]]:
    """How long the next step takes, whose first token comes with it, and whose last."""
    step_s = engine.begin_step()
    if step_s is None:
        return None, [], []
    firsts, done = engine.end_step()
    engine.check_invariants()
    return round(step_s, 6), firsts, done


def test_a_request_is_prefilled_in_its_first_step_and_leaves_with_its_last_token() -> None:
    engine = EngineModel(SPEC, 1)
    engine.add(1, prompt(20, 3))
    assert step(engine) == (0.013, [1], [])
    assert step(engine) == (0.011, [], [])
    assert step(engine) == (0.011, [], [1])
    assert step(engine) == (None, [], [])


def test_requests_join_a_running_batch_and_wait_while_it_is_full() -> None:
    engine = EngineModel(SPEC, 1)
    engine.add(1, prompt(10, 1))
    engine.add(2, prompt(10, 3))
    engine.add(3, prompt(10, 1))
    assert step(engine) == (0.014, [1, 2], [1])
    assert step(engine) == (0.013, [3], [3])
    assert step(engine) == (0.011, [], [2])


def test_prompts_beyond_the_prefill_limit_join_in_the_next_step() -> None:
    engine = EngineModel(SPEC, 1)
    engine.add(1, prompt(500, 2))
    engine.add(2, prompt(10, 1))
    assert step(engine) == (0.061, [1], [])  # one joins, however long it is
    assert step(engine) == (0.013, [2], [1, 2])


def test_a_prefix_in_the_cache_is_not_computed_again() -> None:
    engine = EngineModel(SPEC, 1)
    for number, prefix in enumerate((7, 7, 8, 7), start=1):
        engine.add(number, prompt(10, 1, prefix=prefix, prefix_tokens=80))
    assert step(engine) == (0.020, [1], [1])  # both at once would be above the limit
    assert step(engine) == (0.022, [2, 3], [2, 3])
    # The cache holds one prefix, and 8 was the last.
    assert step(engine) == (0.020, [4], [4])


def test_a_cancelled_request_leaves_with_the_step_and_is_told_nothing() -> None:
    engine = EngineModel(SPEC, 1)
    for number in (1, 2, 3):
        engine.add(number, prompt(10, 5))
    assert step(engine) == (0.014, [1, 2], [])
    engine.cancel(1)
    engine.cancel(3)
    assert step(engine) == (0.012, [], [])
    assert step(engine) == (0.011, [], [])


def test_a_death_tells_whose_answers_had_begun_and_empties_the_cache() -> None:
    engine = EngineModel(SPEC, 1)
    for number in (1, 2, 3):
        engine.add(number, prompt(10, 5, prefix=7, prefix_tokens=80))
    step(engine)
    engine.begin_step()
    assert engine.die() == ([1], [2, 3])
    engine.check_invariants()
    engine.add(4, prompt(10, 1, prefix=7, prefix_tokens=80))
    assert step(engine) == (0.020, [4], [4])


# in the twin

SCENARIO = """
about = "two answers and a death"
seed = 1
length_s = 10

[[variants]]
name = "chat"
copies = 2

[generation]
sequences_max = 1
step_s = 0.1
sequence_s = 0.0
prefill_token_s = 0.0

[workload]
arrivals = "trace"
trace_s = [0.0, 0.0, 0.05]
answer_tokens = 4
"""


def scenario(tmp_path: Path, text: str) -> Scenario:
    path = tmp_path / "chat.toml"
    path.write_text(text)
    return load_scenario(path)


def test_first_tokens_and_whole_answers_are_measured_apart(tmp_path: Path) -> None:
    outcome = Twin(scenario(tmp_path, SCENARIO)).run()
    # The third waits for the copy that is free first, and then for a step.
    assert outcome.first_token_s == pytest.approx([0.1, 0.1, 0.45])
    assert sorted(outcome.latencies_s[0]) == pytest.approx([0.4, 0.4, 0.75])
    assert (outcome.tokens, outcome.reasons) == (12, {"step": 12})
    report = outcome.report(lanes=2, length_s=10.0)
    assert report["first_token_ms"]["p50"] == pytest.approx(100.0)
    assert report["tokens_per_s"] == pytest.approx(1.2)


def test_what_had_begun_is_broken_and_what_waited_goes_elsewhere(tmp_path: Path) -> None:
    fault = "[[faults]]\nat_s = 0.15\ncopy = 1\nback_after_s = 1.0\n"
    recorder = Recorder(keep=True)
    outcome = Twin(scenario(tmp_path, SCENARIO + fault), recorder=recorder).run()
    assert outcome.ends == {"copy: stream-broken": 1}
    assert outcome.retries == 1
    assert [row[:4] for row in recorder.rows()] == [
        (0.0, "router", 1, 1),
        (0.0, "router", 2, 2),
        (0.05, "router", 3, 1),
        (0.15, "router", 3, 2),
    ]
    assert len(outcome.latencies_s[0]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("answer_tokens = 4", "answer_tokens = 4\n[batching]\nrows_max = 2"), "generation: not"),
        (("sequences_max = 1", "sequences_max = 0"), "generation: not valid"),
        (("sequences_max = 1", "sequence_max = 1"), "generation: sequence_max: unknown key"),
        (
            ("copies = 2", 'copies = 2\nstrategy = "PREFIX_AWARE"'),
            "variants: not valid; allowed: prefix_length_max and concurrency_threshold",
        ),
    ],
)
def test_a_mistake_names_its_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    with pytest.raises(Exception, match=f"chat.toml: {message}"):
        scenario(tmp_path, SCENARIO.replace(*change))


def test_answers_have_a_length_only_where_they_are_generated(tmp_path: Path) -> None:
    text = "".join(SCENARIO.partition("[generation]")[::2])
    text = text.replace(text[text.index("\nsequences_max") : text.index("[workload]")], "\n")
    with pytest.raises(Exception, match=r"workload\.answer_tokens: not valid; allowed: only with"):
        scenario(tmp_path, text)
