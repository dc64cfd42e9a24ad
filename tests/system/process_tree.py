"""The processes of a real server: which there are, and how much memory each had at its peak."""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType


def children_of(pid: int) -> list[int]:
    """Of a process, whichever of its threads started them; none of one that is gone."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in path.read_text().split()]
        except OSError:  # a thread that has ended
            continue
    return sorted(found)


def instances_of(pid: int) -> list[int]:
    """Children of a server that are instances, or become some in a moment."""
    return [child for child in children_of(pid) if "penstock.instance" in _command(child)]


class Peaks:
    """What the instances of a server, with all that they started, held at most while this was
    entered. A process that lives for less than a look is not seen."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_again_and_again)
        self.bytes: dict[int, int] = {}  #: by process
        self.instances: set[int] = set()

    def __enter__(self) -> Peaks:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look_again_and_again(self) -> None:
        while not self._over.wait(0.05):
            instances = instances_of(self._pid)
            self.instances |= set(instances)
            pids = list(instances)
            while pids:
                pid = pids.pop()
                self.bytes[pid] = max(self.bytes.get(pid, 0), peak_bytes(pid))
                pids += children_of(pid)


def peak_bytes(pid: int) -> int:
    """Of its resident memory; 0 of one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""
