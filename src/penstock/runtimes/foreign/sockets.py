"""The TCP sockets on which processes listen, from /proc; none of processes that can't be seen."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

_LISTENING: Final = "0A"  #: the state, as /proc/net/tcp writes it


def listening(pids: Iterable[int]) -> list[tuple[str, int]]:
    """(address, port) of each, in the order of ports."""
    found: set[tuple[str, int]] = set()
    for pid in pids:
        with suppress(OSError):  # it has ended, or is another user's
            inodes = _sockets(pid)
            for table in ("tcp", "tcp6"):
                found |= _listed(Path(f"/proc/{pid}/net/{table}"), inodes)
    return sorted(found, key=lambda each: (each[1], each[0]))


def _sockets(pid: int) -> set[str]:
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            name = os.readlink(link)
            if name.startswith("socket:["):
                inodes.add(name[len("socket:[") : -1])
    return inodes


def _listed(table: Path, inodes: set[str]) -> set[tuple[str, int]]:
    found = set()
    with suppress(OSError):
        for line in table.read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTENING and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                found.add((_address(address), int(port, 16)))
    return found


def _address(text: str) -> str:
    """The kernel writes each 32-bit word in the processor's byte order."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    return socket.inet_ntop(socket.AF_INET if len(words) == 1 else socket.AF_INET6, packed)
