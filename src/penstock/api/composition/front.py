"""The doors and ports of one process that serves requests.

It also has what the doors of a gateway process request from the control side.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock.api.access import KeyAuthenticator
from penstock.api.model_names import ModelName
from penstock.api.oip.grpc import OipGrpc
from penstock.api.oip.http import INTEREST as OIP_INTEREST
from penstock.api.oip.http import PREFIX as OIP_PREFIX
from penstock.api.oip.http import OipDoor, body_limit
from penstock.api.oip.models import OipModels
from penstock.api.oip.server_settings import ServerSettings
from penstock.api.oip.targets import Targets, heard
from penstock.api.openai.door import INTEREST as OPENAI_INTEREST
from penstock.api.openai.door import PREFIXES as OPENAI_PREFIXES
from penstock.api.openai.door import OpenAiDoor
from penstock.api.runtime.asynchronous import AsyncDoor
from penstock.api.runtime.door import PREFIX as RUNTIME_PREFIX
from penstock.api.runtime.door import RuntimeDoor
from penstock.api.runtime.request import INTEREST as RUNTIME_INTEREST
from penstock.api.runtime.request import FindSession
from penstock.cleanup import ShieldedExitStack
from penstock.config import LimitConfig, ListenConfig
from penstock.core.request.body_budget import BodyBudget
from penstock.core.request.forwarded_headers import HeaderForwarding
from penstock.core.request.shared_regions import SharedRegion
from penstock.errors import CallerError, PenstockError
from penstock.gateway.channel.messages import Json
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.http.asgi import AsgiApp
from penstock.gateway.http.call import Call
from penstock.gateway.http_server.server import GatewayServer
from penstock.gateway.traffic_loads import TrafficLoads

#: s. The requests are done when the gRPC server stops; only their last bytes are left to send.
GRPC_STOP_S: Final = 1.0
#: A request makes no cycles, so young objects are collected less often than by CPython's default.
_GC_THRESHOLDS: Final = (20_000, 50, 50)


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where clients connect, with the actual ports."""

    http: str  #: base URL
    grpc: str  #: host:port


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What the doors of one process need."""

    listen: ListenConfig
    limits: LimitConfig
    account_id: str
    region: str
    dispatcher: Dispatcher
    models: OipModels
    authenticator: KeyAuthenticator | None
    app: AsgiApp  #: serves every path without a door
    refusal: Callable[[Call, PenstockError], bool]
    asynchronous: AsyncDoor | None  #: None: the app serves its paths, too
    find_session: FindSession | None = None  #: asks other gateways; None: there are none
    held: Sequence[socket.socket] = ()  #: sockets that listen on the HTTP port already

    async def open_grpc(
        self, stack: ShieldedExitStack, bodies: BodyBudget, *, shared: bool = False
    ) -> int:
        """Opens gRPC and returns the port. `shared`: by several processes; `stack` stops the
        server."""
        listen, authenticator = self.listen, self.authenticator
        grpc = OipGrpc(
            self.dispatcher,
            self.models,
            self.limits,
            grant_of=authenticator.bearer_grant if authenticator else None,
            budget=bodies,
            forwarding=HeaderForwarding(listen.forward_headers),
        )
        stack.push_async_callback(grpc.stop, GRPC_STOP_S)
        return await grpc.start(
            listen.host,
            listen.grpc_port,
            tls_cert=listen.tls_cert,
            tls_key=listen.tls_key,
            reuse_port=shared,
        )

    def http_server(
        self, bodies: BodyBudget, *, shared: bool = False, inner: str | None = None
    ) -> GatewayServer:
        """Listens on the port, or on a Unix socket that gateway processes forward to."""
        dispatcher = self.dispatcher
        openai = OpenAiDoor(dispatcher, self.listen.origins)
        forwarding = HeaderForwarding(self.listen.forward_headers)
        oip = OipDoor(dispatcher, self.models, self.limits, bodies, forwarding)
        runtime = RuntimeDoor(
            dispatcher,
            account_id=self.account_id,
            region=self.region,
            openai=openai,
            asynchronous=self.asynchronous,
            hands_on=self.asynchronous is None,
            find_session=self.find_session,
            room=TrafficLoads(dispatcher, self.limits).room,
        )
        return GatewayServer(
            self.listen,
            self.limits,
            dispatcher,
            (
                (RUNTIME_PREFIX, runtime),
                *((prefix, openai) for prefix in OPENAI_PREFIXES),
                (OIP_PREFIX, oip),
            ),
            self.app,
            self.authenticator,
            interest=(
                *RUNTIME_INTEREST,
                *OIP_INTEREST,
                *OPENAI_INTEREST,
                *dispatcher.interest,
            ),
            refusal=self.refusal,
            reuse_port=shared,
            bodies=bodies,
            body_limits=((OIP_PREFIX, body_limit(self.limits)),),
            inner=inner,
            held=self.held,
        )


def addresses_of(listen: ListenConfig, http_port: int, grpc_port: int) -> Addresses:
    grpc = listen.url(listen.host, grpc_port).partition("://")[2]
    return Addresses(http=listen.url(listen.host, http_port), grpc=grpc)


def freeze_memory() -> None:
    """Excludes all long-lived objects from garbage collection, once a process serves."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


