"""Ends the processes that an instance leaves behind, such as children of its workers.

`python session_reaper.py SESSION`: a small process of its own that waits for the end of its
standard input, which comes with the instance's end (even by SIGKILL), and then kills every process
of the instance's session. A worker is its own process group inside that session, so that it can be
ended alone. Only a program that made a session of its own escapes; foreign servers do, and
`runtimes/confinement/guard.py` ends them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_ROUNDS_MAX = 20
_ROUND_S = 0.05


def start() -> None:
    """Makes this process lead a session, and starts the reaper, which watches until this process
    ends.

    Does nothing where that is impossible (a shell's job): the session would belong to another
    process.
    """
    with contextlib.suppress(PermissionError):  # it leads one already: its fleet did that
        os.setsid()
    if os.getsid(0) != os.getpid():
        return
    # The reaper's input closes when this process ends, and not before: no other process has the
    # write end.
    read_end, _ = os.pipe()
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid())],
        stdin=read_end,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(read_end)


def session_pids(session: int) -> list[int]:
    """The processes of a session, except those that have ended and are not waited for yet."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    found.append(int(folder.name))
    return found


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A signal to all processes ends the instance, and that ends this one
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    session = int(sys.argv[1])
    while os.read(0, 4096):
        pass
    # Repeated, because a process may fork between being found and being killed.
    for _ in range(_ROUNDS_MAX):
        pids = session_pids(session)
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_ROUND_S)


if __name__ == "__main__":
    main()
