"""The engine that keeps the times of a table: when steps end, and what they bring. On fake time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.errors import CallerError
from penstock.runtimes.generation.base import LENGTH, STOP, EngineRequest, Sampling, StepOutput
from penstock.runtimes.paced.engine import (
    VOCABULARY,
    AnswerTokens,
    PacedEngine,
    PacedPrompts,
    PacedTokenizer,
)

PACE = {
    "step_s": 0.5, "sequence_s": 0.25, "prefill_token_s": 0.0, "prefixes_cached_max": 1,
    "sigma": 0.0, "seed": 0, "prefix_tokens": 0, "answer_tokens": 0, "load_s": 0.0,
}  # fmt: skip
SETTINGS = {
    "context_tokens_max": 0, "sequences_max": 2, "tokens_batched_max": 2048,
    "prefix_caching": True,
}  # fmt: skip


class Time:
    """Sleeps end on the dot, or `late_s` after it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.late_s = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late_s


def engine(time: Time, pace: dict[str, Any] | None = None, **settings: Any) -> PacedEngine:
    given = SETTINGS | settings | {"pace": PACE | (pace or {})}
    return PacedEngine(given, clock=time.clock, sleep=time.sleep)


def asked(ident: int, tokens: int, prompt: list[int] | None = None, **how: Any) -> EngineRequest:
    return EngineRequest(ident, prompt or [7, 8], Sampling(**how), tokens_new_max=tokens, seed=3)


def brief(outputs: Any) -> list[tuple[int, str | None]]:
    return [(each.ident, each.finish) for each in outputs]


def answer(made: PacedEngine, ident: int) -> list[StepOutput]:
    found = []
    while made.has_work:
        found += [each for each in made.step() if each.ident == ident]
    return found


def test_each_step_takes_its_time_and_brings_a_token_of_everybody_in_it() -> None:
    time = Time()
    made = engine(time)
    for ident, tokens in ((1, 1), (2, 3), (3, 1)):
        made.add(asked(ident, tokens))
    assert (brief(made.step()), time.now) == ([(1, LENGTH), (2, None)], 101.0)
    assert (brief(made.step()), time.now) == ([(2, None), (3, LENGTH)], 102.0)
    assert (brief(made.step()), time.now) == ([(2, LENGTH)], 102.75)
    assert not made.has_work
    assert (list(made.step()), time.now) == ([], 102.75)


def test_what_happens_between_two_steps_is_part_of_the_next() -> None:
    """Every sleep ends 10 ms late, and 20 ms go by before the next step: no time is lost."""
    time = Time()
    made = engine(time)
    made.add(asked(1, 100))
    time.late_s = 0.01
    ends = []
    for _ in range(99):
        made.step()
        ends.append(time.now)
        time.now += 0.02
    assert ends == pytest.approx([100.76 + 0.75 * at for at in range(99)])


def test_a_process_that_was_held_up_for_long_does_not_make_up_for_it() -> None:
    time = Time()
    made = engine(time)
    made.add(asked(1, 10))
    made.step()
    time.now += 3.0
    made.step()
    assert time.now == 104.5
    made.step()
    assert time.now == 105.25


def test_an_idle_engine_begins_when_it_is_asked() -> None:
    time = Time()
    made = engine(time)
    made.add(asked(1, 1))
    made.step()
    time.now += 0.1
    made.add(asked(2, 1))
    made.step()
    assert time.now == pytest.approx(101.6)
    made.add(asked(3, 9))
    made.step()
    made.cancel(3)
    time.now += 0.1
    made.add(asked(4, 1))
    made.step()
    assert time.now == pytest.approx(103.2), "nobody was there in between"


def test_it_is_ready_after_the_time_that_loading_takes() -> None:
    time = Time()
    engine(time, {"load_s": 2.5})
    assert time.now == 102.5


def test_a_cancelled_sequence_leaves_at_once_and_its_place_is_free() -> None:
    time = Time()
    made = engine(time)
    for ident in (1, 2, 3):
        made.add(asked(ident, 5))
    made.step()
    assert made.statistics().waiting == 1
    made.cancel(1)
    made.cancel(99)
    assert brief(made.step()) == [(2, None), (3, None)]
    made.cancel(2)
    made.step()
    assert time.now == 102.75, "the last step was of one sequence"
    made.cancel(3)
    assert not made.has_work
    assert (made.statistics().running, made.statistics().waiting) == (0, 0)


