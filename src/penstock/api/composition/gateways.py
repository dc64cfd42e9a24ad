"""The control side's end of all gateway processes of a server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from penstock.api.composition import front
from penstock.api.composition.control_side import ControlSide
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.cleanup import ShieldedExitStack
from penstock.clock import Clock
from penstock.config import ServerConfig
from penstock.control.gateways.group import GatewayGroup, WaitingSums
from penstock.errors import CallerError
from penstock.gateway.channel.messages import Json
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.http.shared_port import SharedPort
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.item_failures import apart

log = logging.getLogger(__name__)

_COMMAND: Final = (sys.executable, "-m", "penstock.api.composition.gateway")
#: s that the latest counts may take to arrive: gateways report each second.
_METRICS_LAG_S: Final = 1.5
_SHARE_EVERY_S: Final = 1.0


class Gateways:
    """Call `attach`, then `start`; the stack ends them."""

    def __init__(
        self, config: ServerConfig, count: int, clock: Clock, port: SharedPort | None = None
    ) -> None:
        """`port`: the HTTP port, where another process holds it."""
        self._config = config
        self._count = count
        self._kept_port = port
        self._clock = clock
        self.metrics_lag_s = _METRICS_LAG_S
        self.waiting = WaitingSums(self._capacity_wanted)
        self._keys_told: Json = {}
        self._ready_told: list[Any] = []

    def attach(self, dispatcher: Dispatcher, registry: MetricRegistry) -> None:
        """`dispatcher`: the control side's own, which gets the same routes as the gateways."""
        self._dispatcher = dispatcher
        self._registry = registry
        self.group = GatewayGroup(
            dispatcher,
            self._count,
            command=_COMMAND,
            settings=self._settings,
            events=self,
            admit=self._admit,
            apart=apart,
            inherited=self._kept_port.sockets if self._kept_port is not None else (),
        )

    async def start(
        self, stack: ShieldedExitStack, control: ControlSide, inner: str, own_key: str
    ) -> tuple[int, int]:
        """Ports of HTTP and gRPC, once all gateways serve. Raises the error of one that can't
        start."""
        self._control, self._inner, self._own_key = control, inner, own_key
        listen = self._config.listen
        self._http = self._kept_port or SharedPort(listen.host, listen.port)
        if self._kept_port is None:
            stack.callback(self._http.close)
        self._grpc = SharedPort(listen.host, listen.grpc_port)
        stack.callback(self._grpc.close)
        self._share_keys()
        self._share_ready()
        control.models.settings.on_level = self._share_level
        sharing = asyncio.create_task(self._keep_sharing(), name="gateways-told")
        stack.callback(sharing.cancel)
        stack.push_async_callback(self.group.close, self._config.limits.drain_s_max)
        await self.group.start()
        return self._http.port, self._grpc.port

    async def explain(self, request_id: str) -> dict[str, Any] | None:
        """The trace of a request of any gateway; None if none of them knows it."""
        answers = await self.group.ask_each("explain", {"request_id": request_id})
        for name, answer in answers.items():
            if answer["story"] is not None:
                return {**answer["story"], "gateway": name}
        return None

    async def metrics_page(self, name: str, accept: str) -> tuple[bytes, str] | None:
        """`/metrics` of one gateway; None if it does not exist or does not answer."""
        answer = await self.group.ask_one(name, "metrics-page", {"accept": accept})
        return None if answer is None else (answer["body"].encode(), answer["content_type"])

    # GroupEvents

    def on_told(self, name: str, op: str, fields: Json, data: bytes) -> None:
        if op == "metrics":
            with contextlib.suppress(CallerError):
                self._registry.add_delta(name, data)
        elif op == "waiting":
            self.waiting.told(
                name, fields["endpoint"], fields["variant"], fields["component"], fields["count"]
            )
        elif op == "session":
            self._session(name, **fields)
        elif op == "sessions-used":
            for endpoint, sessions in fields["used"].items():
                for session in sessions:
                    self._dispatcher.sessions.find(endpoint, session)

    async def on_asked(self, name: str, op: str, fields: Json) -> Json:
        if op == "find-session":
            found = self._dispatcher.sessions.find(fields["endpoint"], fields["session"])
            return {"found": found}
        if op == front.OP:
            return await front.answer(self._control.models, self._control.targets, fields)
        raise CallerError("unknown-operation", f"there is no {op!r}")

    def _session(self, name: str, *, endpoint: str, session: str, copy: int | None) -> None:
        """A session began, moved or ended at a gateway. The control side's dispatcher knows all of
        them."""
        sessions = self._dispatcher.sessions
        moved = copy is None
        if copy is None:
            sessions.forget(endpoint, session)
        else:
            before = sessions.find(endpoint, session)
            moved = isinstance(before, int) and before != copy
            sessions.adopt(endpoint, session, copy)
        if moved:
            fields = {"endpoint": endpoint, "session": session}
            self.group.tell_others(name, "forget-session", fields)

    def on_gone(self, name: str) -> None:
        self._registry.forget(name)
        self.waiting.gone(name)

    # Messages to gateways

    def _settings(self, name: str) -> Mapping[str, Any]:
        listen, control = self._config.listen, self._config.control
        places = ArtifactSettings.from_config(self._config)
        ports = replace(listen, port=self._http.port, grpc_port=self._grpc.port)
        return {
            "name": name,
            "listen": asdict(ports)
            | {"tls_cert": _text(listen.tls_cert), "tls_key": _text(listen.tls_key)},
            "held": [one.fileno() for one in self._http.sockets],
            "limits": asdict(self._config.limits),
            "account_id": control.account_id,
            "region": control.region,
            "log_level": self._config.log_level,
            "state_dir": str(self._config.state_dir),
            "places": {
                "s3_endpoint": places.s3_endpoint,
                "s3_local": places.s3_local,
                "closed": places.closed,
            },
            "telemetry": asdict(self._config.telemetry),
            "inner": self._inner,
            "own_key": self._own_key,
        }

    async def _admit(self, pids: Any) -> None:
        await self._control.plane.admit_gateways(pids)

    def _capacity_wanted(self, endpoint: str, variant: str, component: str, count: int) -> None:
        self._control.capacity_wanted(endpoint, variant, component, count)

    def _share_level(self, level: int) -> None:
        self.group.share("log-level", {"level": level})

    async def _keep_sharing(self) -> None:
        while True:
            await asyncio.sleep(_SHARE_EVERY_S)
            with apart("gateways", "keys"):
                self._share_keys()
            with apart("gateways", "when copies may be ready"):
                self._share_ready()

    def _share_keys(self) -> None:
        """Sends the keys if they have changed."""
        keys = self._control.plane.key_ring.to_json()
        if keys != self._keys_told:
            self._keys_told = keys
            self.group.share("keys", {"keys": keys})

    def _share_ready(self) -> None:
        """Sends when copies may be ready, for endpoints without one."""
        ready: list[Any] = []
        for routes in self._dispatcher.published():
            for pool in routes.variants:
                if not pool.copies:
                    with apart("gateways", routes.endpoint):
                        in_s = self._control.ready_in_s(routes.endpoint, pool.name, pool.component)
                        if in_s is not None:
                            ready.append([routes.endpoint, pool.name, pool.component, in_s])
        if ready or self._ready_told:
            self._ready_told = ready
            self.group.share("ready-in", {"pools": ready})


def _text(path: Path | None) -> str | None:
    return str(path.resolve()) if path is not None else None
