"""A driver's loop: pauses, wakes, and failures that end nothing; in virtual time."""

from __future__ import annotations

import asyncio

import pytest
from tests.kit.virtual_network import run_virtual

from penstock.control.loop import DriverLoop
from penstock.errors import NotNowError


class Turns:
    """A loop whose turns note when they were; each raises or returns what comes next."""

    def __init__(self, *results: float | Exception) -> None:
        self.results = list(results)
        self.at: list[float] = []
        self.wakes = False  #: the next turn is woken while it runs
        self.loop = DriverLoop("it", self._turn, fault="it fails", retry_s=5.0)

    async def _turn(self) -> float:
        self.at.append(round(asyncio.get_running_loop().time() - 100.0, 3))
        if self.wakes:
            self.wakes = False
            self.loop.wake()
        result = self.results.pop(0) if self.results else 1000.0
        if isinstance(result, Exception):
            raise result
        return result


def test_a_turn_says_how_long_the_pause_after_it_is() -> None:
    async def main() -> None:
        turns = Turns(1.0, 2.5, 0.0)
        turns.loop.start()
        await asyncio.sleep(10.0)
        await turns.loop.close()
        assert turns.at == [0.0, 1.0, 3.5, 3.5]

    run_virtual(main)


def test_a_wake_ends_the_pause_and_one_during_a_turn_is_not_lost() -> None:
    async def main() -> None:
        turns = Turns()
        turns.loop.start()
        await asyncio.sleep(2.0)
        turns.loop.wake()
        turns.loop.wake()  # both are one
        await asyncio.sleep(1.0)
        turns.results = [7.0]
        turns.loop.wake()
        await asyncio.sleep(20.0)
        assert turns.at == [0.0, 2.0, 3.0, 10.0]
        turns.wakes = True
        turns.loop.wake()
        await asyncio.sleep(1.0)
        await turns.loop.close()
        assert turns.at[4:] == [23.0, 23.0]

    run_virtual(main)


def test_a_turn_that_fails_is_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        turns = Turns(NotNowError("state-busy", "it is in use", hint="Wait."), ValueError("a bug"))
        turns.loop.start()
        await asyncio.sleep(11.0)
        await turns.loop.close()
        assert turns.at == [0.0, 5.0, 10.0]

    run_virtual(main)
    assert [record.getMessage() for record in caplog.records] == [
        "it fails: state-busy: it is in use Wait.",
        "it fails",
    ]


def test_it_is_closed_once_and_again_and_before_it_has_begun() -> None:
    async def main() -> None:
        turns = Turns()
        await turns.loop.close()
        turns.loop.start()
        await asyncio.sleep(0.0)
        await turns.loop.close()
        await turns.loop.close()
        turns.loop.wake()
        assert turns.at == [0.0]

    run_virtual(main)
