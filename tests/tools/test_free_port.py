"""Ports of servers under test: not those that a client on the same machine may be given, and never
those of another process's servers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tools.free_port import free_port

ROOT = Path(__file__).resolve().parents[2]


def test_a_port_is_below_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    if first <= 21_000:
        pytest.skip(f"this machine gives ports from {first} on to outgoing connections")
    assert all(20_000 <= free_port() < first for _ in range(50))


def test_a_port_is_not_given_again_while_its_server_may_still_be_starting() -> None:
    assert len({free_port() for _ in range(100)}) == 100


def test_a_port_that_somebody_listens_on_is_passed_over() -> None:
    ring = [free_port()]  # those of servers that run now are passed over already
    while (port := free_port()) != ring[0]:
        ring.append(port)
    with socket.create_server(("127.0.0.1", ring[1])):
        assert free_port() == ring[2]


def test_two_processes_never_get_the_same_port() -> None:
    ours = {free_port() for _ in range(128)}
    command = "from tools.free_port import free_port; print(*(free_port() for _ in range(128)))"
    given = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, check=True, capture_output=True, text=True
    )
    theirs = {int(port) for port in given.stdout.split()}
    assert theirs
    assert not ours & theirs


def test_a_fork_has_ports_of_its_own() -> None:
    ours = {free_port() for _ in range(128)}
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, b"other" if free_port() not in ours else b"same")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as said:
        assert said.read() == b"other"
