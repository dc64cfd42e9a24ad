"""One instance of the fleet, from the request for it to its end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from penstock.fleet.base import InstanceSpec


@dataclass(eq=False, slots=True)
class HeldActor:
    """What the fleet knows of one instance."""

    spec: InstanceSpec
    bundle: dict[str, float]  #: what it reserves on its node, under Ray's names
    group: Any = None  #: its Ray placement group
    actor: Any = None  #: the Ray actor that starts and watches it on its node
    log: BinaryIO | None = None
    stopping: bool = False
    watcher: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)  #: set once all of it is removed
