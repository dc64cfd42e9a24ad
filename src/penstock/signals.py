"""SIGTERM and SIGINT of a process stay its own, whatever a library installs.

A library may replace the operating system's action for a signal, below Python and on any thread.
Ray's core does so when it connects: at SIGTERM it prints a trace, however long that takes, calls
the previous handler, and aborts the process three seconds later, in the middle of a drain. When it
disconnects it restores the default, which ends a process at once.

So a server blocks these signals in every thread, which keeps any handler from running, and one
thread waits for them. Child processes inherit the block, so ours begin with `unblock`.
Those use handlers, because they start foreign code in turn, and check whether their handlers are
still installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Final

_ENDS: Final = (signal.SIGTERM, signal.SIGINT)
#: Exit status after a second signal: the process waits for nothing more.
ASKED_TWICE: Final = 130
_ACTION_BYTES: Final = 512  #: larger than any `struct sigaction`; its contents are opaque
_LOOK_EVERY_S: Final = 0.5

_libc: Final = ctypes.CDLL(None, use_errno=True)


def block() -> None:
    """Blocks the signals. Call it on a server's main thread before any other exists; then
    `hear`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)


@contextlib.contextmanager
def given_back_on_error() -> Iterator[None]:
    """Restores blocked signals after an error, for whoever handles it.

    A server that ends normally keeps them blocked: its libraries' handlers are still installed.
    """
    try:
        yield
    except BaseException:
        unblock()
        raise


def unblock() -> None:
    """Call it first in a process that a server has started."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def hear(loop: asyncio.AbstractEventLoop, on_signal: Callable[[], None]) -> None:
    """Call it after `block`: each signal calls `on_signal` on `loop`. A signal that arrives when
    the loop is closed ends the process."""

    def wait() -> None:
        while True:
            signal.sigwait(_ENDS)
            try:
                loop.call_soon_threadsafe(on_signal)
            except RuntimeError:
                os._exit(ASKED_TWICE)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def handle(loop: asyncio.AbstractEventLoop, on_sigterm: Callable[[], object]) -> None:
    """Each SIGTERM calls `on_sigterm` on `loop`; the handler of SIGINT stays unchanged."""
    loop.add_signal_handler(signal.SIGTERM, on_sigterm)
    ours = {number: _action(number) for number in _ENDS}

    def look() -> None:
        for number, action in ours.items():
            if _action(number) != action:
                put_back = ctypes.create_string_buffer(action, len(action))
                _libc.sigaction(int(number), put_back, None)
        loop.call_later(_LOOK_EVERY_S, look)

    look()


def _action(number: signal.Signals) -> bytes:
    found = ctypes.create_string_buffer(_ACTION_BYTES)
    _libc.sigaction(int(number), None, found)
    return found.raw
