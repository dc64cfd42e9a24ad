"""The model of an engine: who joins which step, how long steps take, what its cache saves."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

from penstock.core.batching.generation_steps import EngineModel, GenerationSpec

SPEC = GenerationSpec(
    sequences_max=2,
    step_s=0.010,
    sequence_s=0.001,
    prefill_token_s=0.0001,
    prefill_tokens_max=100,
    prefixes_cached_max=1,
)


class Prompt(NamedTuple):
    length: int
    answer_tokens: int
    prefix: int = 0
    prefix_tokens: int = 0


def step(engine: EngineModel) -> tuple[float | None, list[int], list[int]]:
    """How long the next step takes, whose first token comes with it, and whose last."""
    step_s = engine.begin_step()
    if step_s is None:
        return None, [], []
    firsts, done = engine.end_step()
    engine.check_invariants()
    return round(step_s, 6), firsts, done


def test_a_request_is_prefilled_in_its_first_step_and_leaves_with_its_last_token() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    engine.add(1, Prompt(20, 3))
    assert step(engine) == (0.013, [1], [])
    assert step(engine) == (0.011, [], [])
    assert step(engine) == (0.011, [], [1])
    assert step(engine) == (None, [], [])


def test_requests_join_a_running_batch_and_wait_while_it_is_full() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    engine.add(1, Prompt(10, 1))
    engine.add(2, Prompt(10, 3))
    engine.add(3, Prompt(10, 1))
    assert step(engine) == (0.014, [1, 2], [1])
    assert step(engine) == (0.013, [3], [3])
    assert step(engine) == (0.011, [], [2])


def test_prompts_beyond_the_prefill_limit_join_in_the_next_step() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    engine.add(1, Prompt(500, 2))
    engine.add(2, Prompt(10, 1))
    assert step(engine) == (0.061, [1], [])  # one joins, however long it is
    assert step(engine) == (0.013, [2], [1, 2])


def test_a_prefix_in_the_cache_is_not_computed_again() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    for number, prefix in enumerate((7, 7, 8, 7), start=1):
        engine.add(number, Prompt(10, 1, prefix=prefix, prefix_tokens=80))
    assert step(engine) == (0.020, [1], [1])  # both at once would be above the limit
    assert step(engine) == (0.022, [2, 3], [2, 3])
    # The cache holds one prefix, and 8 was the last.
    assert step(engine) == (0.020, [4], [4])


def test_a_cancelled_request_leaves_with_the_step_and_is_told_nothing() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    for number in (1, 2, 3):
        engine.add(number, Prompt(10, 5))
    assert step(engine) == (0.014, [1, 2], [])
    engine.cancel(1)
    engine.cancel(3)
    assert step(engine) == (0.012, [], [])
    assert step(engine) == (0.011, [], [])


def test_a_death_tells_whose_answers_had_begun_and_empties_the_cache() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    for number in (1, 2, 3):
        engine.add(number, Prompt(10, 5, prefix=7, prefix_tokens=80))
    step(engine)
    engine.begin_step()
    assert engine.die() == ([1], [2, 3])
    engine.check_invariants()
    engine.add(4, Prompt(10, 1, prefix=7, prefix_tokens=80))
    assert step(engine) == (0.020, [4], [4])


def test_who_is_cancelled_between_two_steps_can_be_left_out_of_the_next() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    engine.add(1, Prompt(10, 5))
    engine.add(2, Prompt(10, 5))
    assert step(engine) == (0.014, [1, 2], [])
    engine.cancel(1)
    engine.drop_cancelled()
    assert step(engine) == (0.011, [], [])


def test_a_step_says_who_joined_and_what_of_their_prompts_is_read() -> None:
    engine = EngineModel(SPEC, random.Random(1))
    engine.add(1, Prompt(10, 5, prefix=7, prefix_tokens=80))
    engine.begin_step()
    assert (engine.joining(), engine.prefixes_cached) == ([(1, 90)], 0)
    engine.end_step()
    engine.add(2, Prompt(20, 5, prefix=7, prefix_tokens=80))
    engine.begin_step()
    assert (engine.joining(), engine.prefixes_cached) == ([(2, 20)], 1)


def test_the_noise_is_the_callers_and_its_mean_is_one() -> None:
    spec = replace(SPEC, sigma=0.5)

    def times(seed: int, count: int) -> list[float]:
        engine = EngineModel(spec, random.Random(seed))
        engine.add(1, Prompt(0, count))
        return [engine.begin_step() or 0.0 for _ in range(count) if engine.end_step()]

    assert times(1, 50) == times(1, 50) != times(2, 50)
    # The first step reads the prompt too, which has no tokens here: all are alike.
    assert abs(sum(times(3, 4000)) / 4000 / 0.011 - 1.0) < 0.03
