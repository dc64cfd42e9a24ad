"""The access keys of an orchestrator: those of its own state directory, followed while it runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from penstock.config import ServerConfig
from penstock.control.access.key_ring import KeyRing
from penstock.control.access.keys import AccessKeys
from penstock.control.store.store import Store
from penstock.control.store.store_thread import StoreThread
from penstock.errors import PenstockError
from penstock.metrics import item_failures

log = logging.getLogger(__name__)

#: Keys made or deleted by `penstock keys` count within this time, as at a server.
REFRESH_S: Final = 2.0


class FollowedKeys:
    """One ring that is read again and again."""

    def __init__(self, config: ServerConfig) -> None:
        state_dir, url = config.state_dir, config.control.database
        self._state_dir = state_dir
        self._database = StoreThread(lambda: Store(state_dir, url))
        self._ring = KeyRing()

    async def open(self) -> KeyRing:
        """The ring, the same object for ever. Raises what the store raises, and its `fault`."""
        await self._database.open()
        await self._refresh()
        if self._ring.fault is not None:
            raise self._ring.fault
        if not len(self._ring):
            log.warning("nobody can come in yet: make a key with 'penstock keys create'")
        return self._ring

    async def close(self) -> None:
        await self._database.close()

    async def follow(self) -> None:
        """Until it is cancelled."""
        told = ""
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self._refresh()
                fault = self._ring.fault
            except PenstockError as error:
                fault = error
            except Exception as error:
                item_failures.note("keys", "reading them again", error)
                fault = None
            if fault is not None and fault.code != told:
                log.warning("keys could not be read: %s: %s", fault.code, fault.message)
            told = fault.code if fault is not None else ""

    async def _refresh(self) -> None:
        self._ring.take(await self._database.call(_read_ring, self._state_dir))


def _read_ring(store: Store, state_dir: Path) -> KeyRing:
    return AccessKeys(store, state_dir).ring()
