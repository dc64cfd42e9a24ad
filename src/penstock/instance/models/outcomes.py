"""Who waits until something has become of target models: loaded or not, or gone."""

from __future__ import annotations

import asyncio
import contextlib

from penstock.errors import PenstockError


class LoadOutcomes:
    """Made on the running loop."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}

    def expect(self, model: str) -> asyncio.Future[None]:
        """Done when `settle` is called for the model; then await it with `within`."""
        outcome = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(model, []).append(outcome)
        return outcome

    def settle(self, model: str, error: PenstockError | None = None) -> None:
        """Tells all who wait; `error`: why it did not come about."""
        for outcome in self._awaited.pop(model, ()):
            if outcome.done():
                continue
            if error is None:
                outcome.set_result(None)
            else:
                outcome.set_exception(error)

    def settle_all(self, error: PenstockError) -> None:
        for model in list(self._awaited):
            self.settle(model, error)

    async def within(self, model: str, outcome: asyncio.Future[None], seconds: float) -> bool:
        """False when the time is up. Raises the error of `settle`."""
        try:
            async with asyncio.timeout(seconds):
                await outcome
        except TimeoutError:
            return False
        finally:
            self._forget(model, outcome)
        return True

    def _forget(self, model: str, outcome: asyncio.Future[None]) -> None:
        awaited = self._awaited.get(model)
        if awaited is not None:
            with contextlib.suppress(ValueError):
                awaited.remove(outcome)
            if not awaited:
                del self._awaited[model]
