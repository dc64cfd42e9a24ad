"""Settings of the operations on instances: what instances get, and how many start at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.artifacts.sources.source import ArtifactSource
from penstock.fleet.base import PlatformAccess
from penstock.fleet.identity.dial import Tls, no_tls


def _offer_nothing(source: ArtifactSource) -> None:
    """Does nothing: instances on this machine read its files themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What instances on other machines need from this one. The defaults: there are none."""

    tls: Tls = no_tls  #: for the control plane's end of the connections
    #: gives the address where they fetch this machine's files; called once, when the fleet is made
    server_files: Callable[[], str] = str
    offer: Callable[[ArtifactSource], None] = _offer_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSettings:
    """Settings of one server."""

    log_dir: Path
    cache_dir: Path
    work_dir: Path  #: hosts write here which models are at work
    instance_settings: Mapping[str, object]  #: as `InstanceSpec.settings`
    #: waits until the platform listens: instances may be started before it does
    access: Callable[[], Awaitable[PlatformAccess]] | None = None
    tls: Tls = no_tls  #: for instances on other machines
    #: called with each source that an instance is about to be told to load
    offer: Callable[[ArtifactSource], None] = _offer_nothing
    #: processes whose connections instances accept, besides this one's; None: no others
    gateway_pids: Callable[[], Sequence[int]] | None = None
    warm_instances: int = 0  #: spare processes that are kept ready
    starts_max: int = 4  #: instances that start at once
    loads_max: int = 2  #: models that load at once: each takes a core
    #: ... but a load that takes longer gives its place to others: it waits for a network, or hangs
    load_turn_s_max: float = 15.0
    #: instance type -> highest number of its instances
    instance_limits: Mapping[str, int] = field(default_factory=dict)
    stop_grace_s: float = 10.0  #: from SIGTERM to SIGKILL, after draining
    #: limit for the answer to a status call. Models never run on an instance's event loop, so one
    #: that misses three calls is stopped or hangs, and its requests can go elsewhere
    status_s_max: float = 5.0
