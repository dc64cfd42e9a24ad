"""Starts a foreign server and ends it, with all it started, when the instance is gone.

`python process_guard.py ARGV...`: the program runs in a session of its own; the end of standard
input means the instance ended (even by SIGKILL). SIGTERM is passed on to the program. Exits with
the program's status.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from types import FrameType


def main() -> int:
    argv = sys.argv[1:]
    try:
        program = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        print(f"{argv[0]}: {error.strerror or error}", file=sys.stderr)
        return 127

    def pass_on(signum: int, frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signum)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pidfd = os.pidfd_open(program.pid)
    readable, _, _ = select.select([0, pidfd], [], [])
    if pidfd not in readable:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    status = program.wait()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(program.pid, signal.SIGKILL)  # what it left behind in its session
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
