"""What instances are given, and bounds on what is done at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.fleet.base import PlatformAccess


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationSettings:
    """Of the operations of one server."""

    log_dir: Path
    cache_dir: Path
    work_dir: Path  #: hosts note there what their models do
    instance_settings: Mapping[str, object]  #: as `InstanceSpec.settings`
    #: waits until the platform listens, for what brings instances back before it does
    access: Callable[[], Awaitable[PlatformAccess]] | None = None
    warm_instances: int = 0  #: spare processes that stand ready
    starts_max: int = 4  #: processes that start at once
    loads_max: int = 2  #: models that load at once: each takes a core
    #: ... until one has taken this long: it waits for a network, or hangs, and others need not
    load_turn_s_max: float = 15.0
    stop_grace_s: float = 10.0  #: from SIGTERM to SIGKILL; draining came before
    #: for an instance to answer a status call; what runs models is never its event loop, so one
    #: that is silent three times is stopped or hangs, and its requests can go elsewhere
    status_s_max: float = 5.0
