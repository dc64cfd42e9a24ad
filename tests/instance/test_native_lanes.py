"""Native runs and works of a lane: never at once, in their order, and none is lost."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.kit.played_lanes import WAIT_S, played
from tests.kit.polling import wait_until

from penstock.instance.engines.lane_threads import LaneThreads, run_native
from penstock.instance.engines.reshape import ReshapedRuntime, Reshapes
from penstock.runtimes.native import native_lane

FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

pytestmark = pytest.mark.skipif(native_lane() is None, reason="built without a C compiler")


class Run:
    """A `NativeRun` of a function of Python's, which may take the interpreter: only to look."""

    def __init__(self, body: Callable[[], int], outputs: Any = "outputs") -> None:
        self._body = FUNCTION(lambda _: body())
        self.function = ctypes.cast(self._body, ctypes.c_void_p).value or 0
        self.argument = 0
        self.given_back = 0
        self._outputs = outputs

    def set(self, inputs: Any) -> None:
        self.inputs = inputs

    def outputs(self) -> Any:
        return {"y": self._outputs}

    def give_back(self) -> None:
        self.given_back += 1


def is_there(native_id: int) -> bool:
    return Path(f"/proc/self/task/{native_id}").exists()


def answer() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def begin(threads: LaneThreads, run: Run, otherwise: Callable[[], Any], done: Any) -> bool:
    return run_native(
        threads, 0, run, lambda: [np.zeros(1)], lambda outputs: outputs["y"], otherwise, done
    )


def test_a_run_has_a_thread_of_its_own_and_its_outputs_are_the_answer() -> None:
    async def play(threads: LaneThreads) -> None:
        where: list[int] = []
        run = Run(lambda: where.append(threading.get_native_id()) or 0)
        got = answer()
        assert begin(threads, run, lambda: "not asked", got.set_result)
        assert not got.done()
        assert await got == "outputs"
        assert where != [threading.get_native_id()]
        assert run.given_back == 1
        assert len(run.inputs) == 1

    played(play)


@pytest.mark.parametrize("outputs", ["outputs", None])
def test_a_run_that_fails_is_done_by_the_lanes_other_thread(outputs: str | None) -> None:
    """So is one whose outputs are not as described: `results` raises."""

    async def play(threads: LaneThreads) -> None:
        run = Run(lambda: 0 if outputs is None else 1, outputs)
        got = answer()

        def results(given: Any) -> Any:
            return given["y"].upper()

        assert run_native(threads, 0, run, list, results, lambda: "told why", got.set_result)
        assert await got == "told why"
        assert run.given_back == 1

    played(play)


def test_a_lane_computes_for_one_of_its_threads_at_a_time() -> None:
    async def play(threads: LaneThreads) -> None:
        begun, may_end = threading.Event(), threading.Event()
        order: list[str] = []

        def long() -> int:
            begun.set()
            may_end.wait(WAIT_S)
            order.append("native")
            return 0

        first, second, third, fourth = answer(), answer(), answer(), answer()
        second_done = threading.Event()

        def last() -> None:
            second_done.wait(WAIT_S)
            order.append("here")

        assert begin(threads, Run(long), lambda: None, first.set_result)
        await asyncio.to_thread(begun.wait, WAIT_S)
        threads.submit(0, lambda: order.append("work"), second.set_result)
        threads.run_here(0, last, third.set_result)
        await asyncio.sleep(0)
        behind = Run(lambda: order.append("behind") or 0)
        assert begin(threads, behind, lambda: order.append("not run"), fourth.set_result)
        may_end.set()
        await second
        second_done.set()
        await asyncio.gather(first, third, fourth)
        assert order == ["native", "work", "here", "behind"]
        assert behind.given_back == 1

    played(play)


