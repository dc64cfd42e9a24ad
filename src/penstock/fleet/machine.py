"""What this machine has for instances: cores, memory, accelerators.

Containers are given less than the machine: the cgroup's limit counts where it is the smaller one.
A tenth of the memory, and no less than 256 MiB, stays with the gateway and the operating system.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from penstock.core.placement import MachineCapacity

_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
_OWN_SHARE: Final = 0.1
_OWN_BYTES_MIN: Final = 256 * 2**20


def this_machine(cgroup_limits: tuple[Path, ...] = _CGROUP_LIMITS) -> MachineCapacity:
    """Looks at the machine once; call it at start."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in cgroup_limits:
        limit_bytes = _limit_of(path)
        if limit_bytes is not None:
            memory_bytes = min(memory_bytes, limit_bytes)
    own_bytes = max(int(memory_bytes * _OWN_SHARE), _OWN_BYTES_MIN)
    return MachineCapacity(
        cores=float(_cores()),
        memory_bytes=max(memory_bytes - own_bytes, memory_bytes // 2),
        accelerators=_accelerators(Path("/dev")),
    )


def _cores() -> int:
    """The cores that this process may use, not those that the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this operating system
        return os.cpu_count() or 1


def _limit_of(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _accelerators(devices: Path) -> int:
    """NVIDIA devices that this process can see: nvidia0, nvidia1 …"""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in devices.glob("nvidia[0-9]*"))
