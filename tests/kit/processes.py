"""Processes of this machine as the kernel shows them: which there are, what they hold, whether they
live."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tests.kit.repeating import Repeating

from penstock.runtimes.workers.memory import tree_pids


def alive(pid: int) -> bool:
    """Whether there is such a process; one that has ended is there until its parent has looked."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def runs(pid: int) -> bool:
    """Whether it has not ended, looked at or not: all its threads are gone then."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return Path(f"/proc/{pid}").exists()
    return any(state not in "ZX" for state in states)


def children_of(pid: int, command: str = "") -> list[int]:
    """Of a process, whichever of its threads started them; none of one that is gone. `command`:
    only those with it in their command line."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # a thread that has ended
            found += [int(word) for word in path.read_text().split()]
    return sorted(child for child in found if command in _command(child))


def instances_of(pid: int) -> list[int]:
    """Children of a server that are instances, or become some in a moment."""
    return children_of(pid, "penstock.instance")


def policies_of(pid: int) -> dict[tuple[int, str], int]:
    """The scheduling policy of every thread of a process, by number and name."""
    found = {}
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                name = (task / "comm").read_text().strip()
                found[int(task.name), name] = os.sched_getscheduler(int(task.name))
    return found


def policies_below(pid: int) -> dict[tuple[int, str], int]:
    """As `policies_of`, of a process and of all that it has started."""
    return {task: policy for one in tree_pids(pid) for task, policy in policies_of(one).items()}


def pids_in(folder: str, *, below: int) -> list[int]:
    """Of a process and all that it started, those that run in a folder of this name."""
    found = []
    for pid in tree_pids(below):
        with suppress(OSError):  # it has ended
            if Path(os.readlink(f"/proc/{pid}/cwd")).name == folder:
                found.append(pid)
    return found


def memory_bytes(pid: int, field: str = "VmRSS") -> int:
    """Its resident memory, or the peak of that (`VmHWM`); 0 of a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


def sockets_of(pid: int) -> set[str]:
    """The inodes of the sockets that a process has open, as /proc/net/tcp names them."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.add(os.readlink(entry))
    return {one[len("socket:[") : -1] for one in found if one.startswith("socket:[")}


class Peaks(Repeating):
    """What the instances of a server, with all that they started, held at most while this was
    entered. A process that lives for less than a look is not seen."""

    def __init__(self, pid: int) -> None:
        super().__init__(pause_s=0.05)
        self._pid = pid
        self.bytes: dict[int, int] = {}  #: by process
        self.instances: set[int] = set()

    def step(self) -> None:
        instances = instances_of(self._pid)
        self.instances |= set(instances)
        pids = list(instances)
        while pids:
            pid = pids.pop()
            self.bytes[pid] = max(self.bytes.get(pid, 0), memory_bytes(pid, "VmHWM"))
            pids += children_of(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
