"""`penstock orchestrator` put together: a gateway whose targets are regions.

Its access keys are those of its own state directory, which it rereads while it runs.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.api.access import KeyAuthenticator, check_binding
from penstock.api.oip.http import PREFIX as OIP_PREFIX
from penstock.api.oip.http import body_limit
from penstock.api.openai.request import PREFIXES as OPENAI_PREFIXES
from penstock.api.runtime.door import PREFIX as RUNTIME_PREFIX
from penstock.api.telemetry import Telemetry
from penstock.api.traffic.app import TrafficPage, build_traffic_app
from penstock.api.traffic.doors import (
    INTEREST,
    OipTrafficDoor,
    OpenAiTrafficDoor,
    RuntimeTrafficDoor,
)
from penstock.cleanup import ShieldedExitStack
from penstock.clock import Clock, SystemClock
from penstock.config import ServerConfig
from penstock.control.access.keys import FollowedKeys
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.core.request.host_gate import gate_for
from penstock.gateway.http.asgi import AsgiDoor
from penstock.gateway.http_server.listener import HttpServerListener
from penstock.gateway.http_server.server import LAST_BYTES_S, tls_context
from penstock.gateway.request_id import RequestIds
from penstock.gateway.timers import LoopTimers
from penstock.orchestrator.dispatcher import RegionDispatcher
from penstock.orchestrator.recording import TrafficRecorder
from penstock.orchestrator.region import Region
from penstock.orchestrator.regions_file import Regions
from penstock.orchestrator.shares import MOVE_EVERY_S, TrafficShares
from penstock.orchestrator.spans import TracingRegionDispatcher, TrafficSpans
from penstock.orchestrator.table import TrafficTable

log = logging.getLogger(__name__)

#: s between steps in which shares of regions that came back grow, and waits end.
LOOK_EVERY_S: Final = 0.1
SILENT: Final = "region-silent"


class Orchestrator:
    """One orchestrator. Call `start`, then `stop`, each once."""

    def __init__(self, config: ServerConfig, regions: Regions, clock: Clock | None = None) -> None:
        """Raises CallerError: `credentials-required`, `tls-unusable`, `telemetry-not-installed`."""
        check_binding(config.listen)
        tls_context(config.listen)
        self._config = config
        self._clock = clock or SystemClock()
        self._telemetry = Telemetry(config.telemetry, self._clock, process="orchestrator")
        self._file = regions
        self._table = TrafficTable(regions, random.Random(), self._clock)
        self._regions = {
            access.name: Region(access, self._clock, on_event=self._heard, on_probe=self._probed)
            for access in regions.access
        }
        self._stack = ShieldedExitStack()
        self.reached = asyncio.Event()  #: set once a region has reported

    async def start(self) -> str:
        """Returns the base URL once clients can connect; `reached` may be set later. Raises
        what the listener raises."""
        config, clock = self._config, self._clock
        listen, limits = config.listen, config.limits
        ids = RequestIds()
        recorder = TrafficRecorder(clock, ids, self._regions)
        self._dispatcher = dispatcher = self._make_dispatcher(recorder, ids)
        config.state_dir.mkdir(parents=True, exist_ok=True)
        shares = TrafficShares(self._table, self._regions, dispatcher, clock, config.state_dir)
        shares.load()
        openai = OpenAiTrafficDoor(dispatcher)
        runtime = RuntimeTrafficDoor(
            dispatcher,
            openai,
            account_id=config.control.account_id,
            region=config.control.region,
        )
        page = TrafficPage(recorder, list(self._regions.values()), shares.snapshots)
        app = build_traffic_app(shares, recorder, page, dispatcher.check_ready)
        async with ShieldedExitStack() as stack:
            stack.push_async_callback(self._telemetry.close)
            authenticator = await self._authenticator(stack)
            for region in self._regions.values():
                stack.push_async_callback(region.close)
                self._run(stack, region.run())
            self._run(stack, _each(LOOK_EVERY_S, dispatcher.look_all))
            self._telemetry.push_metrics(page.collector)
            self._run(stack, _each(MOVE_EVERY_S, shares.move))
            self._listener = HttpServerListener(
                limits=limits,
                clock=clock,
                ids=ids,
                doors=(
                    (RUNTIME_PREFIX, runtime),
                    *((prefix, openai) for prefix in OPENAI_PREFIXES),
                    (OIP_PREFIX, OipTrafficDoor(dispatcher)),
                ),
                fallback=AsgiDoor(app),
                authenticator=authenticator,
                interest=(*INTEREST, *dispatcher.interest),
                body_limits=((OIP_PREFIX, body_limit(limits)),),
                gate=gate_for(
                    listen.host,
                    hosts=listen.hosts,
                    origins=listen.origins,
                    machine_names=(socket.gethostname(),),
                    asks=authenticator is not None,
                ),
            )
            port = await self._listener.start(listen.host, listen.port, tls=tls_context(listen))
            stack.push_async_callback(self._stop_listening)
            self._stack = stack.pop_all()
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        scheme = "https" if listen.tls_cert is not None else "http"
        return f"{scheme}://{host}:{port}"

    async def stop(self) -> None:
        """Refuses new requests, answers those in flight. Idempotent."""
        await self._stack.aclose()

    async def _stop_listening(self) -> None:
        self._listener.send_away()
        await self._dispatcher.drain(self._config.limits.drain_s_max)
        self._dispatcher.close()
        await self._listener.stop(LAST_BYTES_S)

    def _make_dispatcher(self, recorder: TrafficRecorder, ids: RequestIds) -> RegionDispatcher:
        """A dispatcher with tracing, if traces are exported; else a plain one."""
        clock, telemetry = self._clock, self._telemetry
        parts: dict[str, Any] = {
            "table": self._table,
            "regions": self._regions,
            "recorder": recorder,
            "clock": clock,
            "timers": LoopTimers(asyncio.get_running_loop(), clock),
            "limits": self._config.limits,
            "ids": ids,
        }
        if telemetry.export is None:
            return RegionDispatcher(**parts)
        return TracingRegionDispatcher(
            TrafficSpans(telemetry.export, clock),
            share=telemetry.trace_share,
            trace_rng=random.Random(),
            **parts,
        )

    async def _authenticator(self, stack: ShieldedExitStack) -> KeyAuthenticator | None:
        if not self._config.listen.auth:
            return None
        state_dir, url = self._config.state_dir, self._config.control.database
        database = StoreThread(lambda: Store(state_dir, url))
        stack.push_async_callback(database.close)
        await database.open()
        keys = FollowedKeys(database, state_dir)
        stack.push_async_callback(keys.close)
        ring = await keys.open()
        if not len(ring):
            log.warning("nobody can come in yet: make a key with 'penstock keys create'")
        return KeyAuthenticator(ring, self._clock, served=self._table.served)

    def _run(self, stack: ShieldedExitStack, work: Any) -> None:
        """Runs `work` until the orchestrator stops."""
        task = asyncio.get_running_loop().create_task(work)

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        stack.push_async_callback(end)

    def _heard(self, region: Region, event: Mapping[str, Any], first: bool) -> None:
        self._table.heard(region.name, event, way_s=region.way_s, whole=first)
        self.reached.set()
        self._table.forget_unserved()
        self._dispatcher.look_all()

    def _probed(self, region: Region, ok: bool) -> None:
        self._table.probed(region.name, ok=ok)
        if region.silent:
            self._dispatcher.leave(region.name, SILENT)
        self._dispatcher.look_all()


async def _each(every_s: float, work: Callable[[], None]) -> None:
    """Repeats `work` until cancelled. A failure is logged and does not stop the repetition."""
    while True:
        await asyncio.sleep(every_s)
        try:
            work()
        except Exception:
            log.exception("work of every %g s failed", every_s)
