"""The end of an instance that still answers, but whose process can run models no more.

A GPU's context belongs to the process. Once a kernel has failed there (an index outside of its
table, a fault of the board), every later call fails, whichever model makes it. So the process ends
as if a library had crashed it: its fleet starts another one.
"""

from __future__ import annotations

import asyncio
import os
import sys

from penstock.errors import PenstockError

#: Requests that are given back leave the process first.
_LAST_FRAMES_S = 0.1


def ends_process(outcome: object) -> bool:
    """Whether a run's outcome is an error after which nothing runs in this process."""
    return getattr(outcome, "ends_process", False)


def end_soon(error: PenstockError) -> None:
    """Call it on the loop."""
    asyncio.get_running_loop().call_later(_LAST_FRAMES_S, end_now, error)


def end_now(error: PenstockError) -> None:
    """From any thread. The session reaper ends the workers that are left."""
    print(f"error[{error.code}]: {error.message}", file=sys.stderr, flush=True)
    os._exit(1)
