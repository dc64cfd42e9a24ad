"""Local fleets of the fake instance, and what their processes are seen to do."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from penstock.core.resources import ComputeResources
from penstock.fleet.base import InstanceSpec, InstanceType
from penstock.fleet.local import LocalFleet, runtime_dir_for

PROGRAM = (sys.executable, str(Path(__file__).with_name("fake_instance.py")))
DEADLINE_S = 20.0

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


def spec_of(tmp_path: Path, instance_id: str = "one", **settings: object) -> InstanceSpec:
    return InstanceSpec(
        instance_id=instance_id,
        instance_type=InstanceType(
            name="ml.local.small", resources=ComputeResources(cores=1.0, memory_bytes=2**30)
        ),
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


async def poll(condition: Callable[[], bool]) -> None:
    """Waits for a condition, and fails when it has not come true in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition has not come true"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
