"""SIGTERM and SIGINT of a process are its own, whatever a library installs.

A library may replace what the operating system does at a signal, below Python and on any thread.
Ray's core does when it connects: at SIGTERM it prints a trace, for as long as that takes, calls
what was there before, and aborts the process three seconds later, in the middle of a drain. When it
disconnects it leaves the default, which ends a process at once.

A server therefore has these signals blocked in every thread, so that no handler runs, and one
thread that waits for them. What it starts would inherit that: our processes begin with `unblock`.
They have handlers, since what they start in turn is others' code, and look whether theirs are
still there.
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
#: Of a second signal: it is not waited for anything more.
ASKED_TWICE: Final = 130
_ACTION_BYTES: Final = 512  #: more than `struct sigaction` has anywhere; its contents are opaque
_LOOK_EVERY_S: Final = 0.5

_libc: Final = ctypes.CDLL(None, use_errno=True)


def block() -> None:
    """On the main thread of a server, before there is any other; then `hear`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)


@contextlib.contextmanager
def given_back_on_error() -> Iterator[None]:
    """Of what was blocked: whoever is told of an error has the signals as before.

    A server that ends as it should keeps them blocked: its libraries' handlers are still there.
    """
    try:
        yield
    except BaseException:
        unblock()
        raise


def unblock() -> None:
    """First thing in a process that a server has started."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDS)


def hear(loop: asyncio.AbstractEventLoop, on_signal: Callable[[], None]) -> None:
    """After `block`: `on_signal` is called on `loop` at each of them. One that comes when the loop
    is closed ends the process."""

    def wait() -> None:
        while True:
            signal.sigwait(_ENDS)
            try:
                loop.call_soon_threadsafe(on_signal)
            except RuntimeError:
                os._exit(ASKED_TWICE)

    threading.Thread(target=wait, name="signals", daemon=True).start()


def handle(loop: asyncio.AbstractEventLoop, on_sigterm: Callable[[], object]) -> None:
    """`on_sigterm` is called on `loop` at each SIGTERM; what is set for SIGINT stays as well."""
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
