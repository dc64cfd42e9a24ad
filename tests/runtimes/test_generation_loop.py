"""The engine process's loop: who shares the step that reads their prompts, who waits for whom."""

from __future__ import annotations

from queue import Empty
from typing import Any

from penstock.runtimes.generation.base import (
    LENGTH,
    EngineRequest,
    EngineStatistics,
    Sampling,
    StepOutput,
)
from penstock.runtimes.generation.engine_process import JOIN_S, Loop

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


class Engine:
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


class Asked:
    """What a prompt has become when it reaches the loop."""

    def __init__(self, ident: int) -> None:
        self.request = EngineRequest(ident, [1, 2], Sampling(), tokens_new_max=2, seed=0)

    def event(self, output: StepOutput) -> dict[str, Any]:
        event: dict[str, Any] = {"i": output.ident, "t": output.token_ids}
        return event | ({"f": output.finish} if output.finish else {})


class Sink:
    def sendall(self, data: bytes) -> None:
        """Nobody reads it."""


def run(*script: tuple[str, Any]) -> tuple[Engine, Inbox]:
    engine, inbox = Engine(), Inbox(*script)
    commands: Any = type("Commands", (), {"inbox": inbox})()
    Loop(engine, commands, Sink()).run()  # type: ignore[arg-type]
    return engine, inbox


def add(ident: int) -> tuple[str, Any]:
    return ("add", Asked(ident))


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
