"""What the machine itself did while something was measured on it: stalls, and work of others.

A figure taken on shared cores says little without these two: they are printed beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_STALL_S = 0.005  #: a real-time process that wakes this much too late was held up by the machine
#: With 1 ms, a watcher on each core made P50 and P99 of a classifier at 9,400 requests/s a fifth
#: longer on two cores: each time it wakes, it takes the core of whatever runs there.
_SLEEP_S = 0.0025
_STALLS_MAX = 500  #: per core; their report must fit a pipe
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class MachineStalls:
    """Watches every core from a process of its own under real-time priority, asleep nearly always.

    What holds up a process that nothing in this system may preempt is the machine: the hypervisor
    ran somebody else, or the kernel did. Without the right to real-time priority nothing is seen.
    """

    def __init__(self, seconds: float) -> None:
        end = time.perf_counter() + seconds
        self._watchers = [self._watch(core, end) for core in sorted(os.sched_getaffinity(0))]

    @staticmethod
    def _watch(core: int, end: float) -> tuple[int, int]:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writer)
            return pid, reader
        stalls: list[tuple[float, float]] = []
        try:
            os.sched_setaffinity(0, {core})
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            before = time.perf_counter()
            while before < end:
                time.sleep(_SLEEP_S)
                now = time.perf_counter()
                if now - before > _SLEEP_S + _STALL_S:
                    stalls.append((before, now))
                before = now
        except OSError:
            stalls = []
        os.write(writer, json.dumps(stalls[:_STALLS_MAX]).encode())
        os._exit(0)

    def intervals(self) -> list[tuple[float, float]]:
        """Waits for the watchers; stalls of all cores by `time.perf_counter`, merged, in order."""
        found: list[tuple[float, float]] = []
        for pid, reader in self._watchers:
            with os.fdopen(reader, "rb") as pipe:
                found.extend((float(a), float(b)) for a, b in json.loads(pipe.read() or b"[]"))
            os.waitpid(pid, 0)
        merged: list[tuple[float, float]] = []
        for start, stop in sorted(found):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
            else:
                merged.append((start, stop))
        return merged


class OthersLoad:
    """`with OthersLoad() as others: ...`, then `others.cores`: processor time per second that
    processes took which are not this one's children, or that a virtual machine's host kept for
    others (steal; a machine without any other program was seen to lose half of its cores so)."""

    def __enter__(self) -> OthersLoad:
        self.cores = 0.0
        self._start = time.perf_counter(), _busy_s(), _own_s()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        start, busy_s, own_s = self._start
        took_s = (_busy_s() - busy_s) - (_own_s() - own_s)
        self.cores = max(0.0, took_s / (time.perf_counter() - start))


def foreground() -> bool:
    """Gives this process and all its descendants the machine's attention before others get theirs.

    Linux schedules sessions against each other, by a priority of each session (autogroups): `nice`
    says nothing between them. False where the right to raise it is missing.
    """
    try:
        for pid in _family(os.getpid()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                Path(f"/proc/{pid}/autogroup").write_text("-15")
    except OSError:
        return False
    return Path("/proc/self/autogroup").exists()


def guests_of(pid: int) -> list[int]:
    """A process's living descendants that take only what of the processors nobody else wants."""
    found = []
    for one in _family(pid):
        with contextlib.suppress(ProcessLookupError):  # it has ended
            if os.sched_getscheduler(one) == os.SCHED_IDLE:
                found.append(one)
    return found


def processor_s(pid: int) -> float:
    """Of a process, its living descendants, and those that they have waited for."""
    return sum(_family(pid).values()) * _TICK_S


def processor_by_process(pid: int) -> dict[str, float]:
    """Of a server and its living descendants, by what they are: the module that each runs, or the
    name of its program."""
    found: dict[str, float] = defaultdict(float)
    for each, ticks in _family(pid).items():
        with contextlib.suppress(OSError):  # it has ended
            arguments = Path(f"/proc/{each}/cmdline").read_bytes().decode().split("\0")
            found[program_name(arguments)] += ticks * _TICK_S
    return dict(found)


def program_name(arguments: Sequence[str]) -> str:
    """Of a command line: `worker` of `python -m penstock.runtimes.python.worker 22 19`; a module
    that confines another one has that one's name."""
    modules = [each for each in arguments if each.startswith("penstock")]
    if modules == ["penstock"]:
        return "gateway"
    return (modules[-1].rpartition(".")[2] if modules else Path(arguments[0]).name) or "kernel"


def _busy_s() -> float:
    user, nice, system, _, _, irq, softirq, steal, *_ = (
        Path("/proc/stat").read_text().split("\n", 1)[0][4:].split()
    )
    return sum(map(int, (user, nice, system, irq, softirq, steal))) * _TICK_S


def _own_s() -> float:
    """Of this process, its living descendants, and those that they have waited for."""
    return processor_s(os.getpid())


def _family(of: int) -> dict[int, int]:
    """Ticks used by process id: a process and its living descendants."""
    stats = _stats()
    parents = {pid: int(fields[1]) for pid, fields in stats.items()}
    return {
        pid: sum(map(int, stats[pid][11:15])) if pid in stats else 0
        for pid in family_of(of, parents)
    }


def _stats() -> dict[int, list[str]]:
    """Of each process the fields of its stat page that follow its name: state, parent, ..."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            found[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    return found


def family_of(pid: int, parents: Mapping[int, int]) -> list[int]:
    """A process and all its descendants; `parents`: of each process its parent."""
    children: dict[int, list[int]] = defaultdict(list)
    for child, parent in parents.items():
        children[parent].append(child)
    found: list[int] = []
    left = [pid]
    while left:
        found.append(left.pop())
        left.extend(children[found[-1]])
    return found


def memory_bytes(pid: int) -> dict[str, int]:
    """Resident memory of a server, `rss` and `pss`: of the process and of every one below it.

    `pss` counts what processes share once, each its part; in `rss` it is in each of them.
    """
    parents = {each: int(fields[1]) for each, fields in _stats().items()}
    pages = []
    for each in family_of(pid, parents):
        with contextlib.suppress(OSError):  # it has ended
            pages.append(Path(f"/proc/{each}/smaps_rollup").read_text())
    return {**memory_sum(pages), "processes": len(pages)}


def memory_sum(smaps_rollups: Sequence[str]) -> dict[str, int]:
    """Bytes of the `Rss` and `Pss` lines of all pages."""
    found = {"rss": 0, "pss": 0}
    for page in smaps_rollups:
        for line in page.splitlines():
            name, _, rest = line.partition(":")
            if name.lower() in found:
                found[name.lower()] += int(rest.split()[0]) << 10
    return found
