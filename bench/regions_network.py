"""Regions as hosts of their own: a network namespace each, reached over a veth pair and a relay.

The delay is the relay's (`relay.py`, in the region's namespace; tc's netem is not everywhere). A
cut is real: the link goes down, packets go nowhere, and nobody says so.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bench.processes import Running, running
from bench.report import ROOT

_PORT = 8080
_RELAY_PORT = 9000


@dataclass(frozen=True, slots=True)
class Host:
    """One region's machine."""

    name: str
    number: int
    ways_ms: tuple[float, ...]  #: there and back, from each of the places that ask it
    server: Running
    relay: Running

    @property
    def address(self) -> str:
        return f"10.77.{self.number}.2"

    @property
    def url(self) -> str:
        """The region from outside, from the first of the places."""
        return self.url_from(0)

    def url_from(self, place: int) -> str:
        return f"http://{self.address}:{_RELAY_PORT + place}"

    def cut(self) -> None:
        """The link goes down at the region's end."""
        _ip("netns", "exec", self.namespace, "ip", "link", "set", "up0", "down")

    def mend(self) -> None:
        _ip("netns", "exec", self.namespace, "ip", "link", "set", "up0", "up")

    @property
    def namespace(self) -> str:
        return _namespace(self.name)


def available() -> str:
    """Why namespaces can't be had here; empty where they can."""
    try:
        _ip("netns", "add", _namespace("try"))
        _ip("netns", "del", _namespace("try"))
    except (OSError, subprocess.CalledProcessError) as error:
        return f"no network namespaces: {error}"
    told = subprocess.run(["ip", "-br", "-4", "addr"], capture_output=True, text=True, check=True)
    for link in told.stdout.splitlines():
        if " 10.77." in link:
            name = link.split("@")[0]
            return (
                f"{name} has the addresses of this benchmark's regions: another one runs, or was "
                f"killed. hint: end its processes, then `ip link del {name}`"
            )
    return ""


@contextlib.contextmanager
def hosts(
    ways_ms: Mapping[str, float | Sequence[float]], *, loss: float
) -> Iterator[dict[str, Host]]:
    """A region each, with a fresh server that serves nothing yet.

    `ways_ms`: there and back; several, if it is asked from several places.
    """
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                _host(name, number, (ways,) if isinstance(ways, float) else tuple(ways), loss)
            )
            for number, (name, ways) in enumerate(ways_ms.items(), start=1)
        }


@contextlib.contextmanager
def _host(name: str, number: int, ways_ms: tuple[float, ...], loss: float) -> Iterator[Host]:
    space = _namespace(name)
    outer = f"pk{os.getpid() % 10_000}-{number}"
    inside = ("ip", "netns", "exec", space)
    with contextlib.ExitStack() as stack:
        _ip("netns", "add", space)
        stack.callback(_ip, "netns", "del", space)
        _ip("link", "add", outer, "type", "veth", "peer", "name", "up0", "netns", space)
        stack.callback(_ip, "link", "del", outer)
        _ip("addr", "add", f"10.77.{number}.1/24", "dev", outer)
        _ip("link", "set", outer, "up")
        for command in (
            ("ip", "addr", "add", f"10.77.{number}.2/24", "dev", "up0"),
            ("ip", "link", "set", "up0", "up"),
            ("ip", "link", "set", "lo", "up"),
        ):
            subprocess.run([*inside, *command], check=True)
        state = stack.enter_context(tempfile.TemporaryDirectory())
        server = stack.enter_context(
            running(
                [
                    *(*inside, sys.executable, "-m", "penstock", "up", "--port", str(_PORT)),
                    *("--grpc-port", "0", "--state-dir", state, "--log-level", "warning"),
                ],
                env={"PYTHONPATH": str(ROOT / "src"), "PENSTOCK_LISTEN_HOSTS": "*"},
            )
        )
        listens: list[str] = []
        for place, way_ms in enumerate(ways_ms):
            listens += ("--listen", f"10.77.{number}.2:{_RELAY_PORT + place}")
            listens += ("--way-ms", str(way_ms))
        relay = stack.enter_context(
            running(
                [
                    *(*inside, sys.executable, "-m", "bench.relay", *listens),
                    *("--to", f"127.0.0.1:{_PORT}"),
                    *("--loss", str(loss), "--seed", str(number)),
                ]
            )
        )
        _wait_word(server, "penstock ready")
        _wait_word(relay, "relay ready")
        yield Host(name, number, ways_ms, server, relay)


def _wait_word(process: Running, word: str, *, seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while word not in process.log.read_text():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{word!r} did not come: {process.log.read_text()[-500:]}")
        time.sleep(0.05)


def _namespace(name: str) -> str:
    return f"penstock-{os.getpid()}-{name}"


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
