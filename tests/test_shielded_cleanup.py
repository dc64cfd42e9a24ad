"""`penstock.cleanup`: clean-up is over when whoever waits for it goes on, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.kit.cancelling import cancelled_after, cancelled_on_and_on

from penstock.cleanup import ShieldedExitStack, shielded


async def _noted(done: list[str], what: str) -> str:
    for _ in range(5):
        await asyncio.sleep(0)
    done.append(what)
    return what


def _run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_without_a_cancel_it_is_an_await() -> None:
    async def fails() -> None:
        raise OSError("gone")

    async def test() -> None:
        assert await shielded(_noted([], "closed")) == "closed"
        with pytest.raises(OSError, match="gone"):
            await shielded(fails())

    _run(test)


@pytest.mark.parametrize("turns", range(1, 12))
def test_clean_up_is_finished_however_often_it_is_cancelled(turns: int) -> None:
    async def test() -> None:
        done: list[str] = []

        async def work() -> None:
            try:
                await asyncio.sleep(0)
            finally:
                await shielded(_noted(done, "closed"))

        await cancelled_after(turns, work())
        assert done == ["closed"]

    _run(test)


def test_the_cancel_is_not_lost_and_tells_what_the_clean_up_raised() -> None:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise OSError("gone")

    async def test() -> None:
        task = asyncio.ensure_future(shielded(fails()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        assert isinstance(raised.value.__cause__, OSError)

    _run(test)


def test_a_limit_of_time_around_clean_up_is_still_one() -> None:
    async def test() -> None:
        done: list[str] = []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await shielded(_noted(done, "closed"))
        assert done == ["closed"]

    _run(test)


def test_every_callback_of_a_stack_is_carried_out() -> None:
    async def test() -> None:
        done: list[str] = []

        async def work() -> None:
            async with ShieldedExitStack() as stack:
                for what in ("last", "then", "first"):
                    stack.push_async_callback(_noted, done, what)
                await asyncio.sleep(3600)

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        await cancelled_on_and_on(task)
        assert done == ["first", "then", "last"]

    _run(test)
