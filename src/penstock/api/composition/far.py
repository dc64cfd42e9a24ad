"""What a gateway process asks its control side for, in the words of its doors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.api.model_names import ModelName, parse
from penstock.api.oip.models import OipModels
from penstock.api.oip.targets import Targets, heard
from penstock.errors import CallerError
from penstock.gateway.channel.messages import Json
from penstock.gateway.dispatch.dispatcher import Dispatcher

#: (op, fields) -> the answer; raises PenstockError.
Ask = Callable[[str, Json], Awaitable[Json]]

#: The one operation of this page on the channel.
OP: Final = "oip"


class FarTargets:
    """Target models, as the control side's `OipTargets` tells of them."""

    def __init__(self, dispatcher: Dispatcher, ask: Ask) -> None:
        self._dispatcher = dispatcher
        self._ask = ask

    def is_ready(self, name: ModelName) -> bool:
        return self._dispatcher.is_loaded(name.endpoint, name.target or "")

    async def described(self, name: ModelName) -> dict[str, Any]:
        return dict(await self._answer("described", name=str(name)))

    async def statistics(self, name: ModelName) -> dict[str, Any]:
        return dict(await self._answer("target-statistics", name=str(name)))

    async def index(self, endpoint: str, *, ready_only: bool) -> list[dict[str, Any]]:
        return list(await self._answer("index", endpoint=endpoint, ready_only=ready_only))

    async def load(self, name: ModelName) -> None:
        await self._answer("load", name=str(name))
        await heard(self, name, loaded=True)

    async def unload(self, name: ModelName) -> None:
        await self._answer("unload", name=str(name))
        await heard(self, name, loaded=False)

    async def _answer(self, asked: str, **fields: Any) -> Any:
        return (await self._ask(OP, {"asked": asked} | fields))["answer"]


class FarModels(OipModels):
    """Models as this gateway's routes tell of them; what was counted of all gateways is asked."""

    def __init__(self, dispatcher: Dispatcher, ask: Ask) -> None:
        super().__init__(dispatcher, None, FarTargets(dispatcher, ask))
        self._ask = ask

    async def statistics(self, name: ModelName | None, version: str) -> list[dict[str, Any]]:
        asked = {"asked": "statistics", "name": str(name) if name else None, "version": version}
        return list((await self._ask(OP, asked))["answer"])


async def answer(models: OipModels, targets: Targets, fields: Json) -> Json:
    """The control side's answer to one of these questions. Raises PenstockError."""
    asked = fields["asked"]
    name = parse(fields["name"]) if fields.get("name") else None
    told: Any = None
    if asked == "statistics":
        told = await models.statistics(name, fields["version"])
    elif asked == "index":
        told = await targets.index(fields["endpoint"], ready_only=fields["ready_only"])
    elif name is None:
        raise CallerError("unknown-operation", f"there is no {asked!r}")
    elif asked == "described":
        told = await targets.described(name)
    elif asked == "target-statistics":
        told = await targets.statistics(name)
    elif asked == "load":
        await targets.load(name)
    elif asked == "unload":
        await targets.unload(name)
    else:
        raise CallerError("unknown-operation", f"there is no {asked!r}")
    return {"answer": told}
