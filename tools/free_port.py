"""Ports for servers that tests and benchmarks start: nobody else gets them before the server does.

One that the system picks lies among those of outgoing connections: until the server binds it, any
client on the machine may have got it. These lie below.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

#: Ray's own ports end below.
_FIRST = 20_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 100


def free_port() -> int:
    """One of loopback that nobody listens on. Raises RuntimeError where none is found."""
    end = _outgoing_from()
    for _ in range(_TRIES):
        port = random.randrange(_FIRST, end)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"{_TRIES} ports from {_FIRST} to {end} are all in use")


def _outgoing_from() -> int:
    """The first port of outgoing connections; where they begin lower, none is safe."""
    try:
        first = int(_RANGE.read_text().split()[0])
    except OSError:
        first = 0
    return first if first > _FIRST + 1_000 else 1 << 16
