"""Regions and an orchestrator before them, as real processes on loopback."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.system.harness import Server, wait_until
from tools.free_port import free_port


class Orchestrated(Server):
    """`penstock orchestrator` before regions; `url` and `port` are the orchestrator's."""

    def __init__(self, folder: Path, regions: dict[str, Server], **said: Any) -> None:
        """`said`: more of the file of regions; `regions_said`: more of each of them."""
        super().__init__(folder / "orchestrator")
        self.regions = regions
        self.file = folder / "regions.yaml"
        more = said.pop("regions_said", {})
        self.write(more, **said)

    def write(self, more: dict[str, dict[str, Any]], **said: Any) -> None:
        listed = [
            {"name": name, "url": server.url} | more.get(name, {})
            for name, server in self.regions.items()
        ]
        self.file.write_text(yaml.safe_dump({"regions": listed} | said))

    def start(self, word: str = "orchestrator ready") -> Orchestrated:
        self.port = self.port or free_port()
        argv = [
            *(sys.executable, "-m", "penstock", "orchestrator", "--regions", str(self.file)),
            *("--port", str(self.port), "--state-dir", str(self.state_dir), *self.flags),
        ]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        process = self.process
        wait_until(
            lambda: word in self.log() or process.poll() is not None,
            seconds=90,
            what=f"the words {word!r}",
        )
        assert process.poll() is None, self.log()
        return self

    def seen(self) -> dict[str, dict[str, Any]]:
        """Region -> how it is."""
        told = self.get("/penstock/v1/regions")["regions"]
        return {one["region"]: one for one in told}

    def wait_serving(self, endpoint: str, *names: str, seconds: float = 60) -> None:
        """Until requests for an endpoint may go to these regions, and to no others."""

        def serving() -> bool:
            return {
                name
                for name, one in self.seen().items()
                if endpoint in one["endpoints"] and one["health"] in ("serving", "slow-start")
            } == set(names)

        wait_until(serving, seconds=seconds, what=f"{endpoint} served by {names}")

    def traffic(self, endpoint: str) -> dict[str, Any]:
        told: dict[str, Any] = self.get(f"/penstock/v1/ratios?endpoint={endpoint}")["traffic"][0]
        return told


def stopped(server: Server) -> None:
    """As if the machine had stopped answering, with its connections open."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)


def resumed(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGCONT)


@contextmanager
def regions_up(
    folder: Path, *names: str, flags: tuple[str, ...] = ()
) -> Iterator[dict[str, Server]]:
    """A server for each region."""
    servers = {name: Server(folder / name / "state", *flags) for name in names}
    for server in servers.values():
        server.state_dir.parent.mkdir(parents=True)
    try:
        for server in servers.values():
            server.start()
        yield servers
    finally:
        for server in servers.values():
            if server.process is not None and server.process.poll() is None:
                resumed(server)
                server.kill()


def chosen(answer: bytes) -> Any:
    return json.loads(answer)
