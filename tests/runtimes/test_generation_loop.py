"""The engine process's loop: who shares the step that reads their prompts, who waits for whom."""

from __future__ import annotations

from queue import Empty
from typing import Any

from penstock.errors import CallerError
from penstock.runtimes.generation.answers import Answers, SequenceGroup, sequences_of
from penstock.runtimes.generation.base import (
    LENGTH,
    EngineRequest,
    Sampling,
    StepOutput,
)
from penstock.runtimes.generation.engine_process import JOIN_S, Loop
from penstock.runtimes.statistics import EngineStatistics

NOTHING = ("nothing", None)


class Inbox:
    """Commands in an order that was written down; NOTHING is a wait in vain."""

    def __init__(self, *script: tuple[str, Any]) -> None:
        self._script = list(script)
        self.waits: list[float | None] = []  #: of each look; 0 does not wait

    def get(self, block: bool, timeout: float | None) -> tuple[str, Any]:
        self.waits.append(timeout if block else 0.0)
        command = self._script.pop(0) if self._script else ("end", None)
        if command == NOTHING:
            raise Empty
        return command


class LoopEngine:
    """Two tokens a sequence; `steps` is who was in each step."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self._left: dict[int, int] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._left)

    def add(self, request: EngineRequest) -> None:
        self._left[request.ident] = 2

    def cancel(self, ident: int) -> None:
        self._left.pop(ident, None)

    def step(self) -> list[StepOutput]:
        self.steps.append(sorted(self._left))
        outputs = []
        for ident in list(self._left):
            self._left[ident] -= 1
            over = not self._left[ident]
            if over:
                del self._left[ident]
            outputs.append(StepOutput(ident, [7], finish=LENGTH if over else None))
        return outputs

    def statistics(self) -> EngineStatistics:
        return EngineStatistics(len(self._left), 0, 0.0, 0)


class LoopPrompt:
    """What a prompt has become when it reaches the loop."""

    def __init__(self, ident: int) -> None:
        self.request = EngineRequest(ident, [1, 2], Sampling(), tokens_new_max=2, seed=0)
        self.group = SequenceGroup(ident, 1)

    def event(self, output: StepOutput) -> dict[str, Any]:
        event: dict[str, Any] = {"i": output.ident, "t": output.token_ids}
        return event | ({"f": output.finish} if output.finish else {})


class LoopSink:
    def sendall(self, data: bytes) -> None:
        """Nobody reads it."""


def run(*script: tuple[str, Any]) -> tuple[LoopEngine, Inbox]:
    engine, inbox = LoopEngine(), Inbox(*script)
    commands: Any = type("Commands", (), {"inbox": inbox})()
    Loop(engine, commands, LoopSink()).run()  # type: ignore[arg-type]
    return engine, inbox


def add(ident: int) -> tuple[str, Any]:
    return ("add", LoopPrompt(ident))


def test_requests_that_come_together_to_an_idle_engine_share_its_first_step() -> None:
    engine, inbox = run(add(1), add(2), NOTHING)
    assert engine.steps[0] == [1, 2]
    assert inbox.waits[:3] == [None, JOIN_S, JOIN_S]


def test_an_engine_that_works_waits_for_nobody() -> None:
    engine, inbox = run(add(1), NOTHING, add(2), NOTHING, NOTHING)
    assert engine.steps == [[1], [1, 2], [2]]
    assert inbox.waits[2:5] == [0.0, 0.0, 0.0]


def test_what_is_cancelled_before_its_first_step_has_none() -> None:
    engine, inbox = run(add(1), ("cancel", [1]), NOTHING)
    assert engine.steps == []
    assert inbox.waits[2] == 0.0, "nobody is left to wait with"


class Letters:
    """A tokenizer of the alphabet."""

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(96 + each) for each in ids)


def several(ident: int, count: int, **settings: Any) -> list[Any]:
    sampling = Sampling(sequences=count, **settings)
    request = EngineRequest(ident, [1, 2], sampling, tokens_new_max=2, seed=40)
    prompts: Any = Letters()
    return sequences_of([request], prompts, frozenset())


def test_the_sequences_of_a_request_differ_by_their_seeds_and_end_with_the_last() -> None:
    engine, inbox = LoopEngine(), several(5, 3)
    assert [each.request.seed for each in inbox] == [40, 41, 42]
    answers = Answers(engine)
    for each in inbox:
        assert answers.command("add", each) == []
    assert answers.take(engine.step()) == [
        {"i": 5, "t": [7], "x": "g", "p": 2, "c": 0, "s": 40},
        {"i": 5, "n": 1, "t": [7], "x": "g", "s": 41},
        {"i": 5, "n": 2, "t": [7], "x": "g", "s": 42},
    ]
    assert answers.take(engine.step()) == [
        {"i": 5, "t": [7], "x": "g", "g": "length"},
        {"i": 5, "n": 1, "t": [7], "x": "g", "g": "length"},
        {"i": 5, "n": 2, "t": [7], "x": "g", "f": "length"},
    ]
    assert not engine.has_work


def test_who_cancels_a_request_cancels_all_its_sequences_and_no_other() -> None:
    engine = LoopEngine()
    answers = Answers(engine)
    for each in (*several(5, 3), *several(6, 2)):
        answers.command("add", each)
    answers.command("cancel", [5])
    assert [event["i"] for event in answers.take(engine.step())] == [6, 6]


def test_a_sequence_that_is_refused_is_the_answer_to_its_request() -> None:
    class FullEngine(LoopEngine):
        def add(self, request: EngineRequest) -> None:
            if len(self._left) == 2:
                raise CallerError("too-much", "no room")
            super().add(request)

    engine = FullEngine()
    answers = Answers(engine)
    events = [event for each in several(5, 4) for event in answers.command("add", each)]
    assert [(event["i"], event["e"]["code"]) for event in events] == [(5, "too-much")]
    assert not engine.has_work


def test_a_stop_string_ends_its_own_sequence_alone() -> None:
    engine = LoopEngine()
    answers = Answers(engine)
    first, second = several(5, 2, stop=("ab",))
    answers.command("add", first)
    answers.command("add", second)
    given = [
        StepOutput(each.request.ident, tokens) for each, tokens in ((first, [1, 2]), (second, [3]))
    ]
    assert [(event.get("n", 0), event.get("g")) for event in answers.take(given)] == [
        (0, "stop"),
        (1, None),
    ]


class Reader:
    """Everything in brackets is a call."""

    keeps_special = True
    structured = None

    def __init__(self) -> None:
        self.prompt: list[int] = []
        self.seen: list[tuple[str, list[int], bool]] = []

    def begin(self, prompt: list[int]) -> None:
        self.prompt = prompt

    def add(
        self, text: str, token_ids: list[int], *, finished: bool
    ) -> tuple[str, list[list[Any]]]:
        self.seen.append((text, token_ids, finished))
        if "z" in text:
            raise ValueError("no call begins with z")
        return ("", [[0, "id", text, ""]]) if text == "c" else (text, [])


class WithSpecial(Letters):
    def decode_all(self, ids: list[int]) -> str:
        return self.decode(ids)


def reading(ident: int, *readers: Reader) -> list[Any]:
    sampling = Sampling(sequences=len(readers))
    request = EngineRequest(ident, [1, 2], sampling, tokens_new_max=9, seed=0)
    prompts: Any = WithSpecial()
    return sequences_of([request], prompts, frozenset(), readers)


def test_a_reader_takes_calls_out_of_the_text_and_never_sees_what_ended_it() -> None:
    reader = Reader()
    engine, (sequence,) = LoopEngine(), reading(5, reader)
    answers = Answers(engine)
    answers.command("add", sequence)
    assert reader.prompt == [1, 2]
    steps = [StepOutput(5, [1]), StepOutput(5, [3]), StepOutput(5, [4, 2], finish="stop")]
    events = [event for step in steps for event in answers.take([step])]
    assert [(each.get("x"), each.get("u"), each["t"]) for each in events] == [
        ("a", None, [1]),
        (None, [[0, "id", "c", ""]], [3]),
        ("d", None, [4, 2]),
    ]
    assert reader.seen == [("a", [1], False), ("c", [3], False), ("d", [4], True)]


def test_a_reader_that_trips_fails_its_request_and_no_other() -> None:
    engine = LoopEngine()
    answers = Answers(engine)
    for sequence in (*reading(5, Reader(), Reader()), *reading(6, Reader())):
        answers.command("add", sequence)
    events = answers.take([StepOutput(5, [26]), StepOutput(6, [1])])
    assert [(each["i"], each.get("e", {}).get("code")) for each in events] == [
        (5, "answer-unreadable"),
        (6, None),
    ]
    assert [each["i"] for each in answers.take(engine.step())] == [6]
