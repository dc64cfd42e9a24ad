"""Makes a process a guest of the machine, then becomes the program that it was asked to run.

`python guest_start.py CORES_MAX ARGV...`: nothing else runs in this process yet, so every thread
and every process that comes of it takes after it (a thread can't be missed, as it could be by
whoever changed them from outside).

Under SCHED_IDLE the kernel gives it a core that nobody else wants, and takes it away as soon as
somebody wakes who does. But policies are compared within one scheduling group, and where no control
groups for the processor are in use, the kernel may make a group of each session
(`sched_autogroup_enabled`). Every instance is one. Then:

* Where we may make a control group, guests share one that is idle as a whole: the same between
  groups. A loop that woke beside a guest had its core after 0.06 ms.
* Where we may not, the session is given the least weight. It gets a hundredth of a core that others
  want; but a loop that wakes waits for the next tick (1.8 ms on average, 250 Hz).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_NICEST = 19
GROUP = "penstock-guests"
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")


def command(argv: Sequence[str], *, cores_max: int = 0) -> tuple[str, ...]:
    """What to start instead of `argv`; `cores_max` 0: it may use every core that we may."""
    return (sys.executable, "-I", "-S", __file__, str(cores_max), *argv)


def become_guest(cores_max: int) -> None:
    """This thread, and all that it starts from now on."""
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or a stricter sandbox
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    if _sessions_are_groups() and not _enter_idle_group():
        print(
            "a guest yields its cores at the next tick only: the kernel schedules sessions as"
            " groups. `sysctl kernel.sched_autogroup_enabled=0` lets it yield at once.",
            file=sys.stderr,
            flush=True,
        )
    if cores_max:
        with contextlib.suppress(AttributeError, OSError):
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores_max])


def _sessions_are_groups() -> bool:
    """And this session's has been given the least weight."""
    try:
        if Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() != "1":
            return False
        Path("/proc/self/autogroup").write_text(str(_NICEST))
    except OSError:
        return False
    paths = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    return all(path == "/" for _, of, path in paths if not of or "cpu" in of.split(","))


def _enter_idle_group(root: Path = CPU_GROUPS) -> bool:
    """The first guest makes it; it stays, for the next one. Only the first version of control
    groups has one to itself for processors (the second asks for a change of the whole tree)."""
    group = root / GROUP
    try:
        group.mkdir(exist_ok=True)
        (group / "cpu.idle").write_text("1")
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    return True


def main() -> None:
    cores_max, *argv = sys.argv[1:]
    become_guest(int(cores_max))
    os.execvp(argv[0], argv)  # noqa: S606 - the program itself, no shell


if __name__ == "__main__":
    main()
