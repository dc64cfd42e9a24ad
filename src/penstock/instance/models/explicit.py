"""Operations on a host's models by name: load, unload, and keep warm."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from penstock.artifacts.model_prefix import ModelPrefix
from penstock.clock import Clock
from penstock.core.residency import Action, Footprint, Residency
from penstock.core.residency.account import fits
from penstock.errors import PenstockError
from penstock.instance.models.refusals import busy, going, not_ready
from penstock.instance.models.target import HostedTarget

#: States of a model that is present, or will be unless it is ended.
_TAKES_MEMORY = ("loading", "loaded", "draining", "leaving")


class Explicit:
    """Explicit operations. All methods raise CallerError for invalid names."""

    def __init__(
        self,
        targets: Mapping[str, HostedTarget],
        residency: Residency,
        prefix: ModelPrefix,
        *,
        clock: Clock,
        carry_out: Callable[[list[Action]], None],
        free: Callable[[], Footprint],
    ) -> None:
        self._targets = targets
        self._residency = residency
        self._prefix = prefix
        self._now = clock.monotonic
        self._carry_out = carry_out
        self._free = free
        self._loads = Outcomes()
        self._ends = Outcomes()

    def wish(self, name: str) -> None:
        """A schedule wants the model to be loaded; no caller waits for it."""
        self._prefix.resolve(name)
        self._carry_out(self._residency.wish(name, now=self._now(), pardon=False))

    async def load(self, name: str, *, wait_s: float = 0.0, if_room: bool = False) -> str:
        """Returns at once (`asked`), or with `wait_s` when the model is loaded (`loaded`).

        Who waits for an ensemble waits for the models of its steps, too. `if_room`: not where other
        models would have to go for it (`no-room`). It is used for calls that want all models
        loaded: a model in quarantine stays there.

        While it waits it raises the error that refused the load, or NotNowError
        (`target-model-not-ready`).
        """
        state = await self._load(name, wait_s, if_room)
        if state == "loaded" and wait_s > 0:
            for step in self._targets[name].steps:
                await self.load(step, wait_s=wait_s, if_room=if_room)
        return state

    async def _load(self, name: str, wait_s: float, if_room: bool) -> str:
        self._prefix.resolve(name)
        if self._residency.is_loaded(name):
            return "loaded"
        if if_room and not self._has_room(name):
            return "no-room"
        outcome = self._loads.expect(name) if wait_s > 0 else None
        self._carry_out(self._residency.wish(name, now=self._now(), pardon=not if_room))
        if outcome is None:
            return "asked"
        if not await self._loads.within(name, outcome, wait_s):
            raise not_ready(name, f"it is not loaded after {wait_s:g} s")
        return "loaded"

    def _has_room(self, name: str) -> bool:
        target = self._targets.get(name)
        others = [one.taken for one in self._targets.values() if one.taken is not None]
        return fits(self._free(), target.taken if target else None, others)

    async def unload(self, name: str, *, wait_s: float = 0.0, dependents: bool = False) -> None:
        """`dependents`: the models of an ensemble's steps, too.

        Returns at once, or with `wait_s` when the model has answered all requests and is gone.

        Raises NotNowError (`target-model-busy`) where that takes longer (it is unloaded all the
        same), or where it is called again before.
        """
        target = self._targets.get(name)
        await self._unload(name, wait_s)
        for step in target.steps if target is not None and dependents else ():
            await self.unload(step, wait_s=wait_s, dependents=True)

    async def _unload(self, name: str, wait_s: float) -> None:
        self._carry_out(self._residency.dismiss(name, now=self._now()))
        state = self._residency.brief(name, now=self._now())["state"]
        if wait_s <= 0 or state not in _TAKES_MEMORY:
            return
        outcome = self._ends.expect(name)
        if not await self._ends.within(name, outcome, wait_s):
            raise busy(name, f"it still answers requests after {wait_s:g} s")

    def pin(self, name: str, pinned: bool) -> None:
        self._prefix.resolve(name)
        self._carry_out(self._residency.pin(name, pinned, now=self._now()))

    # Results

    def loaded(self, name: str) -> None:
        self._loads.settle(name)

    def refused(self, name: str, error: PenstockError) -> None:
        self._loads.settle(name, error)

    def ended(self, name: str) -> None:
        self._ends.settle(name)

    def called_off(self, name: str) -> None:
        self._ends.settle(name, busy(name, "it was called again before it was unloaded"))

    def close(self) -> None:
        for outcomes in (self._loads, self._ends):
            outcomes.settle_all(going())


class Outcomes:
    """Callers that wait for the result of a load or an unload. Create it on the running loop."""

    def __init__(self) -> None:
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}

    def expect(self, model: str) -> asyncio.Future[None]:
        """A future that `settle` completes for the model; await it with `within`."""
        outcome = asyncio.get_running_loop().create_future()
        self._awaited.setdefault(model, []).append(outcome)
        return outcome

    def settle(self, model: str, error: PenstockError | None = None) -> None:
        """Informs all waiting callers; `error`: why it failed."""
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
        """False when the time is over. Raises the error of `settle`."""
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
