"""Ends a guest at once, even where others use all cores.

Somebody waits for the guest's memory. A process frees its memory in its own processor time, and a
guest gets none while others compute: after a kill it might hold its memory for minutes. So its
processes are made ordinary ones first, where we have the right to, and the kernel is asked to free
their memory in our time (`process_mrelease`, Linux 5.15; allowed to whoever may end them).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.fleet.guest_start import CPU_GROUPS, GROUP

_PROCESS_MRELEASE: Final = 448  #: the same number on every processor


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
