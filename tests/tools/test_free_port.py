"""Ports of servers under test: not those that a client on the same machine may be given."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest
from tools.free_port import free_port


def test_a_port_is_below_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first <= 21_000:
        pytest.skip(f"this machine gives ports from {first} on to outgoing connections")
    assert all(20_000 <= free_port() < first for _ in range(50))


def test_a_port_that_somebody_listens_on_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_port(), free_port()
    drawn = iter([taken, taken, free])
    monkeypatch.setattr(random, "randrange", lambda *_: next(drawn))
    with socket.create_server(("127.0.0.1", taken)):
        assert free_port() == free
