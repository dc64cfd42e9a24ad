"""One of several servers on one PostgreSQL database: it follows or leads, by turns.

A leader is a whole platform; a follower is a `Standby` on the same port. When a server's term ends,
it ends its platform, instances included, and the new leader starts its own. This loses only warm
copies, because all records are in the database. Nothing is done twice, because the database refuses
what a former leader still writes. The port stays open during a change: clients that connect then
wait and are not refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from penstock.api.platform import Addresses, Platform
from penstock.api.standby import Standby
from penstock.cleanup import ShieldedExitStack, shielded
from penstock.clock import SystemClock
from penstock.config import ServerConfig
from penstock.control.leader.leadership import Leadership
from penstock.control.state_dir import StateDirLock
from penstock.control.store.store import Store
from penstock.errors import NotNowError
from penstock.gateway.http.shared_port import SharedPort

_log = logging.getLogger(__name__)

#: s that a leader waits after it gave the lead back because its platform could not start.
_AGAIN_S: Final = 2.0
#: s between two reads of the leader's record.
_LOOK_S: Final = 0.1


class Replica:
    """`run` serves until it is stopped."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        on_leading: Callable[[Platform, Addresses], Awaitable[None]],
        on_following: Callable[[str, str], None],
    ) -> None:
        """`on_leading` runs beside the platform and is cancelled with it; `on_following` gets the
        own address and the leader's."""
        self._config = config
        self._on_leading = on_leading
        self._on_following = on_following
        self._clock = SystemClock()
        self._leadership = Leadership(
            config.control.database, name=f"{socket.gethostname()}:{os.getpid()}"
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Raises what the parts raise at the first start: `state-dir-in-use`, `port-in-use`,
        `database-unreachable`, ...; later, an error that may pass leads to another try."""
        config = self._config
        async with ShieldedExitStack() as stack:
            stack.callback(StateDirLock(config.state_dir).release)
            port = SharedPort(config.listen.host, config.listen.port)
            stack.callback(port.close)
            port.listen()
            stack.push_async_callback(self._leadership.close)
            self._config = config = replace(config, listen=replace(config.listen, port=port.port))
            # The tables must exist before any reader looks for the leader.
            store = await asyncio.to_thread(Store, config.state_dir, config.control.database)
            await asyncio.to_thread(store.close)
            self._leadership.address = _address(config)
            await self._leadership.start()
            await self._check_address(stop)
            while not stop.is_set():
                turn = self._lead if self._leadership.epoch else self._follow
                await turn(stop, port)

    async def _check_address(self, stop: asyncio.Event) -> None:
        """Raises CallerError (`address-taken`) if another server with this one's address leads. A
        record may be older than this server's restart, so it first waits for that leader to
        expire."""
        leadership = self._leadership
        while leadership.seen.address == leadership.address and not leadership.epoch:
            if leadership.clashed.is_set():
                raise leadership.address_taken()
            if stop.is_set():
                return
            await _first(stop.wait(), leadership.clashed.wait(), asyncio.sleep(_LOOK_S))

    async def _follow(self, stop: asyncio.Event, port: SharedPort) -> None:
        standby = Standby(self._config, self._leadership, self._clock, port)
        try:
            try:
                await standby.start()
            except NotNowError as error:
                _log.warning("this server can't follow: %s %s", error.message, error.hint)
                await _first(stop.wait(), asyncio.sleep(_AGAIN_S))
                return
            seen = self._leadership.seen
            self._on_following(self._leadership.address, f"{seen.name} at {seen.address}")
            await _first(stop.wait(), self._until_not(0))
        finally:
            _refuse_if(stop, port)
            await shielded(standby.stop())

    async def _lead(self, stop: asyncio.Event, port: SharedPort) -> None:
        term = self._leadership.term
        beat_age_s = self._leadership.beat_age_s
        platform = Platform(self._config, self._clock, term=term, port=port, beat_age_s=beat_age_s)
        try:
            addresses = await platform.start()
        except NotNowError as error:
            _log.warning("this server leads, but can't start: %s %s", error.message, error.hint)
            await platform.stop()
            await self._leadership.resign()
            await _first(stop.wait(), asyncio.sleep(_AGAIN_S))
            return
        try:
            async with _beside(self._on_leading(platform, addresses)):
                await _first(stop.wait(), self._until_not(term.epoch))
        finally:
            _refuse_if(stop, port)
            await shielded(platform.stop())

    async def _until_not(self, epoch: int) -> None:
        """Returns once this server's term is no longer `epoch`."""
        while self._leadership.epoch == epoch:
            self._leadership.changed.clear()
            await self._leadership.changed.wait()


def _refuse_if(stop: asyncio.Event, port: SharedPort) -> None:
    """Refuses connections if this server is stopping: its last part accepts until it has
    drained."""
    if stop.is_set():
        port.close()


def _address(config: ServerConfig) -> str:
    """The address at which the other servers reach this one."""
    if config.control.advertise:
        return config.control.advertise
    listen = config.listen
    anywhere = listen.host in ("0.0.0.0", "", "::")
    return listen.url(socket.gethostname() if anywhere else listen.host, listen.port)


async def _first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Waits until one of them ends, and cancels the others."""
    tasks = [asyncio.ensure_future(one) for one in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await shielded(asyncio.gather(*tasks, return_exceptions=True))


@contextlib.asynccontextmanager
async def _beside(work: Awaitable[None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await shielded(asyncio.wait([task]))
