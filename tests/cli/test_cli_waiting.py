"""Lines that a wait shows where there is no terminal."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli import waiting
from penstock.cli.waiting import ShownWait, phase_of, while_running
from penstock.errors import NotNowError


class PhasedServer:
    """Tells the phases that the test names, one after the other."""

    def __init__(self, *phases: str) -> None:
        self.phases = list(phases)

    def deploying(self, endpoint: str) -> dict[str, Any]:
        phase = self.phases.pop(0)
        if phase == "away":
            raise NotNowError("server-unreachable", "no answer")
        return {"copies": [{"state": "loading", "phase": phase}], "line": "its last words"}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now[0])
    return now


def look(shown: ShownWait, clock: list[float], *seconds: float) -> None:
    for passed in seconds:
        clock[0] = 100.0 + passed
        shown.look("shop", doing="waiting")


def test_a_line_for_each_phase_and_a_sign_of_life(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    server = PhasedServer("fetching", "compiling", "compiling", "compiling", "away")
    with ShownWait(server, at_once=True) as shown:
        look(shown, clock, 0.0, 1.0, 5.0, 12.0, 12.6)
    assert capsys.readouterr().err.splitlines() == [
        "shop: fetching the artifact",
        "shop: compiling the model",
        "shop: still compiling the model after 12 s: its last words",
        "shop: waiting",
    ]


def test_what_is_over_within_a_second_shows_nothing(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    with ShownWait(PhasedServer("loading", "loading")) as shown:
        look(shown, clock, 0.0, 0.6)
    assert capsys.readouterr().err == ""


def test_programs_see_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with ShownWait(PhasedServer(), shown=False, at_once=True) as shown:
        look(shown, clock, 0.0, 20.0)
    assert capsys.readouterr().err == ""


def test_of_several_copies_the_first_that_is_not_ready_is_told() -> None:
    copies = [{"state": "ready", "phase": "ready"}, {"state": "loading", "phase": "warming up"}]
    assert phase_of({"copies": copies}) == "warming up, 1 of 2 copies ready"
    assert phase_of({"copies": copies[:1], "status": "InService"}) == ""


def test_an_error_of_the_work_is_raised_where_it_is_waited_for() -> None:
    def work() -> None:
        raise NotNowError("server-unreachable", "no answer")

    with pytest.raises(NotNowError):
        while_running(work, lambda: None)