#: (op, fields) -> the reply of the control side; raises PenstockError.
Ask = Callable[[str, Json], Awaitable[Json]]

#: The one operation of this module on the channel.
OP: Final = "oip"
_REGIONS: Final = "regions"
_LOG: Final = "log-settings"


class FarTargets:
    """Target models, over the channel to the control side's `OipTargets`."""

    def __init__(self, dispatcher: Dispatcher, ask: Ask) -> None:
        self._dispatcher = dispatcher
        self._ask = ask

    def is_ready(self, name: ModelName) -> bool:
        return self._dispatcher.is_loaded(name.endpoint, name.target or "")

    async def described(self, name: ModelName) -> dict[str, Any]:
        return dict(await self._answer("described", name=list(name)))

    async def statistics(self, name: ModelName) -> dict[str, Any]:
        return dict(await self._answer("target-statistics", name=list(name)))

    async def index(self, endpoint: str, *, ready_only: bool) -> list[dict[str, Any]]:
        return list(await self._answer("index", endpoint=endpoint, ready_only=ready_only))

    async def load(self, name: ModelName) -> None:
        await self._answer("load", name=list(name))
        await heard(self, name, loaded=True)

    async def unload(self, name: ModelName, *, dependents: bool = False) -> None:
        await self._answer("unload", name=list(name), dependents=dependents)
        await heard(self, name, loaded=False)

    async def _answer(self, asked: str, **fields: Any) -> Any:
        return (await self._ask(OP, {"asked": asked} | fields))["answer"]


class FarRegions:
    """Regions of shared memory, over the channel to the control side's table."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        await self._answer("register", name=name, key=key, offset=offset, byte_size=byte_size)

    async def unregister(self, name: str) -> None:
        await self._answer("unregister", name=name)

    async def listed(self, name: str) -> list[SharedRegion]:
        return [SharedRegion(**each) for each in await self._answer("listed", name=name)]

    async def find(self, names: Iterable[str]) -> dict[str, SharedRegion]:
        found = await self._answer("find", names=list(names))
        return {each["name"]: SharedRegion(**each) for each in found}

    async def _answer(self, action: str, **fields: Any) -> Any:
        asked = {"asked": _REGIONS, "action": action, "fields": fields}
        return (await self._ask(OP, asked))["answer"]


async def _answer_regions(models: OipModels, action: str, fields: Json) -> Any:
    regions = models.shared.regions_for("")
    if action == "find":
        return [asdict(one) for one in (await regions.find(fields["names"])).values()]
    if action == "listed":
        return [asdict(one) for one in await regions.listed(fields["name"])]
    if action == "register":
        await regions.register(**fields)
    elif action == "unregister":
        await regions.unregister(**fields)
    else:
        raise CallerError("unknown-operation", f"there is no {action!r}")
    return None


class FarSettings(ServerSettings):
    """The log's level is the control side's, which tells all gateways."""

    def __init__(self, ask: Ask, trace_share: float) -> None:
        super().__init__(trace_share)
        self._ask = ask

    async def log(self, given: Mapping[str, Any]) -> dict[str, Any]:
        answer = await self._ask(OP, {"asked": _LOG, "given": dict(given)})
        return dict(answer["answer"])


class FarModels(OipModels):
    """Models by this gateway's routes; counts of all gateways come from the control side."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        ask: Ask,
        *,
        shares_memory: bool = False,
        trace_share: float = 0.0,
    ) -> None:
        regions = FarRegions(ask) if shares_memory else None
        settings = FarSettings(ask, trace_share)
        super().__init__(dispatcher, None, FarTargets(dispatcher, ask), regions, settings)
        self._ask = ask

    async def statistics(self, name: ModelName | None, version: str) -> list[dict[str, Any]]:
        asked = {"asked": "statistics", "name": list(name) if name else None, "version": version}
        return list((await self._ask(OP, asked))["answer"])


#: Requests about one target model -> methods of `Targets`.
_OF_TARGETS: Final = {
    "described": "described",
    "target-statistics": "statistics",
    "load": "load",
    "unload": "unload",
}


async def answer(models: OipModels, targets: Targets, fields: Json) -> Json:
    """The control side's reply to such a request. Raises PenstockError."""
    asked = fields["asked"]
    name = ModelName(*fields["name"]) if fields.get("name") else None
    told: Any = None
    if asked == _REGIONS:
        told = await _answer_regions(models, fields["action"], fields["fields"])
    elif asked == _LOG:
        told = await models.settings.log(fields["given"])
    elif asked == "statistics":
        told = await models.statistics(name, fields["version"])
    elif asked == "index":
        told = await targets.index(fields["endpoint"], ready_only=fields["ready_only"])
    elif name is not None and asked in _OF_TARGETS:
        more = {"dependents": True} if fields.get("dependents") else {}
        told = await getattr(targets, _OF_TARGETS[asked])(name, **more)
    else:
        raise CallerError("unknown-operation", f"there is no {asked!r}")
    return {"answer": told}
