"""What instances are given, and bounds on what is done at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from penstock.artifacts.sources.source import ArtifactSource
from penstock.fleet.base import PlatformAccess
from penstock.fleet.identity.dial import Tls, no_tls


def _offer_nothing(source: ArtifactSource) -> None:
    """Instances of this machine find its files by themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """What instances on other machines need of this one; the defaults: there are none."""

    tls: Tls = no_tls  #: of the end that connects to them
    #: where they find this machine's files; asked once, when the fleet is made
    server_files: Callable[[], str] = str
    offer: Callable[[ArtifactSource], None] = _offer_nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSettings:
    """Of the operations of one server."""

    log_dir: Path
    cache_dir: Path
    work_dir: Path  #: hosts note there what their models do
    instance_settings: Mapping[str, object]  #: as `InstanceSpec.settings`
    #: waits until the platform listens, for what brings instances back before it does
    access: Callable[[], Awaitable[PlatformAccess]] | None = None
    tls: Tls = no_tls  #: for instances on other machines
    #: hears what an instance is about to be told to load
    offer: Callable[[ArtifactSource], None] = _offer_nothing
    #: processes whose connections instances accept, besides this one's; None: of no other
    gateway_pids: Callable[[], Sequence[int]] | None = None
    warm_instances: int = 0  #: spare processes that stand ready
    starts_max: int = 4  #: processes that start at once
    loads_max: int = 2  #: models that load at once: each takes a core
    #: ... until one has taken this long: it waits for a network, or hangs, and others need not
    load_turn_s_max: float = 15.0
    #: instance type -> instances of it that there may be
    instance_limits: Mapping[str, int] = field(default_factory=dict)
    stop_grace_s: float = 10.0  #: from SIGTERM to SIGKILL; draining came before
    #: for an instance to answer a status call; what runs models is never its event loop, so one
    #: that is silent three times is stopped or hangs, and its requests can go elsewhere
    status_s_max: float = 5.0
