"""What a library does to the signals of a process, below Python, does not last."""

from __future__ import annotations

import subprocess
import sys

#: A process that owns its signals; `library` does to them what Ray's core does: it sets the default
#: for SIGTERM, and an alarm that ends the process. It says how often it heard of a signal.
_PROGRAM = """
import asyncio, ctypes, os, signal, threading, time
import uvloop
from penstock import signals

libc = ctypes.CDLL(None)
libc.signal.restype = ctypes.c_void_p
libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]

def library():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        libc.signal(number, None)
    libc.signal(signal.SIGALRM, libc.signal(signal.SIGTERM, None))  # no more the default
    libc.alarm(3)

async def main():
    heard = []
    signals.own(asyncio.get_running_loop(), lambda: heard.append(1))
    {body}
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(3.5)
    print(len(heard))

uvloop.run(main())
"""


def _said(body: str) -> tuple[int, str]:
    program = _PROGRAM.replace("{body}", body.replace("\n", "\n    "))
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return run.returncode, run.stdout + run.stderr


def test_signals_that_a_library_has_taken_are_taken_back() -> None:
    assert _said("library()\nawait asyncio.sleep(1.0)") == (0, "2\n")


def test_while_a_library_is_at_it_its_change_lasts_for_a_moment() -> None:
    """The loop waits for the call: its own look comes too late."""
    body = """with signals.kept():
    library()
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(0.2)"""
    assert _said(body) == (0, "3\n")


def test_what_a_library_did_last_is_undone_when_its_call_is_over() -> None:
    assert _said("with signals.kept(): library()") == (0, "2\n")
