"""What a library does to the signals of a process, below Python, changes nothing."""

from __future__ import annotations

import subprocess
import sys

#: `library` does what Ray's core does: it puts the default in the place of the handlers.
_PROGRAM = """
import asyncio, ctypes, os, signal, threading, time
import uvloop
from penstock import signals

def library():
    for number in (signal.SIGTERM, signal.SIGINT):
        ctypes.CDLL(None).signal(int(number), None)

async def main():
    heard = []
    {begin}(asyncio.get_running_loop(), lambda: heard.append(1))
    {body}
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.5)
    print(len(heard))

{first}
uvloop.run(main())
"""


def _said(first: str, begin: str, body: str) -> tuple[int, str]:
    program = _PROGRAM.replace("{first}", first).replace("{begin}", begin)
    program = program.replace("{body}", body.replace("\n", "\n    "))
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    return run.returncode, run.stdout + run.stderr


def test_a_server_hears_of_its_signals_while_a_library_has_them() -> None:
    """On no thread, and at no moment, does what the library installed run."""
    body = """thread = threading.Thread(target=library)
thread.start()
thread.join()
os.kill(os.getpid(), signal.SIGINT)
await asyncio.sleep(0.5)"""
    assert _said("signals.block()", "signals.hear", body) == (0, "2\n")


def test_a_signal_that_comes_while_the_loop_is_kept_waiting_is_heard_of() -> None:
    body = "library()\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.5)"
    assert _said("signals.block()", "signals.hear", body) == (0, "2\n")


def test_other_processes_take_back_what_a_library_has_taken() -> None:
    body = "library()\nawait asyncio.sleep(2.0)"
    assert _said("signals.block(); signals.unblock()", "signals.handle", body) == (0, "1\n")
