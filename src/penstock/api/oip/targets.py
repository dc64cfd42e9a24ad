"""Target models of multi-model endpoints as models of the Open Inference Protocol.

Their names are `endpoint:target`. A target model is ready if it is loaded, which the gateway knows
from its hosts, and a call to any other one loads it. Only the hosts know its inputs and outputs,
from the last load. The gateway requests these and keeps them for a moment (`_KEPT_S`), less than
hosts take to notice a replaced artifact. Such a request loads nothing.

Repeated requests are answered once for all callers at the same time, so that callers can't flood
hosts and buckets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, Generic, Protocol, TypeVar

from penstock.api.model_names import ModelName
from penstock.clock import Clock
from penstock.control.target_models import Row, TargetModelPage, TargetModels
from penstock.errors import CallerError
from penstock.gateway.dispatch.dispatcher import Dispatcher

Answer = TypeVar("Answer")


class KeptAnswers(Generic[Answer]):
    """Holds at most `count_max` answers for `seconds`; the oldest go first. No errors are kept."""

    def __init__(self, clock: Clock, *, seconds: float, count_max: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._count_max = count_max
        #: key -> (request time, answer)
        self._held: dict[Any, tuple[float, asyncio.Task[Answer]]] = {}

    async def get(self, key: Any, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """The answer, from `make` if none is kept. Raises what `make` raises."""
        now = self._clock.monotonic()
        asked_at, task = self._held.get(key, (0.0, None))
        fresh = task is not None and (
            not task.done()
            or (now < asked_at + self._seconds and not task.cancelled() and not task.exception())
        )
        if task is None or not fresh:
            self._held.pop(key, None)
            if len(self._held) >= self._count_max:
                del self._held[next(iter(self._held))]
            task = asyncio.get_running_loop().create_task(make())
            self._held[key] = now, task
        # A caller that goes away must not cancel the answer for the others.
        return await asyncio.shield(task)

    def forget(self, key: Any) -> None:
        """Drops an answer that is no longer true."""
        self._held.pop(key, None)


_KEPT_S: Final = 2.0
_KEPT_MAX: Final = 1024
#: Most models of one endpoint in an index. The protocol has no pages for it; /admin does.
INDEX_MAX: Final = 10_000
#: s between checks: reports of hosts arrive separately from their answers, a moment later.
_NEWS_LOOK_S: Final = 0.01
_NEWS_LOOKS: Final = 100

_STATES: Final = {
    "loaded": "READY",
    "loading": "LOADING",
    "unloading": "UNLOADING",
    "failed": "UNAVAILABLE",
    "unloaded": "UNAVAILABLE",
}


class Targets(Protocol):
    """The doors' interface to target models. All methods raise PenstockError."""

    def is_ready(self, name: ModelName) -> bool: ...

    async def described(self, name: ModelName) -> dict[str, Any]: ...

    async def statistics(self, name: ModelName) -> dict[str, Any]: ...

    async def index(self, endpoint: str, *, ready_only: bool) -> list[dict[str, Any]]: ...

    async def load(self, name: ModelName) -> None: ...

    async def unload(self, name: ModelName, *, dependents: bool = False) -> None: ...


class OipTargets:
    """Reads and changes which models hosts have loaded. All raise what `TargetModels` raises."""

    def __init__(self, dispatcher: Dispatcher, models: TargetModels) -> None:
        self._dispatcher = dispatcher
        self._models = models
        clock = dispatcher.clock
        self._descriptions: KeptAnswers[list[dict[str, Any]]] = KeptAnswers(
            clock, seconds=_KEPT_S, count_max=_KEPT_MAX
        )
        self._pages: KeptAnswers[TargetModelPage] = KeptAnswers(
            clock, seconds=_KEPT_S, count_max=_KEPT_MAX
        )

    def is_ready(self, name: ModelName) -> bool:
        return self._dispatcher.is_loaded(name.endpoint, name.target or "")

    async def described(self, name: ModelName) -> dict[str, Any]:
        """The model's description. Raises CallerError (404) if it was never loaded."""
        reports = await self._descriptions.get(
            name[:2], lambda: self._models.describe(name.endpoint, name.target or "")
        )
        known = sorted(
            (one for one in reports if one.get("described")), key=lambda one: not one.get("loaded")
        )
        if not known:
            raise CallerError(
                "target-model-unknown",
                f"Request for unknown model: '{name}' is not loaded, and was not before",
                hint="What a target model takes and gives is known once it is loaded: call it, or"
                " POST /v2/repository/models/NAME/load.",
                status=404,
            )
        return dict(known[0]["described"])

    async def statistics(self, name: ModelName) -> dict[str, Any]:
        """Counts by its hosts since they started; the metrics have the times."""
        reports = await self._models.describe(name.endpoint, name.target or "")
        return {
            "name": str(name),
            "version": "1",
            "inference_count": sum(int(one.get("requests", 0)) for one in reports),
            "execution_count": sum(int(one.get("batches", 0)) for one in reports),
        }

    async def index(self, endpoint: str, *, ready_only: bool) -> list[dict[str, Any]]:
        """Its target models by name; none for another kind of endpoint."""
        if ready_only:
            names = sorted(self._dispatcher.loaded_models(endpoint))
            return [_entry(f"{endpoint}:{name}", "READY", "") for name in names]
        page = await self._pages.get(
            endpoint, lambda: self._models.index(endpoint, limit=INDEX_MAX)
        )
        if page.prefix_error is not None and not page.rows:
            raise page.prefix_error
        # The page may be a moment old; what is loaded is known now.
        loaded = self._dispatcher.loaded_models(endpoint)
        return [_row_entry(endpoint, row, row.model in loaded) for row in page.rows]

    async def load(self, name: ModelName) -> None:
        """Returns when it is ready. Raises the error that refused it."""
        await self._models.load(name.endpoint, name.target or "")
        await self._heard(name, loaded=True)

    async def unload(self, name: ModelName, *, dependents: bool = False) -> None:
        """Returns once all its requests are answered and no host has it loaded. `dependents`: the
        models of an ensemble's steps, too."""
        await self._models.unload(name.endpoint, name.target or "", dependents=dependents)
        await self._heard(name, loaded=False)

    async def _heard(self, name: ModelName, *, loaded: bool) -> None:
        self._descriptions.forget(name[:2])
        self._pages.forget(name.endpoint)
        await heard(self, name, loaded=loaded)


async def heard(targets: Targets, name: ModelName, *, loaded: bool) -> None:
    """Waits until the gateway knows of a load or unload, so that the next request sees it."""
    for _ in range(_NEWS_LOOKS):
        if targets.is_ready(name) == loaded:
            return
        await asyncio.sleep(_NEWS_LOOK_S)


def _entry(name: str, state: str, reason: str) -> dict[str, Any]:
    return {"name": name, "version": "1", "state": state, "reason": reason}


def _row_entry(endpoint: str, row: Row, loaded: bool) -> dict[str, Any]:
    name = f"{endpoint}:{row.model}"
    if loaded:
        return _entry(name, "READY", "")
    if row.state == "loaded":
        return _entry(name, "UNAVAILABLE", "unloaded")
    return _entry(name, _STATES[row.state], _reason(row))


def _reason(row: Row) -> str:
    if row.error is not None:
        return str(row.error.get("message", ""))
    if row.state == "loaded":
        return ""
    return row.why or ("not called yet" if row.state == "unloaded" else row.state)
