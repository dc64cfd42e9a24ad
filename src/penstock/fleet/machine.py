"""What this machine has for instances: cores, memory and accelerators, and how much of it is free.

Containers and services get less than the machine: the limits of their cgroups count, and those of
the cgroups around them. A tenth of the memory, at least 256 MiB, is kept for the gateway and the
operating system.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from penstock.core.resources import ComputeResources

_CGROUP_MOUNT: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_MEMORY_INFO: Final = Path("/proc/meminfo")

#: Names of the files (limit, usage), in version 2 and version 1 of cgroups.
_CGROUP_FILES: Final = (
    ("memory.max", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)
#: Counted as used, but freed when memory is short: file pages and kernel caches.
_RECLAIMABLE: Final = (
    "inactive_file", "active_file", "slab_reclaimable", "total_inactive_file", "total_active_file",
)  # fmt: skip
_OWN_SHARE: Final = 0.1
_OWN_BYTES_MIN: Final = 256 * 2**20


def this_machine(groups: Sequence[Path] | None = None) -> ComputeResources:
    """Reads the machine once; call it at start. `groups`: cgroups; None = those of this process."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for folder in memory_groups() if groups is None else groups:
        limit_bytes, _ = _charged(folder)
        if limit_bytes is not None:
            memory_bytes = min(memory_bytes, limit_bytes)
    own_bytes = max(int(memory_bytes * _OWN_SHARE), _OWN_BYTES_MIN)
    return ComputeResources(
        cores=float(_cores()),
        memory_bytes=max(memory_bytes - own_bytes, memory_bytes // 2),
        accelerators=_accelerators(Path("/dev")),
    )


def available_bytes(
    groups: Sequence[Path] | None = None, memory_info: Path = _MEMORY_INFO
) -> int | None:
    """Memory that programs can take now without evicting anything.

    The kernel's estimate, or what the tightest cgroup leaves. None where both are unknown.
    """
    told = [_memory_available(memory_info)]
    for folder in memory_groups() if groups is None else groups:
        limit_bytes, charged_bytes = _charged(folder)
        if limit_bytes is not None:
            told.append(max(limit_bytes - charged_bytes, 0))
    return min((one for one in told if one is not None), default=None)


def memory_groups(mount: Path = _CGROUP_MOUNT, own: Path = _OWN_CGROUP) -> list[Path]:
    """The cgroups that bound this process's memory, from its own to the outermost visible here."""
    found = []
    for line in _text(own).splitlines():
        controllers, _, place = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root = mount / "memory" if controllers else mount
        folder = root / place.lstrip("/")
        # Nothing above a container's own group is visible, and its path may be the host's.
        found += [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
    return found


def _charged(folder: Path) -> tuple[int | None, int]:
    """(limit, bytes that programs hold of it) of a cgroup; None where it has no limit."""
    for limit_name, charged_name in _CGROUP_FILES:
        limit = _text(folder / limit_name).strip()
        if limit.isdigit():
            charged = _text(folder / charged_name).strip()
            held_bytes = int(charged) if charged.isdigit() else 0
            return int(limit), max(held_bytes - _reclaimable(folder), 0)
    return None, 0


def _reclaimable(folder: Path) -> int:
    rows = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines())
    # Version 1 gives each value twice: for the group alone, and as total with all groups below.
    totals = [name for name in _RECLAIMABLE if name.startswith("total_") and name in rows]
    return sum(int(rows.get(name, 0)) for name in totals or _RECLAIMABLE)


def _memory_available(memory_info: Path) -> int | None:
    for line in _text(memory_info).splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _cores() -> int:
    """The cores that this process may use; the machine may have more."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # this operating system lacks the call
        return os.cpu_count() or 1


def _text(path: Path) -> str:
    """The text of a kernel file; "" where there is no such file."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _accelerators(devices: Path) -> int:
    """NVIDIA devices that this process can see: nvidia0, nvidia1 …"""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in devices.glob("nvidia[0-9]*"))


def resident_bytes(pid: int) -> int:
    """Resident memory of a process now; 0 if it is unknown or the process has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """User and system time of all threads of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0