def test_a_beginning_that_was_read_is_not_read_again() -> None:
    time = Time()
    made = engine(time, {"prefix_tokens": 2, "prefill_token_s": 0.1, "step_s": 0.05})
    prefix, other = [7, 8], [7, 9]
    expected = [
        ([*prefix, 1], 0, 0.6),  # three tokens are read
        ([*prefix, 2, 3], 2, 0.5),
        ([*other, 4], 0, 0.6),  # the cache holds one beginning
        ([*prefix, 5], 0, 0.6),
        (prefix, 0, 0.5),  # nothing but the beginning: it is nobody's to share
    ]
    for ident, (prompt, cached, took_s) in enumerate(expected):
        began = time.now
        made.add(asked(ident, 1, prompt))
        (output,) = made.step()
        assert (output.tokens_cached, round(time.now - began, 6)) == (cached, took_s), prompt
    without = engine(time, {"prefix_tokens": 2}, prefix_caching=False)
    for ident in (1, 2):
        without.add(asked(ident, 1, [*prefix, ident]))
        assert without.step()[0].tokens_cached == 0


@pytest.mark.parametrize(
    ("how", "most", "length", "finish"),
    [
        ({}, 10, 4, STOP),
        ({}, 4, 4, STOP),
        ({}, 3, 3, LENGTH),
        ({"ignore_eos": True}, 10, 10, LENGTH),
        ({"tokens_new_min": 6}, 10, 6, STOP),
    ],
)
def test_an_answer_ends_by_itself_where_the_table_says_so(
    how: dict[str, Any], most: int, length: int, finish: str
) -> None:
    made = engine(Time(), {"answer_tokens": 4})
    made.add(asked(1, most, **how))
    outputs = answer(made, 1)
    assert [each.finish for each in outputs] == [None] * (length - 1) + [finish]


def test_an_answer_depends_on_the_prompt_and_on_the_seed_where_chance_is_asked_for() -> None:
    def words(ident: int, *others: EngineRequest, **how: Any) -> list[int]:
        made = engine(Time(), sequences_max=8)
        for other in others:
            made.add(other)
        made.add(asked(ident, 8, **how))
        return [token for each in answer(made, ident) for token in each.token_ids]

    plain = words(1)
    assert len(set(plain)) > 1
    assert plain == words(2, asked(3, 20), asked(4, 2)), "batch mates change nothing"
    assert plain != words(1, prompt=[7, 9])
    drawn = words(1, temperature=1.0)
    assert drawn == words(1, temperature=1.0) != plain


def test_it_says_what_it_keeps_of_prompts() -> None:
    pace = {"prefix_tokens": 256, "prefixes_cached_max": 3}
    assert engine(Time(), pace).cache_tokens == 3 * 256
    assert engine(Time(), pace, prefix_caching=False).cache_tokens == 0


def test_what_needs_a_model_is_refused() -> None:
    made = engine(Time())
    with pytest.raises(CallerError) as caught:
        made.add(asked(1, 1, logprobs=0))
    assert (caught.value.code, made.has_work) == ("logprobs-unsupported", False)
    with pytest.raises(CallerError, match="tools is not supported"):
        made.tool_text({"tools": []}, None)
    assert not made.has_grammars


@pytest.mark.parametrize("text", ["", "abc", "abcdefgh i", "ü€😀 and some more", "\x00\x7f\x80"])
def test_text_is_the_same_after_it_was_tokens(text: str) -> None:
    tokenizer = PacedTokenizer()
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert all(0 <= each < VOCABULARY <= 2**31 for each in ids)


def test_four_characters_are_a_token() -> None:
    assert len(PacedTokenizer().encode("four" * 25).ids) == 25


def test_a_chat_is_its_messages_line_by_line() -> None:
    chat = {"messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]}
    assert PacedPrompts().render(chat) == "system: Be\nuser: Hi\nassistant:"
    assert PacedPrompts().tokens(chat, tokens_max=100)


@pytest.mark.parametrize("at", [1, 7, 19])
def test_who_goes_on_with_an_answer_says_what_would_have_come(at: int) -> None:
    """Wherever tokens of the prompt begin, and in a chat too, as with a model's likeliest token."""
    prompts = PacedPrompts()
    asks = {"messages": [{"role": "user", "content": "Say something"}]}
    first = AnswerTokens(prompts.tokens(asks, tokens_max=1000), None)
    answer = prompts.decode([first.next() for _ in range(20)])
    begun = {"role": "assistant", "content": answer[: 4 * at]}
    goes_on = {"messages": [*asks["messages"], begun], "continue_final_message": True}
    goes_on["add_generation_prompt"] = False
    rest = AnswerTokens(prompts.tokens(goes_on, tokens_max=1000), None)
    assert prompts.decode([rest.next() for _ in range(20 - at)]) == answer[4 * at :]
