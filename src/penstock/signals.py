"""SIGTERM and SIGINT of a process are its own, whatever a library installs.

A library may replace what the operating system does at a signal, below Python and on any thread.
Ray's core does when it connects: at SIGTERM it prints a trace, calls what was there before, and
aborts the process three seconds later by SIGALRM, in the middle of a drain. When it disconnects it
leaves what ends a process at once. So what is ours is looked at and put back: all the time by a
timer of the loop, and while such a library connects, which may keep the loop waiting, by a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

#: The alarm is nobody's: who sets one would end the process by it.
_HELD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)
_ACTION_BYTES: Final = 512  #: more than `struct sigaction` has anywhere; its contents are opaque
#: Well within the three seconds that Ray's alarm leaves.
_LOOK_EVERY_S: Final = 0.5
#: While it is known that a library is at it: between its change and this one the default ends us.
_WATCH_EVERY_S: Final = 0.002

_libc: Final = ctypes.CDLL(None, use_errno=True)

Actions = dict[signal.Signals, bytes]


def own(
    loop: asyncio.AbstractEventLoop,
    on_signal: Callable[[], object],
    numbers: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
) -> None:
    """`on_signal` is called on `loop` at each of `numbers`, from now on and until the loop is
    closed. What is set for the others stays, too. Call it on the main thread."""
    for number in numbers:
        loop.add_signal_handler(number, on_signal)
    ours = _now()

    def look() -> None:
        _put_back(ours)
        loop.call_later(_LOOK_EVERY_S, look)

    look()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Around a call of a library that installs handlers of its own, on any thread."""
    ours, over = _now(), threading.Event()

    def watch() -> None:
        while not over.wait(_WATCH_EVERY_S):
            _put_back(ours)

    watching = threading.Thread(target=watch, name="signals", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join()
        _put_back(ours)


def _now() -> Actions:
    return {number: _action(number) for number in _HELD}


def _put_back(ours: Actions) -> None:
    for number, action in ours.items():
        if _action(number) != action:
            if number == signal.SIGALRM:
                _libc.alarm(0)
            _libc.sigaction(int(number), ctypes.create_string_buffer(action, len(action)), None)


def _action(number: signal.Signals) -> bytes:
    found = ctypes.create_string_buffer(_ACTION_BYTES)
    _libc.sigaction(int(number), None, found)
    return found.raw
