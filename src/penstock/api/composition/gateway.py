"""A gateway process: `python -m penstock.api.composition.gateway DESCRIPTOR`, started by a server.

It serves the doors' paths and routes by itself, over its own connections to the instances. Routes
arrive over the channel at DESCRIPTOR, and a path without a door is forwarded to the control side's
socket. When the channel closes, the server has ended, and its instances too: requests in flight get
an error, and the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from penstock import scheduling, signals, stacks
from penstock.api.access import KeyAuthenticator
from penstock.api.app import build_refusal
from penstock.api.aws import AwsFrontDoor
from penstock.api.composition.front import OP, FarModels, Front, freeze_memory
from penstock.api.telemetry import Telemetry
from penstock.artifacts.sources.source import ArtifactSettings
from penstock.cleanup import ShieldedExitStack
from penstock.clock import SystemClock
from penstock.config import LimitConfig, ListenConfig, TelemetryConfig
from penstock.control.access.key_ring import KeyRing
from penstock.core.request.body_budget import BodyBudget
from penstock.core.routing.sessions import LOST
from penstock.errors import CallerError, PenstockError
from penstock.fleet.identity import contexts
from penstock.gateway.channel.channel import Channel, open_channel
from penstock.gateway.channel.messages import Json, routes_from
from penstock.gateway.dispatch import refusals
from penstock.gateway.dispatch.dispatcher import Dispatcher
from penstock.gateway.dispatch.link import FrameLink
from penstock.gateway.dispatch.shared_sessions import SessionBook
from penstock.gateway.http.listener_state import raise_limit
from penstock.gateway.http.proxy import ProxyApp
from penstock.gateway.timers import LoopTimers
from penstock.jobs.capture.driver import CaptureDriver
from penstock.metrics.counts.registry import MetricRegistry
from penstock.metrics.item_failures import apart
from penstock.metrics.page.prometheus import PrometheusPage
from penstock.runtimes.confinement.parent_death import wake_at_parents_death

log = logging.getLogger(__name__)

_METRICS_EVERY_S: Final = 1.0
_ANSWER_S_MAX: Final = 2.0
_LOAD_S_MAX: Final = 3600.0
#: s to write the last errors once the server is gone.
_ORPHAN_DRAIN_S: Final = 0.5


class GatewayProcess:
    """Reads the channel; `ended` is set once there is nothing left to do."""

    def __init__(self) -> None:
        self.channel: Channel | None = None
        self.ended = asyncio.Event()
        self._clock = SystemClock()
        self._registry = MetricRegistry()
        self._ring = KeyRing()
        self._telemetry: Telemetry | None = None
        self._dispatcher: Dispatcher | None = None
        self._capture: CaptureDriver | None = None
        self._stack = ShieldedExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._sessions = SessionBook(self._tell_session)
        #: endpoint, variant, component -> when a copy can be ready at the earliest, monotonic s
        self._ready_at: dict[tuple[str, ...], float] = {}
        self._stopping = False

    # Hearer

    def told(self, op: str, fields: Json, data: bytes) -> None:
        if op == "begin":
            self._begin(fields)
            return
        dispatcher = self._dispatcher
        assert dispatcher is not None, "told before it began"
        if op == "publish":
            self._publish(dispatcher, fields["routes"])
        elif op == "withdraw":
            dispatcher.withdraw(fields["endpoint"])
        elif op == "connect":
            self._connect(fields["instance_id"], fields["address"])
        elif op == "disconnect":
            self._spawn(dispatcher.disconnect(fields["instance_id"]))
        elif op == "keys":
            self._ring.take_json(fields["keys"])
        elif op == "log-level":
            logging.getLogger().setLevel(fields["level"])
        elif op == "ready-in":
            now = self._clock.monotonic()
            self._ready_at = {tuple(pool): now + in_s for *pool, in_s in fields["pools"]}
        elif op == "forget-session":
            dispatcher.sessions.forget(fields["endpoint"], fields["session"])

    def _publish(self, dispatcher: Dispatcher, routes: Json) -> None:
        """Invalid routes affect their own endpoint only. If they ended the gateway, it would end
        again after each restart, with all endpoints."""
        with apart("gateways", str(routes.get("endpoint"))):
            dispatcher.publish(routes_from(routes))

    async def asked(self, op: str, fields: Json) -> Json:
        dispatcher = self._dispatcher
        assert dispatcher is not None, "asked before it began"
        if op == "connect":
            await dispatcher.connect(fields["instance_id"], fields["address"])
            return {}
        if op == "disconnect":
            await dispatcher.disconnect(fields["instance_id"])
            return {}
        if op == "drained":
            drained = await dispatcher.drained(fields["copies"], fields["timeout_s"])
            return {"drained": drained}
        if op == "explain":
            return {"story": dispatcher.explain(fields["request_id"])}
        if op == "snapshot":
            return {"snapshot": dispatcher.snapshot()}
        if op == "capture":
            return {"capture": self._capture.snapshot() if self._capture is not None else {}}
        if op == "metrics-page":
            body, content_type = self._page.render(fields["accept"])
            return {"body": body.decode(), "content_type": content_type}
        if op == "stop":
            await self.stop()
            return {}
        raise CallerError("unknown-operation", f"there is no {op!r}")

    def closed(self) -> None:
        self.channel = None
        if not self._stopping:
            log.warning("the server has ended, and this gateway ends with it")
        self._spawn(self._end())

    # Life

    async def stop(self) -> None:
        """Finishes the requests in flight. Idempotent."""
        if self._stopping:
            return
        self._stopping = True
        await self._stack.aclose()
        if self._capture is not None:
            await self._capture.close()
        self._tell_metrics()
        if self._telemetry is not None:
            await self._telemetry.close()
        self.ended.set()

    async def _end(self) -> None:
        """The server is gone, so no instance can answer the requests in flight."""
        if self._dispatcher is not None and not self._stopping:
            await self._dispatcher.drain(_ORPHAN_DRAIN_S)
            await self._dispatcher.close()
        await self.stop()
        self.ended.set()

    def _begin(self, fields: Json) -> None:
        logging.getLogger().setLevel(fields["log_level"].upper())
        name = self._registry.process = fields["name"]
        self._registry.loop_lag.start()
        limits = LimitConfig(**fields["limits"])
        self._page = PrometheusPage(self._registry, gateway=name)
        telemetry = TelemetryConfig(**fields["telemetry"])
        self._telemetry = Telemetry(telemetry, self._clock, process=name)
        settings = ArtifactSettings(**fields["places"])
        self._capture = CaptureDriver.of_process(limits, settings, self._clock)
        self._capture.start()
        loop = asyncio.get_running_loop()
        self._dispatcher = self._telemetry.dispatcher(
            clock=self._clock,
            timers=LoopTimers(loop, self._clock),
            rng=random.Random(),
            limits=limits,
            recorders=self._registry,
            on_waiting=self._tell_waiting,
            ready_in_s=self._ready_in_s,
            shared=True,
            sessions_of=self._sessions.of,
            captures=self._capture.captures(),
            link_factory=partial(FrameLink, tls=contexts.of_server_in(Path(fields["state_dir"]))),
        )
        self._dispatcher.sequences.find = self._find_session
        for routes in fields["routes"]:
            self._publish(self._dispatcher, routes)
        for op, shared in fields["shared"].items():
            self.told(op, shared, b"")
        for instance_id, address in fields["instances"].items():
            self._connect(instance_id, address)
        self._spawn(self._serve(fields, limits))

    async def _serve(self, fields: Json, limits: LimitConfig) -> None:
        while self._connecting:  # an instance that can't be reached now is retried by its link
            await asyncio.wait(self._connecting)
        try:
            async with ShieldedExitStack() as stack:
                await self._listen(stack, fields, limits)
                self._stack = stack.pop_all()
        except PenstockError as error:
            if self.channel is not None:
                self.channel.tell("failed", {"error": error.to_dict()})
            return
        freeze_memory()
        self._spawn(self._keep_telling())
        if self.channel is not None:
            self.channel.tell("up", {})

    async def _listen(self, stack: ShieldedExitStack, fields: Json, limits: LimitConfig) -> None:
        dispatcher = self._dispatcher
        assert dispatcher is not None
        listen = _listen_config(fields["listen"])
        authenticator = (
            KeyAuthenticator(
                self._ring, self._clock, own_key=fields["own_key"], served=dispatcher.served
            )
            if listen.auth
            else None
        )
        bodies = BodyBudget(limits.bodies_bytes_max)
        front = Front(
            listen=listen,
            limits=limits,
            account_id=fields["account_id"],
            region=fields["region"],
            dispatcher=dispatcher,
            models=FarModels(
                dispatcher,
                self._ask,
                shares_memory=listen.client_shared_memory,
                trace_share=TelemetryConfig(**fields["telemetry"]).share_recorded,
            ),
            authenticator=authenticator,
            app=ProxyApp(fields["inner"]),
            refusal=build_refusal(AwsFrontDoor((), region_default=fields["region"])),
            asynchronous=None,
            find_session=self._find_session,
            held=[socket.socket(fileno=number) for number in fields["held"]],
        )
        await front.open_grpc(stack, bodies, shared=True)
        server = front.http_server(bodies, shared=True)
        await server.start()
        stack.push_async_callback(server.stop)

    def _connect(self, instance_id: str, address: str) -> None:
        task = self._spawn(self._connected(instance_id, address))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connected(self, instance_id: str, address: str) -> None:
        assert self._dispatcher is not None
        try:
            await self._dispatcher.connect(instance_id, address)
        except PenstockError as error:
            log.warning("%s", error.message)

    def _tell_waiting(self, endpoint: str, variant: str, component: str, count: int) -> None:
        if self.channel is not None:
            told = {"endpoint": endpoint, "variant": variant, "component": component}
            self.channel.tell("waiting", told | {"count": count})

    def _tell_session(self, endpoint: str, session: str, copy: int | None) -> None:
        if self.channel is not None:
            fields = {"endpoint": endpoint, "session": session, "copy": copy}
            self.channel.tell("session", fields)

    async def _find_session(self, endpoint: str, session: str) -> None:
        answer = await self._ask("find-session", {"endpoint": endpoint, "session": session})
        found = answer["found"]
        if isinstance(found, int):
            assert self._dispatcher is not None
            self._dispatcher.sessions.adopt(endpoint, session, found)
        elif found == LOST.reason:
            raise refusals.no_route(endpoint, None, LOST, session=session)

    async def _ask(self, op: str, fields: Json) -> Json:
        if self.channel is None:
            raise refusals.stopping()
        # Loading a target model takes as long as its host allows; the host bounds that.
        timeout_s = _LOAD_S_MAX if op == OP else _ANSWER_S_MAX
        return await self.channel.ask(op, fields, timeout_s=timeout_s)

    def _ready_in_s(self, endpoint: str, variant: str, component: str) -> float | None:
        at = self._ready_at.get((endpoint, variant, component))
        return max(0.0, at - self._clock.monotonic()) if at is not None else None

    async def _keep_telling(self) -> None:
        while True:
            await asyncio.sleep(_METRICS_EVERY_S)
            with apart("gateways", "metrics told"):
                self._tell_metrics()

    def _tell_metrics(self) -> None:
        if self.channel is None or self._dispatcher is None:
            return
        now = self._clock.wall()
        pools = [
            (routes.endpoint, pool.name, pool.component)
            for routes in self._dispatcher.published()
            for pool in routes.hosted
        ]
        self._registry.keep({pool[:2] for pool in pools}, set(pools), now)
        self.channel.tell("metrics", {}, self._registry.take_delta(now))
        used = self._sessions.take_used()
        if used:
            self.channel.tell("sessions-used", {"used": used})

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("work of this gateway failed", exc_info=task.exception())


def _listen_config(fields: Json) -> ListenConfig:
    paths = {key: Path(fields[key]) for key in ("tls_cert", "tls_key") if fields[key]}
    lists = {key: tuple(fields[key]) for key in ("hosts", "origins", "forward_headers")}
    return ListenConfig(**(fields | paths | lists))


async def _serve(descriptor: int) -> None:
    process = GatewayProcess()
    loop = asyncio.get_running_loop()
    signals.handle(loop, lambda: loop.create_task(process.stop()))
    process.channel = await open_channel(socket.socket(fileno=descriptor), process)
    await process.ended.wait()
    if process.channel is not None:
        process.channel.close()
        await asyncio.sleep(0)


def main() -> None:
    signals.unblock()
    stacks.write_when_asked()
    wake_at_parents_death()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the server
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    raise_limit()
    scheduling.wait_for_messages()
    uvloop.run(_serve(int(sys.argv[1])))


if __name__ == "__main__":
    main()
