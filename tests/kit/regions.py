"""Regions and an orchestrator before them, as real processes on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.kit.polling import wait_until
from tests.kit.servers import Server


class Orchestrated(Server):
    """`penstock orchestrator` before regions; `url` and `port` are the orchestrator's."""

    READY = "orchestrator ready"

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

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "penstock", "orchestrator", "--regions", str(self.file)),
            *("--port", str(self.port), "--state-dir", str(self.state_dir), *self.flags),
        ]

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

        wait_until(serving, f"{endpoint} served by {names}", seconds)

    def traffic(self, endpoint: str) -> dict[str, Any]:
        told: dict[str, Any] = self.get(f"/penstock/v1/ratios?endpoint={endpoint}")["traffic"][0]
        return told


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
                server.go_on()
                server.kill()
