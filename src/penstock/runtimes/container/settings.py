"""What an instance needs to know of containers, as plain values that travel as JSON."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

from penstock.config import ServerConfig
from penstock.core.machine.containers import OFF, ContainerWallsSpec
from penstock.core.machine.images import RegistrySpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """Fields without a description are described in `config.ContainersConfig`."""

    engine: str = OFF
    walls: ContainerWallsSpec = field(default_factory=ContainerWallsSpec)
    pull: tuple[str, ...] = ()  #: images that may be pulled, as REGISTRY/PATTERN
    registries: tuple[RegistrySpec, ...] = ()
    #: Stands for the server, in the label of its containers: servers of one machine remove only
    #: their own.
    owner: str = ""

    @classmethod
    def from_config(cls, config: ServerConfig) -> ContainerSettings:
        place = os.path.realpath(config.state_dir)
        return cls(
            engine=config.containers.engine,
            walls=ContainerWallsSpec(
                capabilities=tuple(config.containers.capabilities),
                root=config.containers.root,
                root_bytes=int(config.containers.root_gib * 2**30),
                scratch=tuple(config.containers.scratch),
            ),
            pull=(
                *config.containers.pull,
                *(
                    f"{host}/{pattern}"
                    for host, one in config.containers.registries.items()
                    for pattern in one.images or ("*",)
                ),
            ),
            registries=tuple(
                RegistrySpec(
                    host=host,
                    user=one.user,
                    secret_file=str(one.secret_file or ""),
                    mirror=one.mirror,
                )
                for host, one in config.containers.registries.items()
            ),
            owner=hashlib.sha256(place.encode()).hexdigest()[:16],
        )
