"""Hands requests on to the server that leads, and asks somebody else where it can't be reached."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from penstock.core.servers.election import LeaderSeen
from penstock.gateway.http.asgi import AsgiApp, Message, Scope
from penstock.gateway.http.proxy import ProxyApp, Receive, Send

_CONNECT_S_MAX: Final = 2.0
#: Says that a server has handed the request on already: no two may send it to and fro.
HANDED_ON: Final = b"x-penstock-handed-on"
#: What is asked of this very server, whoever leads.
_OWN: Final = ("/ping", "/v2/health/live", "/metrics")


class LeaderProxy(ProxyApp):
    """An ASGI application."""

    def __init__(
        self, leader: Callable[[], LeaderSeen], otherwise: AsgiApp, *, trusted: Path | None
    ) -> None:
        """
        Args:
            leader: who leads now.
            otherwise: answers where the leader does not.
            trusted: certificates that the leader may have besides those of known authorities.
        """
        super().__init__("")
        self._leader = leader
        self._otherwise = otherwise
        self._trusted = trusted
        self._open: set[asyncio.StreamWriter] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        handed_on = any(name == HANDED_ON for name, _ in scope["headers"])
        if handed_on or scope["path"] in _OWN:
            await self._otherwise(scope, receive, send)
            return
        await super().__call__(
            dict(scope, headers=[*scope["headers"], (HANDED_ON, b"1")]), receive, send
        )

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        leader = self._leader()
        if not leader.session or not leader.address:
            raise ConnectionError("nobody is known to lead")
        url = urlsplit(leader.address)
        tls = self._tls() if url.scheme == "https" else None
        opened = asyncio.open_connection(url.hostname, url.port or (443 if tls else 80), ssl=tls)
        reader, writer = await asyncio.wait_for(opened, _CONNECT_S_MAX)
        self._open = {one for one in self._open if not one.is_closing()} | {writer}
        return reader, writer

    async def away(self, scope: Scope, body: bytes, send: Send) -> None:
        gone = asyncio.Event()
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await gone.wait()
            return {"type": "http.disconnect"}

        await self._otherwise(scope, receive, send)

    def cut(self) -> None:
        """Ends what waits for the leader: it is answered otherwise, or broken off."""
        for writer in self._open:
            writer.close()
        self._open.clear()

    def _tls(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        if self._trusted is not None:
            context.load_verify_locations(self._trusted)
        return context
