"""Target models of multi-model endpoints as models of the Open Inference Protocol.

Their names are `endpoint:target`. Whether one is ready the gateway knows from its hosts: ready is
loaded, and a call to one that is not loads it. What one takes and gives only its hosts know, since
it was loaded there; that is asked of them and kept for a moment (`_KEPT_S`), which is shorter than
hosts take to notice that an artifact was replaced. Asking loads nothing.

Answers that are asked for again and again, made once for all who ask at the same time.

Each is kept for a moment: what strangers ask often must not be asked of hosts and buckets as often.
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
    """At most `count_max`, each for `seconds`; the oldest go first. Errors are not kept."""

    def __init__(self, clock: Clock, *, seconds: float, count_max: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self._count_max = count_max
        self._held: dict[Any, tuple[float, asyncio.Task[Answer]]] = {}  #: key -> (asked at, answer)

    async def get(self, key: Any, make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
        """Raises what `make` raises."""
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
        # One who goes away must not take the answer from the others.
        return await asyncio.shield(task)

    def forget(self, key: Any) -> None:
        """What is kept is not true any more."""
        self._held.pop(key, None)


_KEPT_S: Final = 2.0
_KEPT_MAX: Final = 1024
#: Of one endpoint in an index, which the protocol does not cut into pages; /admin does.
INDEX_MAX: Final = 10_000
#: News of hosts come another way than their answers, at most a moment later.
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
    """What doors need to know of target models, and may have done. All raise PenstockError."""

    def is_ready(self, name: ModelName) -> bool: ...

    async def described(self, name: ModelName) -> dict[str, Any]: ...

    async def statistics(self, name: ModelName) -> dict[str, Any]: ...

    async def index(self, endpoint: str, *, ready_only: bool) -> list[dict[str, Any]]: ...

    async def load(self, name: ModelName) -> None: ...

    async def unload(self, name: ModelName) -> None: ...


class OipTargets:
    """Reads and changes what hosts have loaded. All raise what `TargetModels` raises."""

    def __init__(self, dispatcher: Dispatcher, models: TargetModels) -> None:
        self._dispatcher = dispatcher
        self._models = models
        clock = dispatcher.clock
        self._told: KeptAnswers[list[dict[str, Any]]] = KeptAnswers(
            clock, seconds=_KEPT_S, count_max=_KEPT_MAX
        )
        self._pages: KeptAnswers[TargetModelPage] = KeptAnswers(
            clock, seconds=_KEPT_S, count_max=_KEPT_MAX
        )

    def is_ready(self, name: ModelName) -> bool:
        return self._dispatcher.is_loaded(name.endpoint, name.target or "")

    async def described(self, name: ModelName) -> dict[str, Any]:
        """The model's description. Raises CallerError (404) where none was ever loaded."""
        told = await self._told_of(name)
        known = sorted(
            (one for one in told if one.get("described")), key=lambda one: not one.get("loaded")
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
        """Counted by its hosts since they started; times are in the metrics."""
        told = await self._models.describe(name.endpoint, name.target or "")
        return {
            "name": str(name),
            "version": "1",
            "inference_count": sum(int(one.get("requests", 0)) for one in told),
            "execution_count": sum(int(one.get("batches", 0)) for one in told),
        }

    async def index(self, endpoint: str, *, ready_only: bool) -> list[dict[str, Any]]:
        """Its target models, in the order of their names; none for another kind of endpoint."""
        if ready_only:
            names = sorted(self._dispatcher.loaded_models(endpoint))
            return [_entry(f"{endpoint}:{name}", "READY", "") for name in names]
        page = await self._pages.get(
            endpoint, lambda: self._models.index(endpoint, limit=INDEX_MAX)
        )
        if page.prefix_error is not None and not page.rows:
            raise page.prefix_error
        return [
            _entry(f"{endpoint}:{row.model}", _STATES[row.state], _reason(row)) for row in page.rows
        ]

    async def load(self, name: ModelName) -> None:
        """Returns when it is ready. Raises whatever refused it."""
        await self._models.load(name.endpoint, name.target or "")
        await self._heard(name, loaded=True)

    async def unload(self, name: ModelName) -> None:
        """Returns when it has answered all and is gone everywhere."""
        await self._models.unload(name.endpoint, name.target or "")
        await self._heard(name, loaded=False)

    async def _told_of(self, name: ModelName) -> list[dict[str, Any]]:
        return await self._told.get(
            name, lambda: self._models.describe(name.endpoint, name.target or "")
        )

    async def _heard(self, name: ModelName, *, loaded: bool) -> None:
        self._told.forget(name)
        self._pages.forget(name.endpoint)
        await heard(self, name, loaded=loaded)


async def heard(targets: Targets, name: ModelName, *, loaded: bool) -> None:
    """Until the gateway knows it too: whoever asks now is told what was just done."""
    for _ in range(_NEWS_LOOKS):
        if targets.is_ready(name) == loaded:
            return
        await asyncio.sleep(_NEWS_LOOK_S)


def _entry(name: str, state: str, reason: str) -> dict[str, Any]:
    return {"name": name, "version": "1", "state": state, "reason": reason}


def _reason(row: Row) -> str:
    if row.error is not None:
        return str(row.error.get("message", ""))
    if row.state == "loaded":
        return ""
    return row.why or ("not called yet" if row.state == "unloaded" else row.state)
