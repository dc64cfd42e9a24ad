"""Threads that do one thing again and again while a block lasts: callers, and those who look."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Repeating:
    """`step` is what is done, or what a subclass says that is. An error that it raises ends its
    thread, and is raised where the block ends."""

    def __init__(
        self, step: Callable[[], object] | None = None, *, threads: int = 1, pause_s: float = 0.0
    ) -> None:
        """`pause_s`: between two steps of a thread."""
        self._step = step
        self.lock = threading.Lock()
        self.over = threading.Event()
        self._pause_s = pause_s
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(threads)
        ]

    def step(self) -> None:
        assert self._step is not None, "there is nothing to do"
        self._step()

    def run(self, number: int) -> None:
        """One thread's work; a subclass that keeps something per thread has its own."""
        while not self.over.is_set():
            self.step()
            self.over.wait(self._pause_s)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(60)
        if error is None and self._error is not None:
            raise self._error

    def _run(self, number: int) -> None:
        try:
            self.run(number)
        except BaseException as error:
            self._error = error
