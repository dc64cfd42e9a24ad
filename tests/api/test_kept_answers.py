"""Answers that are made once for all who ask at the same time, and kept for a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.api.oip.targets import KeptAnswers
from penstock.clock import ManualClock
from penstock.errors import NotNowError


class Source:
    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.fails = False

    def make(self) -> Coroutine[Any, Any, int]:
        self.asked += 1
        return self._made(self.asked)

    async def _made(self, number: int) -> int:
        await self.gate.wait()
        if self.fails:
            raise NotNowError("x", "not now")
        return number


def kept(clock: ManualClock, count_max: int = 8) -> KeptAnswers[int]:
    return KeptAnswers(clock, seconds=2.0, count_max=count_max)


async def test_all_who_ask_at_once_share_one_answer_which_lasts_for_its_time() -> None:
    clock, source = ManualClock(), Source()
    answers = kept(clock)
    asking = [asyncio.ensure_future(answers.get("k", source.make)) for _ in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()  # takes the answer from nobody
    source.gate.set()
    assert await asyncio.gather(*asking[1:]) == [1, 1, 1, 1]
    clock.advance(1.9)
    assert await answers.get("k", source.make) == 1
    clock.advance(0.2)
    assert await answers.get("k", source.make) == 2
    answers.forget("k")
    assert await answers.get("k", source.make) == 3
    assert await answers.get("other", source.make) == 4


async def test_an_error_is_told_to_those_who_wait_and_not_kept() -> None:
    source = Source()
    source.fails = True
    source.gate.set()
    answers = kept(ManualClock())
    with pytest.raises(NotNowError):
        await answers.get("k", source.make)
    source.fails = False
    assert await answers.get("k", source.make) == 2


async def test_no_more_are_kept_than_allowed_the_oldest_go() -> None:
    source = Source()
    source.gate.set()
    answers = kept(ManualClock(), count_max=2)
    assert [await answers.get(key, source.make) for key in "abc"] == [1, 2, 3]
    assert await answers.get("b", source.make) == 2
    assert await answers.get("a", source.make) == 4
