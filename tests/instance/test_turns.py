"""Loads of known size run beside one another; what must be alone is, and is not passed."""

from __future__ import annotations

import asyncio

from penstock.instance.models.loader import Turns


class TurnsSite:
    """Tasks that take a turn, and end when they are told to."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.running: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def begin(self, name: str, *, alone: bool = False) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._run(name, alone=alone))
        await self.rest()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self.rest()

    async def rest(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _run(self, name: str, *, alone: bool) -> None:
        async with self.turns.alone() if alone else self.turns.beside():
            self.running.append(name)
            await self._ends[name].wait()
            self.running.remove(name)


async def test_several_run_beside_one_another() -> None:
    site = TurnsSite()
    assert not site.turns.are_taken
    await site.begin("a")
    await site.begin("b")
    assert site.running == ["a", "b"]
    assert site.turns.are_taken
    await site.end("a")
    await site.end("b")
    assert not site.turns.are_taken


async def test_what_is_alone_waits_for_all_and_all_wait_for_it() -> None:
    site = TurnsSite()
    await site.begin("a")
    await site.begin("alone", alone=True)
    await site.begin("b")
    assert site.running == ["a"], "nobody passes who waits to be alone"
    await site.end("a")
    assert site.running == ["alone"]
    await site.begin("c")
    await site.end("alone")
    assert site.running == ["b", "c"]


async def test_who_gives_up_waiting_holds_nobody_up() -> None:
    site = TurnsSite()
    await site.begin("a")
    await site.begin("alone", alone=True)
    await site.begin("b")
    site.tasks["alone"].cancel()
    await site.rest()
    assert site.running == ["a", "b"]


async def test_who_gives_up_as_the_turn_comes_passes_it_on() -> None:
    for alone in (True, False):
        site = TurnsSite()
        await site.begin("first", alone=True)
        await site.begin("gives-up", alone=alone)
        await site.begin("next", alone=True)
        site._ends["first"].set()
        await asyncio.sleep(0)  # it has its turn, and has not run since
        site.tasks["gives-up"].cancel()
        await site.rest()
        assert site.running == ["next"]
        await site.end("next")
        assert not site.turns.are_taken


async def test_an_error_ends_a_turn() -> None:
    turns = Turns()
    for turn in (turns.alone, turns.beside):
        try:
            async with turn():
                raise ValueError
        except ValueError:
            assert not turns.are_taken
