"""Triton's extension for shared memory: regions of callers on this machine, and who may have them.

Regions are registered once for the whole server; with several gateway processes the control side
has the table. The gateway that serves a request copies its tensors in and out
(`shared_tensors.py`), so instances know nothing of it, and may be on other machines.

It is off unless the operator turns it on, as in Triton: whoever may register a region reads and
writes what processes of the server's user share. Even then, only callers on this machine have
regions, and with authentication only keys that may operate the server register them. CUDA's regions
are refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

from penstock.core.request.host_gate import is_loopback
from penstock.core.request.shared_regions import SharedRegion, SharedRegions
from penstock.errors import CallerError
from penstock.gateway import shared_memory

SETTING: Final = "listen.client_shared_memory"


class SharedMemoryTable(Protocol):
    """The table, wherever it is. All methods raise PenstockError."""

    async def register(self, name: str, key: str, offset: int, byte_size: int) -> None: ...

    async def unregister(self, name: str) -> None:
        """Of all regions if `name` is empty. A request that uses one goes on with it."""

    async def listed(self, name: str) -> list[SharedRegion]:
        """All of them if `name` is empty."""

    async def find(self, names: Iterable[str]) -> dict[str, SharedRegion]: ...


class OwnRegions:
    """The table in this process."""

    def __init__(self) -> None:
        self._table = SharedRegions()

    async def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        region, object_bytes = shared_memory.look(name, key, offset, byte_size)
        self._table.add(region, object_bytes=object_bytes)

    async def unregister(self, name: str) -> None:
        self._table.remove(name)

    async def listed(self, name: str) -> list[SharedRegion]:
        return self._table.listed(name)

    async def find(self, names: Iterable[str]) -> dict[str, SharedRegion]:
        return {name: self._table.find(name) for name in names}


class SharedMemoryDoor:
    """What both doors answer about regions."""

    def __init__(self, regions: SharedMemoryTable | None) -> None:
        """`regions`: None where the operator has not turned it on."""
        self._regions = regions

    @property
    def on(self) -> bool:
        return self._regions is not None

    def regions_for(self, peer: str) -> SharedMemoryTable:
        """The table, for a caller at this address. Raises CallerError (501, 403)."""
        if self._regions is None:
            raise CallerError(
                "shared-memory-off",
                "This server does not read its callers' shared memory.",
                hint=f"The operator turns it on by {SETTING} = true.",
                status=501,
            )
        if not is_near(peer):
            raise CallerError(
                "shared-memory-far",
                f"{peer[:80]} is another machine, which shares no memory with this server.",
                hint="Send the tensors in the request.",
                status=403,
            )
        return self._regions

    async def status(self, name: str) -> list[dict[str, Any]]:
        """The rows of a status. Raises CallerError (404) for an unknown name."""
        regions = [] if self._regions is None and not name else await self._listed(name)
        return [
            {
                "name": one.name,
                "key": one.key,
                "offset": one.offset,
                "byte_size": one.byte_size,
            }
            for one in regions
        ]

    async def _listed(self, name: str) -> list[SharedRegion]:
        table: SharedMemoryTable = self._regions if self._regions is not None else OwnRegions()
        return await table.listed(name)

    async def register(self, peer: str, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        """`asked`: key, offset, byte_size. Raises CallerError."""
        regions = self.regions_for(peer)
        key, offset, size = asked.get("key"), asked.get("offset", 0), asked.get("byte_size")
        if not isinstance(key, str) or type(offset) is not int or type(size) is not int:
            raise CallerError(
                "shared-memory-register",
                "A region is registered with key (a string), byte_size and offset (integers).",
            )
        await regions.register(name, key, offset, size)
        return {}

    async def unregister(self, peer: str, name: str) -> dict[str, Any]:
        await self.regions_for(peer).unregister(name)
        return {}


def cuda_status(name: str) -> list[dict[str, Any]]:
    """No region of CUDA is ever registered. Raises CallerError (404) for a name."""
    if name:
        raise CallerError(
            "shared-memory-unknown",
            f"Unable to find cuda shared memory region: '{name[:256]}'",
            status=404,
        )
    return []


def refuse_cuda() -> None:
    """Raises CallerError (501)."""
    raise CallerError(
        "cuda-shared-memory-unsupported",
        "CUDA shared memory is not served.",
        hint="Register system shared memory, or send the tensors in the request.",
        status=501,
    )


def is_near(peer: str) -> bool:
    """Whether an address, as of a socket or of gRPC, is of this machine. A Unix socket's is."""
    kind, _, rest = peer.partition(":")
    if not peer or kind == "unix":
        return True
    if kind in ("ipv4", "ipv6"):
        peer = rest.replace("%5B", "[").replace("%5D", "]").rpartition(":")[0].strip("[]")
    return is_loopback(peer)
