"""What an instance needs to know of containers, as plain values that travel as JSON."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from penstock.config import ServerConfig
from penstock.core.machine.containers import OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """The first three fields are described in `config.ContainersConfig`."""

    engine: str = OFF
    capabilities: tuple[str, ...] = ()
    pull: tuple[str, ...] = ()
    #: Stands for the server, in the label of its containers: servers of one machine remove only
    #: their own.
    owner: str = ""

    @classmethod
    def from_config(cls, config: ServerConfig) -> ContainerSettings:
        place = os.path.realpath(config.state_dir)
        return cls(
            engine=config.containers.engine,
            capabilities=tuple(config.containers.capabilities),
            pull=tuple(config.containers.pull),
            owner=hashlib.sha256(place.encode()).hexdigest()[:16],
        )
