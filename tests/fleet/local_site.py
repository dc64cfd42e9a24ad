"""Local fleets of the fake instance, and what their processes are seen to do."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceSpec, InstanceType
from penstock.fleet.local import LocalFleet, runtime_dir_for

PROGRAM = (sys.executable, str(Path(__file__).parents[1] / "kit" / "fake_instance.py"))

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def spec_of(
    tmp_path: Path, instance_id: str = "one", *, accelerators: int = 0, **settings: object
) -> InstanceSpec:
    resources = ComputeResources(cores=1.0, memory_bytes=2**30, accelerators=accelerators)
    return InstanceSpec(
        instance_id=instance_id,
        instance_type=InstanceType(name="ml.local.small", resources=resources),
        log_path=tmp_path / "logs" / f"{instance_id}.log",
        cache_dir=tmp_path / "cache",
        settings=settings,
    )


@contextlib.asynccontextmanager
async def fleet_of(tmp_path: Path, *switches: str, **options: Any) -> AsyncIterator[LocalFleet]:
    runtime_dir = runtime_dir_for(tmp_path / "s")
    fleet = LocalFleet(runtime_dir, command=(*PROGRAM, *switches), **options)
    try:
        yield fleet
    finally:
        await fleet.close(grace_s=1.0)
