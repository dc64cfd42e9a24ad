"""What a container takes, by the kernel's account of its control group.

A sum over its processes would count pages several times that they share since they were forked, as
servers do that load a model first and fork their workers then; it would leave out files in /dev/shm
and the time of processes that have ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class GroupUse:
    memory_bytes: int  #: with files in memory; without file pages, which the kernel can drop
    cpu_s: float


def used_by(pid: int, *, proc: Path = Path("/proc"), root: Path = _ROOT) -> GroupUse | None:
    """Of the group of a container's first process. None: there is none, this process is in it, too,
    or the process has ended: then the kernel counts it to the root, which is the whole machine."""
    try:
        text = (proc / str(pid) / "cgroup").read_text()
        if text == (proc / "self" / "cgroup").read_text():
            return None
        groups = _groups(text)
        if "memory" in groups:  # cgroups v1
            memory = _stat(_place(root, groups["memory"]) / "memory.stat")
            nanoseconds = (_place(root, groups["cpuacct"]) / "cpuacct.usage").read_text()
            return GroupUse(memory["total_rss"] + memory["total_shmem"], int(nanoseconds) / 1e9)
        place = _place(root, groups[""])
        memory = _stat(place / "memory.stat")
        return GroupUse(
            memory["anon"] + memory["shmem"], _stat(place / "cpu.stat")["usage_usec"] / 1e6
        )
    except (OSError, ValueError, KeyError):
        return None


def _groups(text: str) -> dict[str, tuple[str, str]]:
    """Controller -> (folder of its hierarchy, path in it); that of v2 has no name."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for each in controllers.split(","):
            found[each] = (controllers, path)
    return found


def _place(root: Path, group: tuple[str, str]) -> Path:
    """Raises KeyError for the root."""
    hierarchy, path = group
    if path == "/":
        raise KeyError(path)
    return root / hierarchy / path.lstrip("/")


def _stat(file: Path) -> dict[str, int]:
    fields = (line.split() for line in file.read_text().splitlines())
    return {name: int(value) for name, value in fields}
