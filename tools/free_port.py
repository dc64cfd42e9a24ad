"""Ports for servers that tests and benchmarks start: nobody else gets them before the server does.

One that the system picks lies among those of outgoing connections: until the server binds it, any
client on the machine may have got it. These lie below. Each process that asks has a block of them
for itself, for as long as it lives: of two test workers that pick at random, one would now and then
name the port of a server that the other is just starting, or has killed and starts again.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

#: Ray's own ports end below.
_FIRST = 20_000
_BLOCK = 128
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """One of loopback that nobody listens on, and that no other process is given. Raises
    RuntimeError where none is found."""
    if _Block.own is None or _Block.own.pid != os.getpid():  # a fork has its parent's
        _Block.own = _Block()
    return _Block.own.next()


class _Block:
    """Ports of this process. What holds the block is an abstract Unix socket's name: the kernel
    gives it to one process of a network namespace, and back when that ends."""

    own: _Block | None = None

    def __init__(self) -> None:
        self.pid = os.getpid()
        blocks = list(range(_FIRST, _outgoing_from() - _BLOCK + 1, _BLOCK))
        random.SystemRandom().shuffle(blocks)
        for first in blocks:
            self.held = socket.socket(socket.AF_UNIX)
            try:
                self.held.bind(f"\0penstock-ports-{first}")
            except OSError:
                self.held.close()
                continue
            self.ports = self._in_turn(first)
            return
        raise RuntimeError(f"all {len(blocks)} blocks of {_BLOCK} ports are other processes'")

    def next(self) -> int:
        for port in (next(self.ports) for _ in range(_BLOCK)):
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
        raise RuntimeError(f"all {_BLOCK} ports of this process are in use")

    @staticmethod
    def _in_turn(first: int) -> Iterator[int]:
        """The one given longest ago is next."""
        while True:
            yield from range(first, first + _BLOCK)


def _outgoing_from() -> int:
    """The first port of outgoing connections; where they begin lower, none is safe."""
    try:
        first = int(_RANGE.read_text().split()[0])
    except OSError:
        first = 0
    return first if first > _FIRST + 1_000 else 1 << 16
