"""The store for asynchronous code: one worker thread, one call at a time, in order.

One thread also suits SQLite: transactions never overlap, so none waits for another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from penstock.control.database.connection import FAULTS, unreachable
from penstock.control.store.store import Store
from penstock.errors import NotNowError, PenstockError

P = ParamSpec("P")
T = TypeVar("T")


class StoreThread:
    """Runs `Store` methods: `await database.call(Store.create_model, name, request, …)`."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        called: Callable[[float, str], None] = lambda took_s, failure: None,
    ) -> None:
        """`called`: gets the duration of each call in s, and the code of a database error ("":
        none)."""
        self._open_store = open_store
        self._called = called
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-db")
        self._store: Store | None = None
        self._closed = False
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        """Opens the store on its thread; raises what opening raises."""
        loop = asyncio.get_running_loop()
        self._store = await loop.run_in_executor(self._thread, self._open_store)

    async def call(
        self, method: Callable[Concatenate[Store, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """The method's result, or its exception. A cancelled call is still carried out.

        Raises NotNowError: `server-stopping`; `database-unreachable` if the database hangs. Then it
        is unknown whether the call took effect.
        """
        store = self._store
        if store is None or self._closed:
            raise NotNowError("server-stopping", "the server is stopping", retry_after_s=1.0)
        began, failure = time.perf_counter(), ""
        try:
            return await self._carry_out(store, lambda: method(store, *args, **kwargs))
        except PenstockError as error:
            failure = error.code if error.code in FAULTS else ""
            raise
        finally:
            self._called(time.perf_counter() - began, failure)

    async def _carry_out(self, store: Store, method: Callable[[], T]) -> T:
        if store.call_s_max is not None:
            within = self._within(store, store.call_s_max, method)
            return await asyncio.shield(asyncio.create_task(within))
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._thread, method))

    async def _within(self, store: Store, call_s_max: float, call: Callable[[], T]) -> T:
        """Runs a call that may hang. A call that waits too long for its turn is never begun."""
        try:
            async with asyncio.timeout(call_s_max):
                await self._turn.acquire()
        except TimeoutError:
            raise unreachable(f"calls before this one took {call_s_max:g} s") from None
        loop = asyncio.get_running_loop()
        timer = loop.call_later(call_s_max, store.abort)
        try:
            return await loop.run_in_executor(self._thread, call)
        finally:
            timer.cancel()
            self._turn.release()

    async def close(self) -> None:
        """Waits for calls under way. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._store is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown(wait=True)
