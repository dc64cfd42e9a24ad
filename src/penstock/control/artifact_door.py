"""Serves artifacts of `file://` URIs and local paths to instances on other machines.

The protocol is described in `artifacts/sources/server_files.py`. Only instances of this deployment
may connect, with their certificates. They may read only what some instance was told to load, and
what lies below it: a stolen instance can read models, but no other file of this machine.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

import orjson

from penstock.artifacts.files.budget import Budget
from penstock.artifacts.files.listing import CHUNK_BYTES
from penstock.artifacts.files.paths import safe_path
from penstock.artifacts.models import index
from penstock.artifacts.sources.fetch import local_place, look
from penstock.artifacts.sources.local_files import open_unchanged
from penstock.artifacts.sources.places import LocalPlace
from penstock.artifacts.sources.server_files import REQUEST_BYTES_MAX, UNCHANGED
from penstock.artifacts.sources.source import ArtifactSettings, ArtifactSource, shown_uri
from penstock.artifacts.sources.submitted_code import code_uri
from penstock.errors import CallerError, PenstockError, logged
from penstock.fleet.identity import contexts

_log = logging.getLogger(__name__)

#: Limit for a client that sends no request, or that does not read its answer, in s.
_IDLE_S_MAX: Final = 60.0
#: Reads at once. Each takes a thread of the event loop's pool; more reads wait.
_READERS_MAX: Final = 16
_LOOK_S_MAX: Final = 60.0


class ArtifactDoor:
    """`bind` before any instance gets its address, `start` on the event loop, then `close`."""

    def __init__(self, settings: ArtifactSettings) -> None:
        self._settings = settings
        self._offered: set[str] = set()
        self._socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._readers = asyncio.Semaphore(_READERS_MAX)

    def bind(self, host: str) -> str:
        """Returns "host:port", with a port that the system chooses. Raises OSError."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, 0), family=family, backlog=128)
        shown = f"[{host}]" if ":" in host else host
        return f"{shown}:{self._socket.getsockname()[1]}"

    async def start(self, context: ssl.SSLContext) -> None:
        """`context`: a server-side TLS context that demands client certificates."""
        assert self._socket is not None
        self._server = await asyncio.start_server(
            self._serve, sock=self._socket, ssl=context, limit=REQUEST_BYTES_MAX
        )

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        elif self._socket is not None:
            self._socket.close()

    def offer(self, source: ArtifactSource) -> None:
        """Allows a source; call it before an instance is told to load that source."""
        for uri in (source.uri, code_uri(source.environment)):
            if uri:
                self._offered.add(uri.rstrip("/"))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not contexts.comes_from_instance(writer.get_extra_info("peercert")):
                _log.warning("a connection is refused: its certificate is no instance's")
                return
            async with asyncio.timeout(_IDLE_S_MAX):
                line = await reader.readline()
            async with self._readers:
                await self._answer(orjson.loads(line), writer)
        except (OSError, TimeoutError, ValueError, PenstockError) as error:
            _log.info("an instance's question was not answered: %s", error)
        finally:
            writer.close()

    async def _answer(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        chunks: Iterator[bytes] = iter(())
        try:
            if "list" in asked:
                answer = await asyncio.to_thread(self._listed, asked)
            elif "names" in asked:
                answer = await asyncio.to_thread(self._names, asked)
            else:
                chunks = self._read(asked)
                answer = orjson.loads(await asyncio.to_thread(next, chunks))
        except PenstockError as error:
            answer = {"error": logged(error, _log.info).to_dict()}
        text = orjson.dumps(answer)
        writer.write(len(text).to_bytes(8, "big") + text)
        while True:
            async with asyncio.timeout(_IDLE_S_MAX):
                await writer.drain()
            chunk = await asyncio.to_thread(next, chunks, b"")
            if not chunk:
                return
            writer.write(chunk)

    def _listed(self, asked: dict[str, Any]) -> dict[str, Any]:
        uri, within = str(asked["list"]), str(asked.get("within") or "")
        self._place(uri)
        if within:
            self._place(within)
        listing = look(uri, self._settings, self._budget(uri), within=within)
        return {
            "files": [
                {"name": f.name, "size": f.size, "stamp": f.stamp, "executable": f.executable}
                for f in listing.files
            ],
            "single": listing.single,
            "settled": listing.settled,
            "changed_at": listing.changed_at,
        }

    def _names(self, asked: dict[str, Any]) -> dict[str, Any]:
        uri = str(asked["names"])
        return {"names": list(index.names_in_folder(self._place(uri).path, self._budget(uri)))}

    def _read(self, asked: dict[str, Any]) -> Iterator[bytes]:
        """The size as JSON, the bytes of the file, then whether the file changed while it was
        read."""
        uri, name = str(asked.get("read")), str(asked.get("name"))
        place, what = self._place(uri), shown_uri(uri)
        top = place.path
        path = top / safe_path(name, where=what) if top.is_dir() else top
        fence = place.fence.inside(top)
        with open_unchanged(path, str(asked.get("stamp")), what, fence) as descriptor:
            left = os.fstat(descriptor).st_size
            yield orjson.dumps({"size": left})
            at = 0
            while chunk := os.pread(descriptor, CHUNK_BYTES, at):
                at += len(chunk)
                yield chunk
        yield UNCHANGED

    def _place(self, uri: str) -> LocalPlace:
        """Raises CallerError `artifact-access-denied` for what no instance was told to load."""
        plain = uri.rstrip("/")
        parts = unquote(plain).split("/")
        below = any(plain.startswith(f"{one}/") for one in self._offered)
        place = local_place(uri, self._settings, self._budget(uri))
        if ".." in parts or not (plain in self._offered or below) or place is None:
            raise _not_offered(shown_uri(uri))
        return place

    @staticmethod
    def _budget(uri: str) -> Budget:
        return Budget(shown_uri(uri), bytes_max=0, seconds_max=_LOOK_S_MAX)


def _not_offered(what: str) -> CallerError:
    return CallerError(
        "artifact-access-denied",
        f"{what}: no instance was told to load it",
        hint="Instances are given what their own models are made of.",
    )
