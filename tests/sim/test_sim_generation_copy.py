"""Copies that generate, in the twin: times of answers, deaths, how a scenario names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.sim.record import DecisionRecorder
from penstock.sim.scenario import Scenario, load_scenario
from penstock.sim.twin import Twin

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
    recorder = DecisionRecorder(keep=True)
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
        (("sequences_max = 1", "sequence_max = 1"), "unknown key generation.sequence_max"),
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
