"""The way to a region: bytes arrive whole, in order, and never sooner than the way takes."""

from __future__ import annotations

import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from bench.report import ROOT
from tools.free_port import free_port

WAYS_MS = (0.0, 200.0)


class Echo(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65536):
            self.request.sendall(data)


@pytest.fixture(scope="module")
def ports() -> Iterator[list[int]]:
    """Of one relay, an address for each way."""
    socketserver.ThreadingTCPServer.allow_reuse_address = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        found = [free_port() for _ in WAYS_MS]
        argv = [
            sys.executable,
            "-m",
            "bench.relay",
            "--to",
            f"127.0.0.1:{server.server_address[1]}",
        ]
        for port, way_ms in zip(found, WAYS_MS, strict=True):
            argv += ["--listen", f"127.0.0.1:{port}", "--way-ms", str(way_ms)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as relay:
            try:
                assert relay.stdout is not None
                assert relay.stdout.readline().startswith("relay ready")
                yield found
            finally:
                relay.kill()
                server.shutdown()


@pytest.mark.parametrize("which", range(len(WAYS_MS)))
def test_each_address_has_a_way_of_its_own(ports: list[int], which: int) -> None:
    data = bytes(range(256)) * 1000
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", ports[which]), timeout=30) as client:
        client.sendall(data[:1])
        assert client.recv(1) == data[:1]
        took_s = time.monotonic() - began
        client.sendall(data)
        back = bytearray()
        while len(back) < len(data):
            back += client.recv(65536)
    assert back == data
    assert took_s >= WAYS_MS[which] / 1e3
