"""Guests of the machine: processes that take only what nobody else wants, from their start to their
end.

`python guests.py CORES_MAX ARGV...` makes its process a guest, then becomes the program that it was
asked to run: nothing else runs in this process yet, so all its later
threads and processes inherit the settings. (Changing them from outside could miss a thread.)

Under SCHED_IDLE the kernel gives the process a core that nobody else wants, and takes it away as
soon as somebody else needs it. But policies are compared within one scheduling group, and where no
control groups for the processor are in use, the kernel may make a group of each session
(`sched_autogroup_enabled`). Every instance is one session. Then:

* Where we may make a control group, guests share one that is idle as a whole: SCHED_IDLE between
  groups. A loop that woke beside a guest had its core after 0.06 ms.
* Where we may not, the session gets the least weight. It gets a hundredth of a core that others
  want; but a loop that wakes waits for the next tick (1.8 ms on average, 250 Hz).

A guest is ended at once, even where others use all cores: somebody waits for its memory. A process
frees its memory in its own processor time, and a guest gets none while others compute: after a kill
it might hold its memory for minutes. So its processes are made ordinary ones first, where we have
the right to, and the kernel is asked to free their memory in our time (`process_mrelease`, Linux
5.15; allowed to whoever may end them).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

_NICEST = 19
GROUP = "penstock-guests"
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
_UNIFIED = Path("/sys/fs/cgroup")  #: version 2, where it is the only one
_PROCESS_MRELEASE: Final = 448  #: the same number on every processor


def command(argv: Sequence[str], *, cores_max: int = 0) -> tuple[str, ...]:
    """The command to start instead of `argv`; `cores_max` 0: every core that this process may
    use."""
    return (sys.executable, "-I", "-S", __file__, str(cores_max), *argv)


def yield_at_once() -> bool:
    """Whether a guest that is started now gives its core back as soon as anybody wants it. May make
    the guests' control group."""
    if not hasattr(os, "SCHED_IDLE"):
        return False
    return not _sessions_are_groups() or _idle_group(CPU_GROUPS) is not None


def become_guest(cores_max: int) -> None:
    """Applies to this thread, and to all threads and processes that it starts from now on."""
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or a stricter sandbox
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICEST))
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
    """Whether the kernel makes a group of each session."""
    try:
        if Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() != "1":
            return False
    except OSError:
        return False
    try:
        divided = (_UNIFIED / "cgroup.subtree_control").read_text()
    except OSError:
        divided = ""
    return _in_root_group(Path("/proc/self/cgroup").read_text(), divided)


def _in_root_group(cgroups: str, divided: str) -> bool:
    """Whether a process is in no control group for processors, where alone sessions are groups.

    Args:
        cgroups: its /proc/PID/cgroup.
        divided: the controllers that version 2 applies below its root. Without `cpu` among them,
            its groups, which every service and login has, are none for processors.
    """
    paths = {of: path for _, of, path in (line.split(":", 2) for line in cgroups.splitlines())}
    for controllers, path in paths.items():
        if "cpu" in controllers.split(","):
            return path == "/"
    return paths.get("", "/") == "/" or "cpu" not in divided.split()


def _idle_group(root: Path) -> Path | None:
    """The guests' control group. The first guest makes it, and it stays for later ones. Only
    version 1 of control groups has a hierarchy for processors alone (with version 2 the whole tree
    would have to change)."""
    group = root / GROUP
    try:
        group.mkdir(exist_ok=True)
        (group / "cpu.idle").write_text("1")
    except OSError:
        return None
    return group


def _enter_idle_group(root: Path = CPU_GROUPS) -> bool:
    group = _idle_group(root)
    try:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        return False
    return group is not None


def be_ordinary(leader: int) -> None:
    """Gives every process of the session that `leader` leads normal priority, as far as we have the
    right to: it is asked to end, which takes processor time. Blocks."""
    for pid in _session(leader):
        _be_ordinary(pid)


def end(leader: int) -> None:
    """Ends every process of the session that `leader` leads. Blocks while memory is freed: call it
    on a thread. It is no error if processes have ended meanwhile."""
    descriptors = []
    try:
        for pid in _session(leader):
            with contextlib.suppress(ProcessLookupError):
                descriptors.append(os.pidfd_open(pid))
                _be_ordinary(pid)
        for descriptor in descriptors:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        import ctypes  # noqa: PLC0415 - the program that starts guests needs none

        release = ctypes.CDLL(None, use_errno=True).syscall
        for descriptor in descriptors:
            # An older kernel: the processes free it themselves
            release(_PROCESS_MRELEASE, descriptor, 0)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _be_ordinary(pid: int) -> None:
    """Gives a process normal priority. An ordinary user may lack the right; then it ends as fast as
    it can."""
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            os.sched_setscheduler(int(task), os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):
        if f"/{GROUP}\n" in Path(f"/proc/{pid}/cgroup").read_text():
            (CPU_GROUPS / "cgroup.procs").write_text(str(pid))


def _session(leader: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    yield int(folder.name)


def main() -> None:
    cores_max, *argv = sys.argv[1:]
    become_guest(int(cores_max))
    os.execvp(argv[0], argv)  # noqa: S606 - the program itself, no shell


if __name__ == "__main__":
    main()
