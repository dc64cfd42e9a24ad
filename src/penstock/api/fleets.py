"""Which fleet a server has: processes of this machine, or instances on a Ray cluster.

On a cluster, its nodes report the resources, and this machine's size is no bound. Its instances
share no disk with this machine, so the server provides its files at the artifact door.
"""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from penstock.artifacts.sources.source import ArtifactSettings
from penstock.clock import Clock
from penstock.config import FLEET_LOCAL, ServerConfig
from penstock.control.artifact_door import ArtifactDoor
from penstock.control.instances.under_way import Elsewhere
from penstock.core.resources import ComputeResources
from penstock.distribution import install_command
from penstock.errors import CallerError, NotNowError
from penstock.fleet.base import Fleet
from penstock.fleet.identity import contexts
from penstock.fleet.local import LocalFleet

if TYPE_CHECKING:
    from penstock.fleet.identity.authority import Authority

#: Larger than any cluster.
UNBOUNDED: Final = ComputeResources(cores=1e6, memory_bytes=2**60, accelerators=10**6)
#: Port for finding this machine's own address; no packet is sent to it.
_ANY_PORT: Final = 9


class ServerFleet:
    """The fleet of one server. Call `make` once the state directory is locked, then `open`, and
    `close` at the end.

    `own_host`: this machine's address as instances see it; known after `make`.
    """

    def __init__(self, config: ServerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._is_local = config.control.fleet == FLEET_LOCAL
        self.own_host = ""
        #: resources for instances; None: those of this machine
        self.machine = None if self._is_local else UNBOUNDED
        self._dialling: ssl.SSLContext | None = None
        self._listening: ssl.SSLContext | None = None
        self._door = ArtifactDoor(ArtifactSettings.from_config(config))
        self._door_at = ""

    @property
    def elsewhere(self) -> Elsewhere:
        """The control plane's settings for instances on other machines."""
        if self._is_local:
            return Elsewhere()
        return Elsewhere(tls=self.tls, server_files=lambda: self._door_at, offer=self._door.offer)

    def make(self, runtime_dir: Path) -> Fleet:
        """Creates the fleet. `runtime_dir`: for sockets of this machine.

        Raises CallerError `ray-missing`, NotNowError `ray-unreachable` and `door-unusable`.
        """
        config = self._config
        if self._is_local:
            return LocalFleet(runtime_dir)
        from penstock.fleet.identity.authority import Authority  # noqa: PLC0415 - of no laptop

        now = self._clock.wall()
        authority = Authority.open(config.state_dir, now=now)
        identity = authority.server_identity(now=now)
        self._dialling, self._listening = contexts.dialling(identity), contexts.listening(identity)
        address = config.control.fleet
        address = address if address.startswith("ray://") else address.removeprefix("ray:")
        self.own_host = config.control.own_host or _own_host_towards(address)
        try:
            self._door_at = self._door.bind(self.own_host)
        except OSError as error:
            raise NotNowError(
                "door-unusable",
                f"instances can't be given files at {self.own_host}: {error.strerror}",
                hint="Set control.own_host to an address of this machine that nodes can reach.",
            ) from error
        return _ray_fleet(config, address, authority, self._clock)

    async def open(self) -> None:
        """Accepts connections, including those that waited since `make`."""
        if self._listening is not None:
            await self._door.start(self._listening)

    async def close(self) -> None:
        await self._door.close()

    def tls(self) -> ssl.SSLContext:
        """The TLS context for connections to instances on other machines."""
        assert self._dialling is not None, "an instance elsewhere, and no fleet that has any"
        return self._dialling


def _own_host_towards(address: str) -> str:
    """The address of this machine that a cluster sees."""
    told = urlsplit(address if "://" in address else f"//{address}")
    host = (told.hostname or "") if address != "auto" else ""
    # A documentation address (RFC 5737) stands for any host where the cluster is on this machine.
    with socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM
    ) as way:
        try:
            way.connect((host or "192.0.2.1", told.port or _ANY_PORT))
            return str(way.getsockname()[0])
        except (OSError, ValueError):
            return "127.0.0.1"


def _ray_fleet(config: ServerConfig, address: str, authority: Authority, clock: Clock) -> Fleet:
    try:
        from penstock.fleet.ray.fleet import RayFleet  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise CallerError(
            "ray-missing",
            f"--fleet {config.control.fleet} needs Ray, which is not installed here",
            hint=install_command("ray"),
        ) from error
    return RayFleet(
        address,
        authority,
        node_wait_s=config.control.node_wait_s,
        cache_dir=config.control.node_cache_dir,
        wall=clock.wall,
    )