def test_a_lane_that_always_has_a_batch_ahead_leaves_the_other_thread_after_one() -> None:
    """One batch without a graph, and then each has one."""

    async def play(threads: LaneThreads) -> None:
        ran = threading.Event()
        work, *runs = [answer() for _ in range(4)]
        where: list[int] = []

        def run() -> Run:
            return Run(lambda: where.append(threading.get_native_id()) or 0)

        threads.submit(0, lambda: ran.wait(WAIT_S), work.set_result)
        assert begin(threads, run(), lambda: None, runs[0].set_result)
        ran.set()
        for done, following in pairwise([work, *runs]):
            await done
            if following is not runs[0]:
                assert begin(threads, run(), lambda: None, following.set_result)
        await runs[-1]
        assert len(set(where)) == 1
        assert len(where) == len(runs)

    played(play)


@pytest.mark.parametrize("closes", ["the lanes", "a run that can't begin"])
def test_a_run_behind_work_that_never_begins_is_done_by_the_other_thread(
    closes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(threads: LaneThreads) -> None:
        may_end, first, second = threading.Event(), answer(), answer()
        threads.submit(0, lambda: may_end.wait(WAIT_S), first.set_result)
        run = Run(lambda: 0)
        assert begin(threads, run, lambda: "told", second.set_result)
        if closes == "the lanes":
            threads.close()
        else:
            monkeypatch.setattr(threads._native, "submit", lambda *_: False)
        may_end.set()
        assert await first
        assert await second == "told"
        assert run.given_back == 1

    played(play)


def test_the_next_run_waits_in_the_lane_and_not_for_the_loop() -> None:
    async def play(threads: LaneThreads) -> None:
        first, second = answer(), answer()
        ran = threading.Event()
        assert begin(threads, Run(lambda: 0), lambda: None, first.set_result)
        assert begin(threads, Run(lambda: ran.set() or 0), lambda: None, second.set_result)
        assert ran.wait(WAIT_S), "while the loop does nothing"
        assert not first.done()
        await asyncio.gather(first, second)

    played(play)


def test_lanes_that_end_wait_for_no_run_and_its_caller_hears_of_it() -> None:
    native_id: list[int] = []

    async def play(threads: LaneThreads) -> None:
        got, may_end = answer(), threading.Event()

        def long() -> int:
            native_id.append(threading.get_native_id())
            may_end.wait(WAIT_S)
            return 0

        run = Run(long)
        assert begin(threads, run, lambda: None, got.set_result)
        threads.close()
        assert not begin(threads, Run(lambda: 0), lambda: None, print)
        may_end.set()
        assert await got == "outputs"
        assert run.given_back == 1
        await asyncio.to_thread(wait_until, lambda: not is_there(native_id[0]), "its thread's end")

    played(play)


def test_a_run_that_fails_while_the_lanes_end_is_still_done_by_the_other_thread() -> None:
    async def play(threads: LaneThreads) -> None:
        got, may_end = answer(), threading.Event()
        assert begin(
            threads, Run(lambda: int(may_end.wait(WAIT_S))), lambda: "told", got.set_result
        )
        threads.close()
        may_end.set()
        assert await got == "told"

    played(play)


def test_inputs_that_cannot_be_set_are_left_to_the_other_thread() -> None:
    async def play(threads: LaneThreads) -> None:
        run = Run(lambda: 0)
        assert not run_native(threads, 0, run, lambda: 1 / 0, print, print, print)  # type: ignore[arg-type,return-value]
        assert run.given_back == 1
        assert threads.takes_native

    played(play)


def test_an_end_that_raises_spoils_no_other() -> None:
    async def play(threads: LaneThreads) -> None:
        told: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        error, got, ran = RuntimeError("a caller's"), answer(), threading.Event()

        def raises(_: Any) -> None:
            raise error

        assert begin(threads, Run(lambda: 0), lambda: None, raises)
        assert begin(threads, Run(lambda: ran.set() or 0), lambda: None, got.set_result)
        assert ran.wait(WAIT_S), "both have ended when the loop looks"
        assert await got == "outputs"
        assert told == [error]

    played(play)


def test_a_model_whose_tensors_are_reshaped_has_no_native_runs() -> None:
    """They would take the model's shapes, and requests have others."""
    inner = SimpleNamespace(native_run=lambda shape: "a run", lanes=1)
    reshaped = ReshapedRuntime(inner, Reshapes((), (), {}, batched=True))
    assert reshaped.lanes == 1
    assert reshaped.native_run is None
